math = MCPServer("Math")
for n in (50, 90, 101, 110, 115, 118, 121, 500, 980):
    v = []
    for _ in range(n): v = [v]
    try: math.add(a=v, b=v)
    except BaseException as e: print(n, type(e).__name__, str(e)[:60])
c = []; c.append(c)
try: math.add(c, c)
except BaseException as e: print(type(e).__name__)
