shop = MCPServer("Shop")
r = shop.list_orders()
try: r[0]
except KeyError as e: print("KeyError", e)
try: r.orders
except AttributeError as e: print(e)
print([o["order_id"] for o in r["orders"]][:2])
r["items"]
# %%
shop.list_orders()[0]["order_id"]
# %%
for o in shop.list_orders(): print(o["order_id"])
# %%
MCPServer("Calendar").list_events()["events"]
# %%
MCPServer("Calendar").list_events()[5]
# %%
import json
json.loads(shop.list_orders())
# %%
json.loads(MCPServer("Search").fetch(url="x"))["data"]["score"] if isinstance(MCPServer("Search").fetch("x"), str) else MCPServer("Search").fetch("x")["data"]["score"]
# %%
r["orders"][0]["amount"] + "€"
# %%
len(MCPServer("Math").add(1, 2))
