import sys
sys.setrecursionlimit(10**9)
class A:
    def __repr__(self): return repr(self)
def f(): f()
for g in (lambda: repr(A()), f):
    try: g()
    except BaseException as e: print(type(e).__name__)
