import ctypes
for path in ("/proc/self/mem", "/dev/mem", "/proc/self/fd/3", "/proc/1/environ", "/dev/shm", "/sys/kernel", "/proc/self/ns/mnt", "/dev/null", "/dev/urandom"):
    for how in ("rb", "wb", "r+b"):
        try:
            open(path, how); print("READ", path)
        except OSError as e: print(e.errno)
