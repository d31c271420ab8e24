import os, struct
for n in (100, 500, 900, 990, 5000, 200000):
    b = b'{"t":"done","id":1,"status":"ok","stdout":' + b"[" * n + b"]" * n + b"}"
    os.write(3, struct.pack(">I", len(b)) + b)
