def parse(s):
    try:
        return int(s)
    except ValueError as e:
        e.add_note(f"while parsing {s!r}")
        raise RuntimeError("cannot parse") from e
try:
    parse("x1")
except RuntimeError as e:
    print(e, repr(e.__cause__), e.__cause__.__notes__)
import traceback
try:
    parse("zz")
except Exception as e:
    print(traceback.format_exception_only(e)[-1].strip(), len(traceback.extract_tb(e.__traceback__)))
try:
    raise ExceptionGroup("many", [ValueError(1), TypeError(2), OSError(3)])
except* ValueError as g: print("values", g.exceptions)
except* (TypeError, OSError) as g: print("others", len(g.exceptions))
def fin():
    try: return "try"
    finally: print("finally")
print(fin())
for i in range(3):
    try:
        if i == 1: continue
        if i == 2: break
    except: pass
    else: print("else", i)
    finally: print("fin", i)
try: assert 1 == 2, f"math {1}"
except AssertionError as e: print("assert:", e)
raise RuntimeError("last") from None
# %%
class Quiet(Exception): pass
raise Quiet
# %%
parse("again")
# %%
raise KeyboardInterrupt
# %%
raise ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [KeyError("k")])])
