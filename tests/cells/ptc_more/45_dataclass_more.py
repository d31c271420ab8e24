from dataclasses import dataclass, field, asdict, astuple, replace, fields, FrozenInstanceError
from typing import ClassVar
@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    sku: str
    qty: int = 1
    price: float = 0.0
    tags: tuple = ()
    tax: ClassVar[float] = 0.19
    def __post_init__(self):
        if self.qty < 0: raise ValueError(f"qty {self.qty}")
    @property
    def total(self): return round(self.qty * self.price, 2)
items = [Item(**i) for i in MCPServer("Shop").get_order("ORD-1002")["items"]]
print(items, sum(i.total for i in items), {i: 1 for i in items}[items[0]])
try: items[0].qty = 5
except FrozenInstanceError as e: print("frozen", e)
try: Item(sku="x", qty=-1)
except ValueError as e: print(e)
print(asdict(items[0]), astuple(items[0]), replace(items[0], qty=9).qty, [f.name for f in fields(Item)])
@dataclass
class Bag:
    items: list = field(default_factory=list)
    def __iter__(self): return iter(self.items)
    def __len__(self): return len(self.items)
    def __contains__(self, x): return x in self.items
    def __getitem__(self, i): return self.items[i]
    def __add__(self, o): return Bag(self.items + o.items)
    def __bool__(self): return bool(self.items)
    def __call__(self, *a): return a
    def __format__(self, s): return f"<{s}>"
b = Bag([1]) + Bag([2]); print(len(b), 2 in b, b[-1], list(b), bool(Bag()), b(1), f"{b:spec}")
b
