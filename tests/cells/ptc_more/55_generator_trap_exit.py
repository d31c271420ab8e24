import sys
def g():
    try:
        yield 1
    finally:
        print("cleanup")
it = g(); next(it); del it
class R:
    def __del__(self): print("deleted")
r = R(); r = None
for x in g():
    break
print("after")
try: sys.exit("message")
except SystemExit as e: print("code", e.code)
import atexit; atexit.register(print, "never shown here")
exit()
# %%
print("alive")
sys.exit(0)
# %%
quit(3)
