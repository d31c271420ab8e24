import sys
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
print(depth(500))
def flatten(x): return [z for y in x for z in flatten(y)] if isinstance(x, list) else [x]
print(flatten([1, [2, [3, [4, [5]]]]]))
def hanoi(n, a="A", b="B", c="C"): return 0 if n == 0 else hanoi(n - 1, a, c, b) + 1 + hanoi(n - 1, c, b, a)
print(hanoi(10))
def forever(n): return forever(n + 1)
try: forever(0)
except RecursionError as e: print(type(e).__name__, str(e)[:32])
sys.setrecursionlimit(20000)
print(depth(9000))
# %%
sys.getrecursionlimit()
# %%
forever(0)
# %%
depth(800)
