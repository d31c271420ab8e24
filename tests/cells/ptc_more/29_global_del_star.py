from math import *
from collections import *
print(sqrt(16), Counter("aab"), pi)
count = 0
def bump():
    global count, made_here
    count += 1
    made_here = count * 10
bump(); bump()
print(count, made_here)
lst = [0, 1, 2, 3, 4, 5]
del lst[1:3], lst[-1]
print(lst)
a, b = 1, 2
a, b = b, a
(first, *mid, last), = [[1, 2, 3, 4]]
print(a, b, first, mid, last)
d = dict(a=1, b=2); d |= {"c": 3}
del d["a"]
print(d, {**d, "z": 0}, [*d], d.pop("nope", None))
del a
try: a
except NameError as e: print("gone:", e)
exec("dyn = 5"); print(dyn, eval("dyn + 1"), eval("x", {"x": 9}))
def f(): return locals()
print(f(), sorted(k for k in globals() if k in ("dyn", "count", "lst")))
vars()["viavars"] = 1; viavars
