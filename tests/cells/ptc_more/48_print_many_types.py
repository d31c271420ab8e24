class Money:
    def __init__(self, v): self.v = v
    def __repr__(self): return f"Money({self.v})"
    def __str__(self): return f"€{self.v:.2f}"
m = Money(3)
print(m, [m], {"m": m}, (m,), f"{m} {m!r}", "%s %r" % (m, m), str([str(m)]))
print(map(str, [1]).__class__.__name__, zip([1], [2]).__class__, {}.items(), {1: 2}.keys(), {}.values(), enumerate([]).__class__, reversed([1, 2]).__class__)
l = [1]; l.append(l); print(l); d = {}; d["d"] = d; print(d)
print(object.__name__, type(m).__name__, Money.__repr__.__name__, m.__class__, property, staticmethod)
m
# %%
[m, {"x": m}]
# %%
class Bad:
    def __repr__(self): raise RuntimeError("no repr")
print("fine")
Bad()
# %%
[Bad()]
# %%
print(Bad())
# %%
object.__repr__(m)[:15]
