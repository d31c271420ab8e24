config = {"page_size": 3}
def page(n): return MCPServer("Shop").list_orders(page=n, **config)["orders"]
class Acc:
    total = 0
    def add(self, x): type(self).total += x; return self
acc = Acc()
# %%
config["page_size"] = 5
len(page(1))
# %%
for o in page(2): acc.add(o["amount"])
round(Acc.total, 2)
# %%
class Acc:
    total = -1
isinstance(acc, Acc), acc.total == Acc.total
# %%
def page(n): return "replaced"
page(1)
# %%
del config
page(3)
# %%
config
# %%
try: undefined_name
except NameError as e: print(e)
x: int
x
# %%
import json as j, sys
"j" in globals(), "config" in globals(), __name__, sys.modules["__main__"].acc is acc
