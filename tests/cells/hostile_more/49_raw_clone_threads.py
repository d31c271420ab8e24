import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.clone.restype = ctypes.c_int
keep = []
flags = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000
n = 0
for _ in range(20000):
    s = ctypes.create_string_buffer(8192); keep.append(s)
    top = (ctypes.addressof(s) + 8192) & ~15
    if libc.clone(libc.sleep, ctypes.c_void_p(top), flags, ctypes.c_void_p(1000)) < 0: break
    n += 1
print(n)
while True: pass
