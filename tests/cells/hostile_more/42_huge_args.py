math = MCPServer("Math")
for size in (10**5, 10**6, 7 * 10**6, 9 * 10**6):
    for call in (lambda s: math.add(a=s, b=s), lambda s: math.nope(s), lambda s: getattr(math, s), lambda s: MCPServer(s), lambda s: get_tools_info([s]), lambda s: search_tools(s), lambda s: math.add(**{s: 1})):
        try: call("q" * size)
        except BaseException as e: print(type(e).__name__, len(str(e)) < 100000)
