import io
b = io.BytesIO(); b.write(b"abc"); b.seek(1); print(b.read(), b.getvalue(), b.tell())
s = io.StringIO("l1\nl2\r\nl3"); print(s.readline(), list(s), s.closed)
t = io.TextIOWrapper(io.BytesIO("é\n".encode()), encoding="utf-8"); print(t.read())
print(memoryview(b"abcdef")[1:3].tobytes(), bytes(range(3)), bytearray(b"x") * 2, b"a-b".split(b"-"), bytes.fromhex("ff00"), b"\xc3\xa9".decode())
import array; a = array.array("d", [1, 2.5]); a.append(3); print(a, a.itemsize)
import sys; print(sys.getsizeof([]) > 0, sys.byteorder, sys.maxsize, sys.version_info[:1], sys.platform)
sys.stdin.read(), list(sys.stdin), sys.stdin.readline()
# %%
input("name: ")
