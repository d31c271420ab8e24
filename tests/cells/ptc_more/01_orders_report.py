import json, statistics
from collections import defaultdict
shop = MCPServer("Shop")
orders, page = [], 1
while True:
    r = shop.list_orders(page=page, page_size=4)
    orders.extend(r["orders"])
    if not r["has_more"]:
        break
    page += 1
by = defaultdict(list)
for o in orders:
    by[o["customer"]].append(o["amount"])
print(f"{'customer':<10}|{'n':>3}|{'mean':>10}|{'median':>10}")
for c, a in sorted(by.items(), key=lambda kv: (-sum(kv[1]), kv[0])):
    print(f"{c:<10}|{len(a):>3}|{statistics.fmean(a):>10.2f}|{statistics.median(a):>10.2f}")
json.dumps({k: round(sum(v), 2) for k, v in by.items()}, indent=2, sort_keys=True)
