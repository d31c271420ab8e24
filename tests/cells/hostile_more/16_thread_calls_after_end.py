import threading, time
math = MCPServer("Math")
def late():
    while True:
        try: math.add(a=1, b=1)
        except BaseException: pass
for _ in range(4): threading.Thread(target=late, daemon=True).start()
time.sleep(0.05)
