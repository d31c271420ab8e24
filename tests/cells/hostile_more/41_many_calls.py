math = MCPServer("Math")
n = 0
while True:
    try: math.add(a=n, b=1)
    except BaseException: pass
    n += 1
