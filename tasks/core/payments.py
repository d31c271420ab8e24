"""Tasks on a payment provider. Its customers and charges are the server's own and always start the same."""

from __future__ import annotations

import random
from typing import NamedTuple

from atlas_gym.task.kinds import AnswerNumber, FileCheck, ToolCheck, UnchangedCheck
from atlas_gym.task.setup import Database, Scalar, Setup, Table, TextFile
from atlas_gym.task.template import Draft, template

from .words import csv, program

PAY = "mockworld-payments"
SQL = "mcp-server-sqlite"
FILES = "server-filesystem"


class Charge(NamedTuple):
    """A charge of the seeded world, with the balance of its customer; amounts in cents."""

    code: str
    customer: str
    amount: int
    balance: int


SETTLED = (
    Charge("ch_0EIr6yAMEHt", "cus_j1U5Ehl4EvZ", 37440, 378799),
    Charge("ch_0aGWJfyVJx1", "cus_637BILCqwO2", 31968, 284384),
    Charge("ch_0jnYQ8uixtL", "cus_6eZGv3a0jvQ", 21931, 335246),
    Charge("ch_0tAjEqiHOIY", "cus_2dCyPb2abjM", 22935, 69113),
    Charge("ch_1KeHC5WcbsJ", "cus_jvq5mPLKkXo", 26783, 404659),
    Charge("ch_1V1JFAbXIoy", "cus_lk8aZqsUfr3", 32942, 234114),
    Charge("ch_1XpuRXnOhHR", "cus_fL0pJprxmeD", 33228, 353797),
    Charge("ch_1oBKFn24bcN", "cus_3yaPwqhDYdw", 47539, 377035),
    Charge("ch_1smByRjh1CA", "cus_bvG1wsZuCgo", 6033, 106148),
    Charge("ch_27f7grIMiOu", "cus_ff4eBq9u5W2", 38757, 183815),
)
REFUNDED = (
    Charge("ch_0PACZqmW8cL", "cus_fkPxlvLIgEC", 13696, 480139),
    Charge("ch_0Rs27GbqmV0", "cus_1jVkFC37Mw5", 12824, 215159),
    Charge("ch_2EeIqm7sipp", "cus_6d8e1CXjE7L", 28414, 491107),
    Charge("ch_2J3UtQVTAf8", "cus_kLb4SFs1Zsh", 17006, 247577),
)
HELD = (
    Charge("ch_3ntRoLPEyVX", "cus_k9dP5mY4opK", 6802, 457924),
    Charge("ch_4ZJdq1SQaiu", "cus_b867eP406O0", 4257, 155297),
    Charge("ch_60iyRZNDXtn", "cus_0Su2uybGpSD", 18176, 365094),
    Charge("ch_7nPrOJRANAM", "cus_5Nhetyg3TCf", 15093, 270829),
    Charge("ch_8i7Q0yuemTo", "cus_iaFDCjbraXU", 15249, 452822),
    Charge("ch_apFz4ooSoKI", "cus_dwGmOAp94lK", 10953, 70502),
)


def charge(
    name: str, code: str, expected: dict[str, Scalar], weight: float = 1, *, gate: bool = False
) -> ToolCheck:
    """A charge must look like this afterwards."""
    return ToolCheck(
        name=name,
        weight=weight,
        gate=gate,
        server=PAY,
        tool="get_charge",
        arguments={"charge_id": code},
        expected=dict(expected),
    )


@template(servers=(PAY, SQL), difficulty="medium")
def capture_held(rng: random.Random) -> Draft:
    due, early = rng.sample(HELD, 3), rng.choice([*SETTLED])
    waiting = next(c for c in HELD if c not in due)
    rows = [(c.code, "shipped") for c in (*due, early)] + [(waiting.code, "packing")]
    rng.shuffle(rows)
    total = sum(c.amount for c in due) / 100
    gold = """
        pay, db = MCPServer("mockworld-payments"), MCPServer("mcp-server-sqlite")
        total = 0
        for row in db.read_query(query="SELECT charge FROM orders WHERE status = 'shipped'"):
            found = pay.get_charge(charge_id=row["charge"])
            if found["status"] == "requires_capture":
                total += pay.capture_charge(charge_id=row["charge"])["captured"]
        answer(f"Captured {total / 100:.2f} dollars")
    """
    return Draft(
        prompt=rng.choice(
            (
                "Our SQLite table orders names the charge of every order. Please capture the charges of the "
                "orders that are shipped, as far as they are only authorised so far; leave all other charges "
                "alone. How many dollars were captured in total?",
                "Shipped orders may be charged now: take the charges of shipped orders from the table orders "
                "of the SQLite database and capture, in full, those that still require it. Do not touch the "
                "charges of other orders. What is the captured sum in dollars (not cents)?",
            )
        ),
        gold=program(gold),
        checks=(
            *(
                charge(f"{c.code} is captured", c.code, {"status": "succeeded", "captured": c.amount})
                for c in due
            ),
            AnswerNumber(name="states the dollars", value=total, limit=4),
            charge("a settled charge stays", early.code, {"refunded": 0}, gate=True),
            charge("an order in packing is not charged", waiting.code, {"captured": 0}, gate=True),
            UnchangedCheck(name="the orders", of="query", path="data.db", query="SELECT * FROM orders"),
        ),
        setup=Setup(
            databases=(
                Database(
                    path="data.db",
                    tables=(
                        Table(
                            name="orders",
                            columns=("id INTEGER PRIMARY KEY", "charge TEXT", "status TEXT"),
                            rows=tuple((n, *row) for n, row in enumerate(rows, start=7001)),
                        ),
                    ),
                ),
            )
        ),
        params={"total": total},
    )


@template(servers=(PAY, FILES), difficulty="hard")
def refund_list(rng: random.Random) -> Draft:
    whole = rng.sample(SETTLED, 4)
    parts = {c.code: rng.randint(5, c.amount // 200) * 100 for c in whole[2:]}
    bad = [*rng.sample(REFUNDED, 1), *rng.sample(HELD, 1)]
    rows: list[tuple[object, ...]] = [(c.code, "full") for c in whole[:2]]
    rows += [(code, f"{cents / 100:.2f}") for code, cents in parts.items()]
    rows += [(c.code, "full") for c in bad]
    too_much = next(c for c in SETTLED if c not in whole)
    rows.append((too_much.code, f"{too_much.amount / 100 + 10:.2f}"))
    rng.shuffle(rows)
    failed = [c.code for c in (*bad, too_much)]
    total = (sum(c.amount for c in whole[:2]) + sum(parts.values())) / 100
    gold = """
        fs, pay = MCPServer("server-filesystem"), MCPServer("mockworld-payments")
        text = fs.read_text_file(path="/workspace/refunds.csv")
        text = text["content"] if isinstance(text, dict) else text
        failed, total = [], 0
        for line in text.splitlines()[1:]:
            code, amount = line.split(",")
            try:
                before = pay.get_charge(charge_id=code)["refunded"]
                if amount == "full":
                    done = pay.refund_charge(charge_id=code)
                else:
                    done = pay.refund_charge(charge_id=code, amount=round(float(amount) * 100))
                total += done["refunded"] - before
            except ToolError:
                failed.append(code)
        fs.write_file(path="/workspace/failed.txt", content="\\n".join(failed) + "\\n")
        answer(f"Refunded {total / 100:.2f} dollars; {len(failed)} failed.")
    """
    return Draft(
        prompt=rng.choice(
            (
                "Please work through /workspace/refunds.csv: each line has a charge and the amount in "
                "dollars to refund ('full' means all that is left). If a refund is refused, do not try "
                "another amount; write the charge's id into /workspace/failed.txt, one per line. How "
                "many dollars did you refund in total?",
                "The refunds to make today are listed in /workspace/refunds.csv (charge id, dollars or "
                "'full'). Make them. The ids of charges for which the provider refuses the refund go to "
                "/workspace/failed.txt, one id per line and nothing else. Report the sum of the refunds "
                "in dollars.",
            )
        ),
        gold=program(gold),
        checks=(
            *(charge(f"{c.code} is refunded", c.code, {"refunded": c.amount}) for c in whole[:2]),
            *(
                charge(f"{code} is refunded in part", code, {"refunded": cents})
                for code, cents in parts.items()
            ),
            FileCheck(
                name="refused refunds", weight=2, path="failed.txt", lines=tuple(failed), only_lines=True
            ),
            AnswerNumber(name="states the sum", value=total, limit=6),
            charge("no other amount was tried", too_much.code, {"refunded": 0}, gate=True),
            UnchangedCheck(name="the list", of="file", path="refunds.csv"),
        ),
        setup=Setup(files=(TextFile(path="refunds.csv", text=csv([("charge", "amount"), *rows])),)),
        params={"failed": failed, "total": total},
    )
