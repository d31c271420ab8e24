import copy, pickle, struct, zlib, gzip, base64, binascii, hashlib, hmac, io, bz2, lzma
class Node:
    def __init__(self, v, nxt=None): self.v, self.next = v, nxt
    def __eq__(self, o): return isinstance(o, Node) and self.v == o.v
n = Node(1); n.next = n
d = copy.deepcopy(n); s = copy.copy(n)
print(d.next is d, s.next is n, d == n)
print(pickle.loads(pickle.dumps({"n": Node(5), "s": {1, 2}, "d": (1.5, b"x")}))["n"].v)
print(struct.pack(">IHb4s", 1, 2, -3, b"ab"), struct.unpack("<d", struct.pack("<d", 2.5)), struct.calcsize("@iq"))
raw = b"hello " * 100
print(len(zlib.compress(raw)), zlib.crc32(raw), zlib.decompress(zlib.compress(raw)) == raw, gzip.decompress(gzip.compress(raw, mtime=0))[:5])
with gzip.GzipFile(fileobj=io.BytesIO(), mode="wb") as g: print(g.write(raw))
print(bz2.decompress(bz2.compress(b"x")), lzma.decompress(lzma.compress(b"y")))
print(base64.b64encode("ü€".encode()).decode(), base64.urlsafe_b64decode("_-8="), binascii.hexlify(b"\x00\xff"))
print(hashlib.sha256(b"abc").hexdigest()[:16], hashlib.md5(b"abc").hexdigest(), hashlib.new("sha1", b"x").hexdigest()[:8], hashlib.blake2b(b"x", digest_size=4).hexdigest(), hashlib.sha3_256(b"").hexdigest()[:8])
print(hmac.new(b"k", b"m", "sha256").hexdigest()[:10], hashlib.pbkdf2_hmac("sha256", b"p", b"s", 10).hex()[:10])
try: pickle.dumps(lambda: 0)
except Exception as e: print(type(e).__name__)
sorted(hashlib.algorithms_guaranteed)[:3]
