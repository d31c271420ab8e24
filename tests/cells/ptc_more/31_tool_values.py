math = MCPServer("Math")
print(math.add(1, 2), math.add(a=1.5, b=2), math.multiply(2, b=5), list(map(math.sqrt, [4, 9])), sorted([9, 1, 4], key=math.sqrt, reverse=True))
print(math.sum([1, 2, 3.5]), sum(math.add(i, 1) for i in range(4)), max((1, 5, 2), key=lambda x: math.multiply(x, -1)))
print(math.add(True, None) if False else "skip", math.add("a", "b"), math.add([1], [2]))
add = math.add
import functools
inc = functools.partial(add, b=1)
print(inc(41), functools.reduce(add, [1, 2, 3, 4]), callable(add), add.__name__)
print(math, add, math.tools, math.name, [t for t in dir(math)])
getattr(math, "add")(1, 1), math["multiply"](3, 3), hasattr(math, "nope"), hasattr(math, "sqrt")
# %%
math == MCPServer("Math"), {math.name: 1}, [s.name for s in map(MCPServer, ["Shop", "Files"])]
# %%
math.add(1, 2, 3)
# %%
math.add(1)
# %%
math.add(a=1, c=2)
# %%
math.add(1, a=2)
# %%
math.ad(1, 2)
# %%
math.Add(1, 2)
# %%
MCPServer("Maths")
# %%
MCPServer("math").add(2, 2)
# %%
math.sqrt(-1)
# %%
math.add({1, 2}, 3)
# %%
math()
