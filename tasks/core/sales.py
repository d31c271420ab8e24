"""Tasks on a small company's contacts, deals, stock and orders."""

from __future__ import annotations

import random
from dataclasses import dataclass

from atlas_gym.task.kinds import AnswerNumber, AnswerText, CalledCheck, SqliteCheck, UnchangedCheck
from atlas_gym.task.setup import Database, Scalar, Setup, Table
from atlas_gym.task.template import Draft, template

from .words import CITIES, mailbox, people, program

OPS = "finamatik-ops-mcp"
DB = "ops.db"
STAGES = ("new", "qualified", "proposal", "negotiation", "won", "lost")
GOODS = (
    ("Ceiling fan", "Coolhaus"),
    ("Air filter", "Coolhaus"),
    ("Copper pipe", "Metalink"),
    ("Water pump", "Metalink"),
    ("Thermostat", "Voltara"),
    ("Cable drum", "Voltara"),
    ("Drain cleaner", "Purecare"),
    ("Floor wax", "Purecare"),
)
COMPANIES = (
    "Harbour Hotel",
    "Linden Clinic",
    "Granite Works",
    "Sunrise Bakery",
    "Atlas Gym Club",
    "Velo Depot",
)
COLUMNS = {
    "contacts": "id TEXT PRIMARY KEY, name TEXT, company TEXT, email TEXT, phone TEXT, city TEXT, "
    "owner TEXT, tags TEXT, created_at TEXT",
    "deals": "id TEXT PRIMARY KEY, contact_id TEXT, title TEXT, stage TEXT, value_aed REAL, "
    "expected_close TEXT, updated_at TEXT",
    "tasks": "id TEXT PRIMARY KEY, contact_id TEXT, title TEXT, due_date TEXT, assignee TEXT, status TEXT, "
    "created_at TEXT, completed_at TEXT",
    "notes": "id TEXT PRIMARY KEY, contact_id TEXT, text TEXT, author TEXT, created_at TEXT",
    "inventory": "sku TEXT PRIMARY KEY, name TEXT, qty INTEGER, reorder_level INTEGER, unit_price_aed REAL, "
    "supplier TEXT",
    "orders": "id TEXT PRIMARY KEY, contact_id TEXT, sku TEXT, qty INTEGER, total_aed REAL, status TEXT, "
    "created_at TEXT",
}
STAMP = "2025-01-10T09:00:00Z"


@dataclass(frozen=True)
class Company:
    """A drawn company: rows of its tables."""

    contacts: list[tuple[Scalar, ...]]
    deals: list[tuple[Scalar, ...]]
    tasks: list[tuple[Scalar, ...]]
    inventory: list[tuple[Scalar, ...]]

    def setup(self) -> Setup:
        """The database as the server keeps it."""
        rows = {
            "contacts": self.contacts,
            "deals": self.deals,
            "tasks": self.tasks,
            "inventory": self.inventory,
        }
        tables = tuple(
            Table(name=name, columns=tuple(columns.split(", ")), rows=tuple(rows.get(name, ())))
            for name, columns in COLUMNS.items()
        )
        return Setup(databases=(Database(path=DB, server=OPS, tables=tables),))


def company(rng: random.Random) -> Company:
    """Draw contacts, deals, tasks and stock."""
    contacts: list[tuple[Scalar, ...]] = []
    for number, name in enumerate(people(rng, 14)):
        where, phone = COMPANIES[number % len(COMPANIES)], f"+3519{rng.randint(10000000, 99999999)}"
        city, owner = rng.choice(CITIES), rng.choice(("hamza", "sana", "ali"))
        mail = mailbox(name, "example.com")
        contacts.append((f"C-{1001 + number}", name, where, mail, phone, city, owner, "[]", "2024-11-05"))
    deals: list[tuple[Scalar, ...]] = []
    for number in range(20):
        stage = STAGES[2] if number % 3 == 0 else rng.choice(STAGES)
        contact = contacts[rng.randrange(14)][0]
        title = rng.choice(("Yearly service", "Refit", "New branch", "Spare parts", "Inspection"))
        deals.append(
            (
                f"D-{2001 + number}",
                contact,
                title,
                stage,
                float(rng.randint(8, 90) * 500),
                "2025-06-30",
                STAMP,
            )
        )
    tasks: list[tuple[Scalar, ...]] = []
    for number in range(16):
        due = f"2025-0{rng.randint(2, 6)}-{rng.randint(1, 28):02d}"
        title = rng.choice(
            ("Send the quote", "Confirm the visit", "Chase the invoice", "Collect the contract")
        )
        contact = contacts[rng.randrange(14)][0]
        tasks.append(
            (
                f"T-{3001 + number}",
                contact,
                title,
                due,
                rng.choice(("hamza", "sana", "ali")),
                "open",
                STAMP,
                None,
            )
        )
    inventory: list[tuple[Scalar, ...]] = []
    for number, (good, supplier) in enumerate(GOODS):
        level = rng.randint(5, 15)
        stock = rng.randint(1, level) if number % 2 else rng.randint(level + 20, level + 60)
        sku = f"{good.split()[0][:4].upper()}-{rng.randint(100, 999)}"
        inventory.append((sku, good, stock, level, rng.randint(20, 900) / 2, supplier))
    return Company(contacts, deals, tasks, inventory)


@template(servers=(OPS,), difficulty="medium")
def advance_deals(rng: random.Random) -> Draft:
    drawn = company(rng)
    name = rng.choice(COMPANIES)
    staff = {c[0] for c in drawn.contacts if c[2] == name}
    drawn.deals.append(
        (
            f"D-{2001 + len(drawn.deals)}",
            min(map(str, staff)),
            "Refit",
            "proposal",
            21500.0,
            "2025-06-30",
            STAMP,
        )
    )
    moving = [d for d in drawn.deals if d[1] in staff and d[3] == "proposal"]
    total = sum(float(d[4] or 0) for d in moving)
    ids = ", ".join(f"'{d[0]}'" for d in moving)
    gold = """
        ops = MCPServer("finamatik-ops-mcp")
        people = ops.search_contacts(query=$name, limit=50)
        people = people if isinstance(people, list) else [people]
        total = 0
        for person in people:
            for deal in ops.get_contact(contact_id=person["id"])["deals"]:
                if deal["stage"] == "proposal":
                    ops.update_deal_stage(deal_id=deal["id"], stage="negotiation")
                    total += deal["value_aed"]
        answer(f"Moved deals worth {total} AED.")
    """
    return Draft(
        prompt=rng.choice(
            (
                f"{name} wants to negotiate. Please move all deals of all their contacts that are in the "
                "proposal stage to negotiation, leave their other deals as they are, and tell me what "
                "the moved deals are worth together.",
                f"Every deal of {name} that stands at proposal goes to negotiation now, whoever the "
                "contact there is. Do that in the CRM and give me the total value of the deals that "
                "moved.",
            )
        ),
        gold=program(gold, name=name),
        checks=(
            SqliteCheck(
                name="the deals are in negotiation",
                weight=3,
                path=DB,
                server=OPS,
                query=f"SELECT id, stage FROM deals WHERE id IN ({ids})",
                rows=tuple((d[0], "negotiation") for d in moving),
            ),
            AnswerNumber(name="states the value", value=total, limit=4),
            UnchangedCheck(
                name="other deals",
                of="query",
                path=DB,
                server=OPS,
                query=f"SELECT id, stage FROM deals WHERE id NOT IN ({ids})",
            ),
        ),
        setup=drawn.setup(),
        params={"company": name, "deals": len(moving)},
    )


@template(servers=(OPS,), difficulty="medium")
def place_order(rng: random.Random) -> Draft:
    drawn = company(rng)
    person = rng.choice(drawn.contacts)
    item = rng.choice([i for i in drawn.inventory if int(i[2] or 0) > 15])
    quantity = rng.randint(3, 12)
    total = round(float(item[4] or 0) * quantity, 2)
    note = f"Ordered {quantity} x {item[1]} by phone"
    gold = """
        ops = MCPServer("finamatik-ops-mcp")
        people = ops.search_contacts(query=$person)
        contact = (people if isinstance(people, list) else [people])[0]["id"]
        sku = next(i["sku"] for i in ops.check_inventory() if i["name"] == $item)
        ops.create_order(contact_id=contact, sku=sku, qty=$quantity)
        done = ops.create_order(contact_id=contact, sku=sku, qty=$quantity, dry_run=False)
        ops.add_note(contact_id=contact, text=$note)
        answer(f"Ordered for {done['total_aed']} AED")
    """
    return Draft(
        prompt=rng.choice(
            (
                f"{person[1]} just called and ordered {quantity} pieces of '{item[1]}'. Please place the "
                f'order for real (I confirm it), put the note "{note}" on the contact, and tell me the '
                "total price.",
                f"Place a confirmed order of {quantity} '{item[1]}' for {person[1]}, then add this note "
                f'to the contact: "{note}". What does the order cost in total?',
            )
        ),
        gold=program(gold, person=person[1], item=item[1], quantity=quantity, note=note),
        checks=(
            SqliteCheck(
                name="the order",
                weight=3,
                path=DB,
                server=OPS,
                query="SELECT contact_id, sku, qty, total_aed FROM orders",
                rows=((person[0], item[0], quantity, total),),
            ),
            SqliteCheck(
                name="the note",
                path=DB,
                server=OPS,
                query="SELECT contact_id, rtrim(text, '.') FROM notes",
                rows=((person[0], note),),
            ),
            AnswerNumber(name="states the price", value=total, limit=4),
            UnchangedCheck(
                name="stock of other goods",
                of="query",
                path=DB,
                server=OPS,
                query=f"SELECT sku, qty FROM inventory WHERE sku <> '{item[0]}'",
            ),
        ),
        setup=drawn.setup(),
        params={"sku": item[0], "total": total},
    )


@template(servers=(OPS,), difficulty="easy", split="test")
def order_too_large(rng: random.Random) -> Draft:
    drawn = company(rng)
    person = rng.choice(drawn.contacts)
    item = rng.choice([i for i in drawn.inventory if int(i[2] or 0) <= 15])
    left = int(item[2] or 0)
    quantity = left + rng.randint(21, 60)
    gold = """
        ops = MCPServer("finamatik-ops-mcp")
        people = ops.search_contacts(query=$person)
        contact = (people if isinstance(people, list) else [people])[0]["id"]
        item = next(i for i in ops.check_inventory() if i["name"] == $item)
        try:
            ops.create_order(contact_id=contact, sku=item["sku"], qty=$quantity)
            answer("It can be ordered.")
        except ToolError:
            answer(f"This cannot be ordered: only {item['qty']} are left; {item['supplier']} supplies it.")
    """
    return Draft(
        prompt=rng.choice(
            (
                f"Please order {quantity} pieces of '{item[1]}' for {person[1]}. If we do not have that "
                "many, order nothing at all; tell me how many we have and which supplier to call.",
                f"{person[1]} needs {quantity} '{item[1]}'. Place the order, but only if the whole "
                "quantity is in stock. Otherwise leave it, and say how many are left and who supplies "
                "them.",
            )
        ),
        gold=program(gold, person=person[1], item=item[1], quantity=quantity),
        checks=(
            CalledCheck(
                name="looked at the stock",
                server=OPS,
                tools=("check_inventory", "create_order"),
                mentions=(str(item[0]),),
                outcomes=("ok", "tool_error"),
            ),
            AnswerNumber(name="says what is left", gate=True, value=left, limit=3),
            AnswerText(
                name="names the supplier",
                gate=True,
                all_of=(str(item[5]),),
                options=tuple(sorted({s for _, s in GOODS} - {str(item[5])})),
            ),
            UnchangedCheck(name="orders", of="query", path=DB, server=OPS, query="SELECT * FROM orders"),
            UnchangedCheck(
                name="stock", of="query", path=DB, server=OPS, query="SELECT sku, qty FROM inventory"
            ),
        ),
        setup=drawn.setup(),
        params={"sku": item[0], "left": left},
        impossible=True,
    )
