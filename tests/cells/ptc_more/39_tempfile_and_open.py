import tempfile, os
try:
    with open("/workspace/notes.txt") as f: print(f.read())
except OSError as e: print("cannot open", type(e).__name__ in ("PermissionError", "FileNotFoundError"))
sp = tempfile.SpooledTemporaryFile(max_size=10**6, mode="w+"); sp.write("x"); sp.seek(0); print(sp.read())
"done"
