import ctypes, gc, re
libc = ctypes.CDLL(None, use_errno=True)
libc.mremap.restype = ctypes.c_void_p
libc.__environ = None
marker = ctypes.c_void_p.in_dll(libc, "environ")
start = ctypes.addressof(marker)
import sys
env = ctypes.cast(libc.environ, ctypes.c_void_p).value or 0
print(env != 0)
p = ctypes.c_void_p.in_dll(libc, "__libc_stack_end") if hasattr(libc, "__libc_stack_end") else None
if p:
    grown = libc.mremap(ctypes.c_void_p(p.value & ~4095), ctypes.c_size_t(4096), ctypes.c_size_t(8 << 30), 1)
    print("ALLOCATED 8 GB" if grown not in (None, 2**64 - 1) else "refused")
