class Reg(type):
    seen = []
    def __new__(m, n, b, d, **k): c = super().__new__(m, n, b, d); Reg.seen.append((n, k)); return c
    def __init__(c, n, b, d, **k): super().__init__(n, b, d)
class A(metaclass=Reg, tag=1): pass
class B(A, tag=2): pass
class Positive:
    def __set_name__(self, o, n): self.n = "_" + n
    def __get__(self, i, o): return getattr(i, self.n, None)
    def __set__(self, i, v):
        if v <= 0: raise ValueError(f"{self.n[1:]} must be positive")
        setattr(i, self.n, v)
class Acct:
    bal = Positive()
    __slots__ = ("_bal",)
    def __init_subclass__(cls, /, kind="x", **k): cls.kind = kind
class Sav(Acct, kind="savings"): pass
a = Acct(); a.bal = 5
try: a.bal = -1
except ValueError as e: print(e)
try: a.other = 1
except AttributeError as e: print(e)
print(Reg.seen, a.bal, Sav.kind, type("Dyn", (B,), {"z": 1}, tag=3).z, B.__mro__[1].__name__)
class M:
    def __matmul__(s, o): return "mm"
    def __rmul__(s, o): return ("r", o)
    def __neg__(s): return "neg"
    def __enter__(s): return s
    def __exit__(s, *a): return False
    def __hash__(s): return 1
    def __eq__(s, o): return True
    def __index__(s): return 2
print(M() @ 1, 3 * M(), -M(), {M(): 1}[M()], [1, 2, 3][M()])
super(B, B()).__class__
