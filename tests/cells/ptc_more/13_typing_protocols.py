from __future__ import annotations
from typing import Protocol, TypedDict, NamedTuple, Generic, TypeVar, Literal, Optional, Callable, get_type_hints, runtime_checkable
from abc import ABC, abstractmethod
T = TypeVar("T")
class Stack(Generic[T]):
    def __init__(self) -> None: self._items: list[T] = []
    def push(self, x: T) -> Stack[T]: self._items.append(x); return self
    def pop(self) -> T: return self._items.pop()
class Order(TypedDict, total=False):
    order_id: str
    amount: float
class Point(NamedTuple):
    x: int
    y: int = 0
@runtime_checkable
class Named(Protocol):
    name: str
class Base(ABC):
    @abstractmethod
    def area(self) -> float: ...
    @classmethod
    def make(cls, *a): return cls(*a)
class Sq(Base):
    def __init__(self, s): self.s = s
    def area(self) -> float: return self.s ** 2
print(Stack[int]().push(1).push(2).pop(), Point(1)._replace(y=5), isinstance(MCPServer("Math"), Named), Sq.make(3).area())
try: Base()
except TypeError as e: print(e)
o: Order = {"order_id": "x"}
def f(x: Optional[int], m: Literal["a", "b"] = "a") -> Callable[[int], str]: ...
print(get_type_hints(f), get_type_hints(Order), f.__annotations__)
__annotations__
