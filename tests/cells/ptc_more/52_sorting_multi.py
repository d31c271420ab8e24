rows = MCPServer("Shop").list_orders(page_size=20)["orders"]
print([(r["status"], r["customer"], r["order_id"]) for r in sorted(rows, key=lambda r: (r["status"], -r["amount"]))][:4])
import bisect, functools
print(sorted("bA1a", key=str.lower), sorted([3, 1, 2], reverse=True), sorted({"b": 1, "a": 2}.items(), key=lambda kv: kv[1]), bisect.insort(l := [1, 3], 2), l)
print(sorted(["10", "9", "1"], key=int), sorted([(1, "b"), (1, "a")]), min(rows, key=lambda r: r["amount"])["order_id"], sorted([True, 0, 2.5]))
cmp = functools.cmp_to_key(lambda a, b: (a > b) - (a < b)); print(sorted([2, 3, 1], key=cmp))
try: sorted([1, "a", None])
except TypeError as e: print(e)
rank = {c: i for i, c in enumerate(sorted({r["customer"] for r in rows}), 1)}; rank
