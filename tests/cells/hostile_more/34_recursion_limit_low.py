import sys
def set_low():
    for n in (1, 5, 10, 30, 60):
        try: sys.setrecursionlimit(n)
        except RecursionError: pass
set_low()
