import sys, io
sys.stdout.reconfigure(encoding="utf-8")
print(sys.stdout.encoding.lower(), sys.stdout.isatty(), sys.stdout.writable(), sys.stdout.closed, sys.stderr.encoding.lower())
sys.stdout.buffer.write("bytes é\n".encode()); sys.stdout.buffer.flush()
sys.stdout.writelines(["a\n", "b\n"]); print("x", file=sys.stderr, flush=True)
old = sys.stdout; sys.stdout = io.StringIO(); print("swallowed"); got = sys.stdout.getvalue(); sys.stdout = old
print("got", got.strip()); sys.__stdout__.write("dunder\n")
n = sys.stdout.write("four"); print(n)
try: sys.stdout.write(b"no")
except TypeError as e: print("TypeError")
sys.stdout = io.StringIO(); print("lost")
# %%
print("back")
