from enum import Enum, IntEnum, Flag, auto, StrEnum, unique
class S(StrEnum):
    SHIPPED = "shipped"; PENDING = auto()
class P(IntEnum):
    LOW = 1; HIGH = 3
class F(Flag):
    R = auto(); W = auto(); X = auto()
@unique
class E(Enum):
    A = 1
    B = "b"
    @property
    def label(self): return self.name.title()
print(S("shipped"), S.PENDING, P.HIGH > P.LOW, F.R | F.W, F.R in (F.R | F.X), E["B"].label, list(E), E.A == 1)
try: S("lost")
except ValueError as e: print(e)
print(f"{S.SHIPPED} {P.HIGH} {P.HIGH!r} {E.A}", {S.SHIPPED: 1}["shipped"])
MCPServer("Math").add(S.SHIPPED, "x")
# %%
E.A, S.SHIPPED, F.R | F.W, P(3)
