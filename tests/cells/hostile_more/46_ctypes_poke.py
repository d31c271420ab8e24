import ctypes
for address in (id(None), id(True), id(int)):
    ctypes.memset(address, 0xFF, 8)
print(None, True)
