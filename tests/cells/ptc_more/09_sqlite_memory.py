import sqlite3
db = sqlite3.connect(":memory:")
db.row_factory = sqlite3.Row
db.execute("create table orders (id text primary key, customer text, amount real, day text)")
shop = MCPServer("Shop")
rows = [(o["order_id"], o["customer"], o["amount"], o["date"]) for p in range(1, 4) for o in shop.list_orders(page=p)["orders"]]
with db:
    db.executemany("insert into orders values (?,?,?,?)", rows)
for r in db.execute("select customer, count(*) n, round(sum(amount),2) s from orders group by 1 having n > 1 order by s desc"):
    print(dict(r))
print(db.execute("select max(day), min(day), typeof(amount) from orders").fetchone()[:])
try:
    with db: db.execute("insert into orders values (?,?,?,?)", rows[0])
except sqlite3.IntegrityError as e:
    print("IntegrityError", e)
db.create_function("vat", 1, lambda x: x * 1.19)
print(db.execute("select round(vat(100), 1)").fetchone()[0], db.total_changes)
db.execute("with recursive n(x) as (select 1 union all select x+1 from n where x<5) select group_concat(x) from n").fetchone()[0]
