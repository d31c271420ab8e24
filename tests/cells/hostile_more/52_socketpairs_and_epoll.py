import socket, select, os
pairs = []
try:
    while True:
        a, b = socket.socketpair(); a.setblocking(False)
        try:
            while True: a.send(b"x" * 65536)
        except BlockingIOError: pass
        pairs.append((a, b))
except OSError as e: print(e.errno, len(pairs))
a, b = pairs.pop()
try:
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, b"\x03\x00\x00\x00")]); print("SENT a descriptor")
except OSError as e: print(e.errno)
