"""Tasks on one double-entry ledger."""

from __future__ import annotations

import random

from atlas_gym.task.kinds import AnswerNumber, AnswerText, FileCheck, ToolCheck
from atlas_gym.task.setup import Setup, TextFile
from atlas_gym.task.template import Draft, template

from .words import FIRST, program

BOOKS = "beancount-mcp"
PLACES = {
    "Expenses:Food:Groceries": ("Green Basket", "Corner Market"),
    "Expenses:Food:Restaurants": ("Casa Lume", "Noodle Bar"),
    "Expenses:Transport": ("City Transit", "Taxi Blue"),
    "Expenses:Utilities": ("Hydro Power", "Nordnet"),
    "Expenses:Books": ("Paper Moon", "Old Shelf"),
}
MONTHS = ("January", "February", "March", "April", "May", "June")


def opening(year: int) -> str:
    """The head of a ledger: its currency and its accounts."""
    accounts = ("Assets:Bank:Checking", "Liabilities:Card", "Income:Salary", "Equity:Opening", *PLACES)
    return 'option "operating_currency" "EUR"\n\n' + "".join(
        f"{year}-01-01 open {account} EUR\n" for account in accounts
    )


def entry(day: str, payee: str, text: str, account: str, cents: int, source: str) -> str:
    """One transaction of two legs."""
    return f'\n{day} * "{payee}" "{text}"\n  {account}  {cents / 100:.2f} EUR\n  {source}\n'


def year_of_spending(rng: random.Random, year: int) -> tuple[str, dict[tuple[str, int], int]]:
    """A ledger of six months, and the cents per (account, month)."""
    text = opening(year)
    spent: dict[tuple[str, int], int] = {}
    for month in range(1, 7):
        text += entry(
            f"{year}-{month:02d}-01", "Atelier", "Salary", "Assets:Bank:Checking", 310000, "Income:Salary"
        )
        for account, payees in PLACES.items():
            for _ in range(rng.randint(1, 3)):
                cents = rng.randint(450, 14000)
                day = f"{year}-{month:02d}-{rng.randint(2, 28):02d}"
                source = rng.choice(("Assets:Bank:Checking", "Liabilities:Card"))
                text += entry(day, rng.choice(payees), "Purchase", account, cents, source)
                spent[account, month] = spent.get((account, month), 0) + cents
    return text, spent


@template(servers=(BOOKS,), difficulty="easy")
def ledger_spent(rng: random.Random) -> Draft:
    year = rng.choice((2022, 2023, 2024))
    text, spent = year_of_spending(rng, year)
    account = rng.choice([a for a in PLACES if a.count(":") == 1])
    topic = account.rsplit(":", 1)[1].lower()
    months = {m: spent[account, m] for m in range(1, 7)}
    most = max(months, key=lambda m: months[m])
    total = sum(months.values())
    gold = """
        import json
        books = MCPServer("beancount-mcp")
        found = books.beancount_query(query=(
            "SELECT month, sum(number) WHERE account = $account AND year = $year GROUP BY month"
        ))
        found = json.loads(found) if isinstance(found, str) else found
        months = {int(month): float(amount) for month, amount in found["rows"]}
        names = ["January", "February", "March", "April", "May", "June"]
        top = max(months, key=months.get)
        answer(f"{sum(months.values()):.2f} EUR in all, most of it in {names[top - 1]}")
    """
    return Draft(
        prompt=rng.choice(
            (
                f"How much did I spend on {topic} in the first half of {year}, and in which month was it "
                "the most?",
                f"From my ledger: what did {topic} cost me altogether in the first six months of {year}? "
                "Also name the most expensive month.",
            )
        ),
        gold=program(gold, account=account, year=year),
        checks=(
            AnswerNumber(name="states the total", weight=2, value=total / 100, limit=4),
            AnswerText(
                name="names the month",
                all_of=(MONTHS[most - 1],),
                options=tuple(m for k, m in enumerate(MONTHS, start=1) if k != most),
            ),
        ),
        setup=Setup(files=(TextFile(path="main.bean", text=text),)),
        params={"account": account, "year": year},
    )


@template(servers=(BOOKS,), difficulty="medium")
def split_bill(rng: random.Random) -> Draft:
    year = rng.choice((2022, 2023, 2024))
    text, spent = year_of_spending(rng, year)
    friend = rng.choice(FIRST)
    payee = rng.choice(("Trattoria Sole", "Harbour Grill", "Le Petit Four"))
    day = f"{year}-06-{rng.randint(20, 28)}"
    mine, theirs = rng.randint(1800, 4200), rng.randint(1500, 3900)
    owed = f"Assets:Receivable:{friend}"
    before = sum(cents for (account, _), cents in spent.items() if account == "Expenses:Food:Restaurants")
    gold = """
        books = MCPServer("beancount-mcp")
        books.beancount_submit_transaction(transaction=(
            $day + " open " + $owed + " EUR\\n\\n"
            + $day + ' * "' + $payee + '" "Dinner"\\n'
            + "  Expenses:Food:Restaurants  " + $mine + " EUR\\n"
            + "  " + $owed + "  " + $theirs + " EUR\\n"
            + "  Liabilities:Card\\n"
        ))
        query = "SELECT account, sum(number) WHERE payee = '" + $payee + "' GROUP BY account"
        books.beancount_query(query=query)
        answer("The dinner is booked.")
    """

    def total(name: str, weight: float, where: str, cents: int) -> ToolCheck:
        return ToolCheck(
            name=name,
            weight=weight,
            server=BOOKS,
            tool="beancount_query",
            arguments={"query": f"SELECT sum(number) WHERE {where}"},
            expected={"rows[0][0]": cents / 100},
            # An amount that is left out is rounded to the decimals that the others are written with.
            tolerance=0.051,
        )

    at = f"payee = '{payee}' AND date = {day}"
    return Draft(
        prompt=rng.choice(
            (
                f"Please book a dinner at {payee} on {day}. I paid it with my card (Liabilities:Card). "
                f"{mine / 100:.2f} EUR of it were mine and belong to restaurants; the other "
                f"{theirs / 100:.2f} EUR {friend} owes me. Use the account {owed} for that; it does not "
                "exist yet, so open it on that day.",
                f"On {day} {friend} and I ate at {payee}: {mine / 100:.2f} EUR for me, {theirs / 100:.2f} "
                f"EUR for {friend}, all on my card (Liabilities:Card). Add it to the ledger as one "
                f"transaction with {payee} as the payee: my part as a restaurant expense, {friend}'s part "
                f"as money owed to me in {owed} (a new account, opened the same day).",
            )
        ),
        gold=program(
            gold, day=day, owed=owed, payee=payee, mine=f"{mine / 100:.2f}", theirs=f"{theirs / 100:.2f}"
        ),
        checks=(
            total("my part", 1, f"account = 'Expenses:Food:Restaurants' AND {at}", mine),
            total("the friend's part", 1, f"account = '{owed}' AND {at}", theirs),
            total("the card paid it", 1, f"account = 'Liabilities:Card' AND {at}", -mine - theirs),
            total("all restaurants", 0.5, "account = 'Expenses:Food:Restaurants'", before + mine),
            FileCheck(
                name="account is opened", weight=0.5, path="main.bean", contains=(f"{day} open {owed}",)
            ),
            FileCheck(
                name="earlier entries are untouched", gate=True, path="main.bean", contains=(text.strip(),)
            ),
        ),
        setup=Setup(files=(TextFile(path="main.bean", text=text),)),
        params={"payee": payee, "day": day},
    )
