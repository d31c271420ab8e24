import socket
s = socket.socket(fileno=3)
s.shutdown(socket.SHUT_RDWR)
