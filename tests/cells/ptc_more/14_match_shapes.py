def kind(v):
    match v:
        case {"orders": [first, *rest], "has_more": bool(more)}: return f"page of {1 + len(rest)}, more={more}"
        case {"city": str(c), **other}: return f"city {c} with {sorted(other)}"
        case [] | (): return "empty"
        case [int() | float(), *_] as nums if sum(nums) > 5: return f"big {nums}"
        case str() | bytes(): return "text"
        case None: return "none"
        case object(real=r, imag=i): return f"complex {r} {i}"
        case _: return "other"
for v in (MCPServer("Shop").list_orders(), MCPServer("Weather").get_forecast("Rome", 1), [], [3, 4], "s", None, 3+4j, MCPServer("Calendar").list_events()):
    print(kind(v))
