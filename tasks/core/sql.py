"""Tasks on one SQLite database."""

from __future__ import annotations

import random

from atlas_gym.task.kinds import AnswerNumber, AnswerText, SqliteCheck, UnchangedCheck
from atlas_gym.task.setup import Database, Setup, Table
from atlas_gym.task.template import Draft, template

from .words import CITIES, mailbox, money, people, program

SQL = "mcp-server-sqlite"


@template(servers=(SQL,), difficulty="easy")
def top_customer(rng: random.Random) -> Draft:
    names = people(rng, 8)
    year = rng.choice((2022, 2023, 2024))
    orders = []
    totals = dict.fromkeys(names, 0)
    for number in range(1, 61):
        who = rng.randrange(len(names))
        day = f"{rng.choice((year - 1, year, year, year))}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        cents = rng.randint(1500, 60000)
        status = rng.choice(("paid", "paid", "paid", "cancelled"))
        orders.append((number, who + 1, day, cents / 100, status))
        if status == "paid" and day.startswith(str(year)):
            totals[names[who]] += cents
    best = max(totals, key=lambda name: totals[name])
    assert list(totals.values()).count(totals[best]) == 1
    ask = rng.choice(
        (
            f"Which customer brought in the most money in {year}, and how much was it? "
            "Orders that were cancelled do not count.",
            f"I need our best customer of {year} by revenue, leaving out cancelled orders. Give me the "
            "name and the amount.",
        )
    )
    gold = """
        db = MCPServer("mcp-server-sqlite")
        rows = db.read_query(query=(
            "SELECT c.name, ROUND(SUM(o.amount), 2) AS total "
            "FROM orders o JOIN customers c ON c.id = o.customer_id "
            "WHERE o.status <> 'cancelled' AND o.placed_on LIKE '$year-%' "
            "GROUP BY c.id ORDER BY total DESC LIMIT 1"
        ))
        answer(f"{rows[0]['name']} with {rows[0]['total']}")
    """
    return Draft(
        prompt=f"{ask} The data is in our SQLite database (tables customers and orders).",
        gold=program(gold, year=year),
        checks=(
            AnswerText(
                name="names the best customer", all_of=(best,), options=tuple(n for n in names if n != best)
            ),
            AnswerNumber(name="states the revenue", value=totals[best] / 100, limit=3),
        ),
        setup=Setup(
            databases=(
                Database(
                    path="data.db",
                    tables=(
                        Table(
                            name="customers",
                            columns=("id INTEGER PRIMARY KEY", "name TEXT", "city TEXT"),
                            rows=tuple((i, n, rng.choice(CITIES)) for i, n in enumerate(names, start=1)),
                        ),
                        Table(
                            name="orders",
                            columns=(
                                "id INTEGER PRIMARY KEY",
                                "customer_id INTEGER",
                                "placed_on TEXT",
                                "amount REAL",
                                "status TEXT",
                            ),
                            rows=tuple(orders),
                        ),
                    ),
                ),
            )
        ),
        params={"year": year, "best": best},
    )


@template(servers=(SQL,), difficulty="medium")
def restock(rng: random.Random) -> Draft:
    suppliers = rng.sample(("Northwind", "Halden", "Brightline", "Tessera", "Orlo"), 3)
    goods = (
        "bolt",
        "hinge",
        "bracket",
        "valve",
        "gasket",
        "washer",
        "spring",
        "clamp",
        "rivet",
        "dowel",
        "latch",
        "pin",
    )
    rows = []
    for number, good in enumerate(rng.sample(goods, 12)):
        minimum = rng.randint(20, 80)
        low = rng.random() < 0.55 or number < 3
        stock = rng.randint(3, minimum - 1) if low else rng.randint(minimum, minimum + 60)
        rows.append((f"P-{100 + number}", good, stock, minimum, suppliers[number % 3], 0))
    wanted = suppliers[0]
    short = {r[0]: 2 * r[3] - r[2] for r in rows if r[4] == wanted and r[2] < r[3]}
    total = sum(short.values())
    ask = rng.choice(
        (
            f"Please prepare the order for our supplier {wanted}: for each of their products whose stock "
            "is below its minimum, set on_order to what brings the stock up to twice the minimum.",
            f"{wanted} delivers next week. Every {wanted} product that has fallen under its minimum stock "
            "should get an on_order value that lifts it to two times the minimum.",
        )
    )
    gold = """
        db = MCPServer("mcp-server-sqlite")
        where = "supplier = $wanted AND stock < minimum"
        db.write_query(query="UPDATE products SET on_order = 2 * minimum - stock WHERE " + where)
        total = db.read_query(query="SELECT SUM(on_order) AS total FROM products WHERE " + where)[0]["total"]
        answer(f"Ordered {total} units.")
    """
    codes = ", ".join(f"'{sku}'" for sku in short)
    return Draft(
        prompt=f"{ask} Leave all other products alone. It is the table products of the SQLite database. "
        "Then tell me how many units that is in total.",
        gold=program(gold, wanted=wanted),
        checks=(
            SqliteCheck(
                name="on_order of the short products",
                weight=3,
                path="data.db",
                query=f"SELECT sku, on_order FROM products WHERE sku IN ({codes})",
                rows=tuple(short.items()),
            ),
            AnswerNumber(name="states the units", value=total, limit=3),
            UnchangedCheck(
                name="other products",
                of="query",
                path="data.db",
                query=f"SELECT sku, on_order FROM products WHERE sku NOT IN ({codes})",
            ),
            UnchangedCheck(
                name="other columns",
                of="query",
                path="data.db",
                query="SELECT sku, name, stock, minimum, supplier FROM products",
            ),
        ),
        setup=Setup(
            databases=(
                Database(
                    path="data.db",
                    tables=(
                        Table(
                            name="products",
                            columns=(
                                "sku TEXT PRIMARY KEY",
                                "name TEXT",
                                "stock INTEGER",
                                "minimum INTEGER",
                                "supplier TEXT",
                                "on_order INTEGER",
                            ),
                            rows=tuple(rows),
                        ),
                    ),
                ),
            )
        ),
        params={"supplier": wanted, "total": total},
    )


@template(servers=(SQL,), difficulty="hard", split="test")
def merge_duplicates(rng: random.Random) -> Draft:
    names = people(rng, 9)
    rows = [(i, n, mailbox(n), rng.choice(CITIES)) for i, n in enumerate(names, start=1)]
    twins = rng.sample(range(9), 3)
    keeper = {i: i for i in range(1, 10)}
    for number, twin in enumerate(twins, start=10):
        first, last = names[twin].split()
        mail = mailbox(names[twin]).title() if number % 2 else mailbox(names[twin]).upper()
        rows.append((number, f"{first[0]}. {last}", mail, rng.choice(CITIES)))
        keeper[number] = twin + 1
    orders = [(100 + k, rng.randint(1, 12), money(rng, 10, 300)) for k in range(24)]
    orders += [(200 + k, 10 + k, money(rng, 10, 300)) for k in range(3)]
    moved = sum(1 for order in orders if order[1] > 9)
    gold = """
        db = MCPServer("mcp-server-sqlite")
        rows = db.read_query(query="SELECT id, email FROM customers ORDER BY id")
        keep, moved = {}, 0
        for row in rows:
            first = keep.setdefault(row["email"].lower(), row["id"])
            if first != row["id"]:
                twin = row["id"]
                done = db.write_query(
                    query=f"UPDATE orders SET customer_id = {first} WHERE customer_id = {twin}"
                )
                moved += done[0]["affected_rows"]
                db.write_query(query=f"DELETE FROM customers WHERE id = {twin}")
        answer(f"Moved {moved} orders.")
    """
    return Draft(
        prompt=rng.choice(
            (
                "Some of our customers are in the database twice: same e-mail address, only written in "
                "another letter case. Please merge them: keep the record with the lowest id as it is, "
                "point the orders of the others to it, and delete the others. Nothing else should change.",
                "Clean up the customers table for me. Two records with the same e-mail (ignoring upper "
                "and lower case) are the same person: the one with the smallest id stays untouched, the "
                "orders of the other move to it, then the other record goes. Keep everything else as it "
                "is.",
            )
        )
        + " How many orders had to move? (SQLite database, tables customers and orders.)",
        gold=program(gold),
        checks=(
            SqliteCheck(
                name="customers are merged",
                weight=2,
                path="data.db",
                query="SELECT id, name, email FROM customers",
                rows=tuple(row[:3] for row in rows[:9]),
            ),
            SqliteCheck(
                name="orders point to the kept records",
                weight=2,
                path="data.db",
                query="SELECT id, customer_id FROM orders",
                rows=tuple((o[0], keeper[o[1]]) for o in orders),
            ),
            AnswerNumber(name="states the moved orders", value=moved, limit=3),
            UnchangedCheck(
                name="amounts of the orders",
                of="query",
                path="data.db",
                query="SELECT id, amount FROM orders",
            ),
        ),
        setup=Setup(
            databases=(
                Database(
                    path="data.db",
                    tables=(
                        Table(
                            name="customers",
                            columns=("id INTEGER PRIMARY KEY", "name TEXT", "email TEXT", "city TEXT"),
                            rows=tuple(rows),
                        ),
                        Table(
                            name="orders",
                            columns=("id INTEGER PRIMARY KEY", "customer_id INTEGER", "amount REAL"),
                            rows=tuple(orders),
                        ),
                    ),
                ),
            )
        ),
        params={"moved": moved},
    )
