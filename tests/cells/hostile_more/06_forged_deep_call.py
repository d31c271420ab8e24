import os, struct
n = 850
b = b'{"t":"call","id":7,"op":"server","payload":{"server":' + b"[" * n + b"]" * n + b"}}"
os.write(3, struct.pack(">I", len(b)) + b)
import time; time.sleep(0.2)
