math = MCPServer("Math")
class J(dict):
    def items(self): raise SystemError("items")
class I(int):
    def __repr__(self): return "]]]"
    __str__ = __repr__
class F(float):
    def __repr__(self): return "{{{"
for v in (float("nan"), float("inf"), "\ud800", "\x00", 10**400, 10**5000, {"\ud800": 1}, {1: 2}, {None: 1}, J(a=1), I(3), F(2.5), b"x", ..., object(), (1,), {1, 2}, "\U0010ffff", -0.0, True):
    try: print(repr(math.add(a=v, b=v))[:50])
    except BaseException as e: print(type(e).__name__, str(e)[:80])
answer("\ud800 half")
raise ValueError
