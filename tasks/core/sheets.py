"""Tasks on Excel workbooks."""

from __future__ import annotations

import random

from atlas_gym.task.kinds import AnswerNumber, SqliteCheck, ToolCheck, UnchangedCheck
from atlas_gym.task.setup import Database, Scalar, Setup, Sheet, Table, Workbook
from atlas_gym.task.template import Draft, template

from .words import people, program

EXCEL = "excel-mcp-server"
SQL = "mcp-server-sqlite"


@template(servers=(EXCEL,), difficulty="medium")
def budget_totals(rng: random.Random) -> Draft:
    teams = rng.sample(
        ("Sales", "Support", "Research", "Legal", "Design", "Finance", "Field"), rng.randint(4, 6)
    )
    spent = {team: [rng.randint(80, 990) * 10 for _ in range(4)] for team in teams}
    last = len(spent) + 1
    columns = [sum(quarter) for quarter in zip(*spent.values(), strict=True)]
    grand = sum(columns)
    rows: list[tuple[Scalar, ...]] = [(team, *quarters) for team, quarters in spent.items()]
    per_team: list[list[Scalar]] = [["Total"]]
    per_team += [[sum(quarters)] for quarters in spent.values()]
    gold = """
        xl = MCPServer("excel-mcp-server")
        path, sheet = "/workspace/budget.xlsx", "Budget"
        rows = xl.read_range(path=path, sheet=sheet)["values"]
        last = len(rows)
        xl.write_range(path=path, sheet=sheet, at="F1", rows=[["Total"]] + [
            [f"=SUM(B{k}:E{k})"] for k in range(2, last + 1)
        ])
        xl.write_range(path=path, sheet=sheet, at=f"A{last + 1}", rows=[
            ["All"] + [f"=SUM({c}2:{c}{last})" for c in "BCDEF"]
        ])
        done = xl.read_range(path=path, sheet=sheet, range=f"F{last + 1}:F{last + 1}")
        answer(f"The grand total is {done['values'][0][0]}")
    """

    def shown(name: str, cells: str, values: list[list[Scalar]], weight: float) -> ToolCheck:
        return ToolCheck(
            name=name,
            weight=weight,
            server=EXCEL,
            tool="read_range",
            arguments={"path": "/workspace/budget.xlsx", "sheet": "Budget", "range": cells},
            expected={"values": values},  # type: ignore[dict-item]
        )

    return Draft(
        prompt=rng.choice(
            (
                "Please complete /workspace/budget.xlsx, sheet Budget: put the yearly total of each team "
                "into column F (header: Total), and add a row under the last team with the label All "
                "that sums every column, F included. What is the grand total?",
                "The sheet Budget in /workspace/budget.xlsx has four quarters per team. Add a Total "
                "column (F) with each team's sum, then one more row called All, right below the last "
                "team, with the sum of each column B to F. Tell me the grand total when you are done.",
            )
        ),
        gold=program(gold),
        checks=(
            shown("totals per team", f"F1:F{last}", per_team, 2),
            shown("row of sums", f"A{last + 1}:F{last + 1}", [["All", *columns, grand]], 2),
            AnswerNumber(name="states the grand total", value=grand, limit=3),
            UnchangedCheck(
                name="the given numbers",
                of="sheet",
                path="budget.xlsx",
                sheet="Budget",
                except_for=(*(f"F{k}" for k in range(1, last + 2)), *(f"{c}{last + 1}" for c in "ABCDE")),
            ),
        ),
        setup=Setup(
            workbooks=(
                Workbook(
                    path="budget.xlsx",
                    sheets=(
                        Sheet(
                            name="Budget",
                            rows=(
                                ("Team", "Q1", "Q2", "Q3", "Q4"),
                                *rows,
                            ),
                        ),
                    ),
                ),
            )
        ),
        params={"grand": grand},
    )


@template(servers=(EXCEL, SQL), difficulty="hard")
def import_signups(rng: random.Random) -> Draft:
    names = people(rng, 9)
    sizes = ("S", "M", "L")
    known = [(1, names[0], "M"), (2, names[1], "S")]
    sheet: list[tuple[Scalar, ...]] = []
    wanted = {name: size for _, name, size in known}
    unpaid = rng.sample(range(2, 9), rng.randint(2, 4))
    for number, name in enumerate(names[1:], start=1):
        size = rng.choice(sizes)
        paid = "no" if number in unpaid else "yes"
        sheet.append((f" {name}  " if number % 3 == 1 else name, size.lower() if number % 2 else size, paid))
        if paid == "yes":
            wanted[name] = size
    rng.shuffle(sheet)
    new = sorted(set(wanted) - {known[0][1], known[1][1]})
    gold = """
        xl, db = MCPServer("excel-mcp-server"), MCPServer("mcp-server-sqlite")
        rows = xl.read_range(path="/workspace/signups.xlsx", sheet="Form")["values"][1:]
        known = {r["name"] for r in db.read_query(query="SELECT name FROM runners")}
        added = 0
        for name, size, paid in rows:
            name, size = " ".join(name.split()), size.strip().upper()
            if paid != "yes":
                continue
            if name in known:
                db.write_query(query=f"UPDATE runners SET shirt = '{size}' WHERE name = '{name}'")
            else:
                db.write_query(query=f"INSERT INTO runners (name, shirt) VALUES ('{name}', '{size}')")
                added += 1
        answer(f"{added} new runners")
    """
    return Draft(
        prompt=rng.choice(
            (
                "New sign-ups for the run are in /workspace/signups.xlsx (sheet Form). Bring them into "
                "the table runners of the SQLite database: only those who have paid, names without extra "
                "spaces, shirt sizes in capitals. If a runner is in the table already, just update the "
                "shirt size. How many runners are new?",
                "Please load /workspace/signups.xlsx, sheet Form, into our SQLite table runners. Skip "
                "everyone who has not paid. Trim the names and write the shirt size in upper case. A "
                "runner who is in the table already keeps the row and only gets the size from the form. "
                "Tell me how many new rows there are.",
            )
        ),
        gold=program(gold),
        checks=(
            SqliteCheck(
                name="runners and sizes",
                weight=4,
                path="data.db",
                query="SELECT name, shirt, name = trim(name) AND shirt = upper(shirt) FROM runners",
                rows=tuple((name, size, 1) for name, size in wanted.items()),
            ),
            AnswerNumber(name="states the new runners", value=len(new), limit=2),
            SqliteCheck(
                name="rows that were there keep their id",
                gate=True,
                path="data.db",
                query="SELECT id, name FROM runners WHERE id <= 2",
                rows=tuple(row[:2] for row in known),
            ),
            UnchangedCheck(name="the form", of="sheet", path="signups.xlsx", sheet="Form"),
        ),
        setup=Setup(
            workbooks=(
                Workbook(
                    path="signups.xlsx",
                    sheets=(Sheet(name="Form", rows=(("Name", "Shirt", "Paid"), *sheet)),),
                ),
            ),
            databases=(
                Database(
                    path="data.db",
                    tables=(
                        Table(
                            name="runners",
                            columns=("id INTEGER PRIMARY KEY", "name TEXT UNIQUE", "shirt TEXT"),
                            rows=tuple(known),
                        ),
                    ),
                ),
            ),
        ),
        params={"new": len(new)},
    )
