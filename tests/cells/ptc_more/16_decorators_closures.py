import functools, time
def retry(times=3, exceptions=(Exception,)):
    def deco(fn):
        @functools.wraps(fn)
        def wrapper(*a, **k):
            last = None
            for i in range(times):
                try:
                    return fn(*a, **k)
                except exceptions as e:
                    last = e
                    print(f"attempt {i + 1} failed: {e}")
            raise last
        return wrapper
    return deco
calls = 0
@retry(times=3, exceptions=(ToolError,))
def forecast(city):
    """Get it."""
    global calls
    calls += 1
    return MCPServer("Weather").get_forecast(city=city if calls > 2 else "Nowhere")["city"]
print(forecast("Oslo"), calls, forecast.__name__, forecast.__doc__)
def counter():
    n = 0
    def inc():
        nonlocal n
        n += 1
        return n
    return inc
c = counter(); c(); c()
print(c(), [f(10) for f in [lambda x, i=i: x + i for i in range(3)]], [f() for f in [lambda: i for i in range(3)]])
@functools.lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(90), fib.cache_info())
@functools.singledispatch
def show(x): return "?"
@show.register
def _(x: int): return "int"
show(3), show("a"), functools.partial(int, base=2)("101")
