import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
total = 0
for flags in (0x22, 0x122, 0x21, 0x8022, 0x4022, 0x40022, 0x20022):
    for prot in (0, 1, 3, 7):
        for _ in range(64):
            if libc.mmap(None, ctypes.c_size_t(256 << 20), prot, flags, -1, 0) not in (None, 2**64 - 1):
                total += 256
            else:
                break
if total > 2000: print("ALLOCATED", total, "MB")
try:
    x = bytearray(400 << 20)
    print("ALLOCATED 400 MB")
except MemoryError: print("MemoryError")
