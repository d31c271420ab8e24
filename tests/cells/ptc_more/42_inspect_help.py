import inspect, dis, ast
def area(w: float, h: float = 1.0, *, unit="cm") -> str:
    """Area of a box.

    Longer."""
    return f"{w * h}{unit}"
print(inspect.signature(area), inspect.getdoc(area), inspect.isfunction(area))
print(ast.dump(ast.parse("1+x", mode="eval")), ast.literal_eval("{'a': [1, (2, 3)]}"), ast.unparse(ast.parse("x=( 1+2)")))
class K:
    """A K."""
    z = 1
    def m(self): return inspect.currentframe().f_code.co_name
print(K().m(), [n for n, v in inspect.getmembers(K) if not n.startswith("_")], K.__mro__, K.__doc__, K.__module__, K.__qualname__)
help(area)
# %%
print(area.__defaults__, area.__kwdefaults__, area.__code__.co_varnames, area.__module__)
area
