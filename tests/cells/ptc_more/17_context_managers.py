from contextlib import contextmanager, ExitStack, suppress, redirect_stdout, nullcontext, closing
import io
@contextmanager
def section(name):
    print(f"[{name}")
    try:
        yield name.upper()
    except ZeroDivisionError as e:
        print("handled", e)
    finally:
        print(f"{name}]")
with section("a") as a, section("b"):
    print(a); 1 / 0
with ExitStack() as s:
    for i in range(2): s.enter_context(section(f"s{i}"))
    s.callback(print, "callback")
buf = io.StringIO()
with redirect_stdout(buf):
    print("hidden"); help
print("captured:", buf.getvalue().strip())
class Timer:
    def __enter__(self): return self
    def __exit__(self, t, v, tb): print("exit", t and t.__name__, v); return t is KeyError
with Timer(): {}["k"]
with suppress(FileNotFoundError, IndexError): [][0]
with Timer(): raise ValueError("out")
