import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for option, args in [(1, (0,)), (4, (1,)), (22, (0,)), (22, (2, 0)), (23, (1,)), (36, (1,)), (38, (0,)), (47, (2, 1)), (28, (0,)), (33, (0,)), (35, (13, 0)), (59, (1,)), (62, (1,)), (0x59616D61, (0,))]:
    r = libc.prctl(option, *[ctypes.c_ulong(a) for a in args])
    if r >= 0 and option not in (23,):
        print("CALLED prctl", option, r)
prog = (ctypes.c_ubyte * 16)(6, 0, 0, 0, 0, 0, 0xFF, 0x7F)
for number in (317, 277):
    r = libc.syscall(number, 1, 0, prog)
    if r == 0:
        print("CALLED seccomp", number)
