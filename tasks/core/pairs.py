"""Tasks that need two servers that have nothing to do with each other."""

from __future__ import annotations

import json
import random

from atlas_gym.task.kinds import AnswerNumber, SqliteCheck, UnchangedCheck, WorkbookCheck
from atlas_gym.task.setup import Database, Scalar, Setup, TextFile
from atlas_gym.task.template import Draft, template

from .assistant import DB as PA_DB
from .assistant import records, todo
from .sales import company
from .words import people, program

FILES, PA = "server-filesystem", "mcp-personal-assistant"
OPS, EXCEL = "finamatik-ops-mcp", "excel-mcp-server"
CHORES = (
    "close the file handle", "check empty input", "cache the result", "drop the old flag", "log the retry",
    "split this function", "name the constant", "sort before merging", "handle time zones",
)  # fmt: skip


@template(servers=(OPS, EXCEL), difficulty="hard")
def reorder_sheet(rng: random.Random) -> Draft:
    drawn = company(rng)
    low = sorted((i for i in drawn.inventory if int(i[2] or 0) <= int(i[3] or 0)), key=lambda i: str(i[0]))
    cells: dict[str, Scalar] = {}
    total = 0.0
    for row, item in enumerate(low, start=2):
        quantity = 2 * int(item[3] or 0) - int(item[2] or 0)
        cost = quantity * float(item[4] or 0)
        total += cost
        cells |= {f"A{row}": item[0], f"B{row}": item[5], f"C{row}": quantity, f"D{row}": cost}
    gold = """
        ops, xl = MCPServer("finamatik-ops-mcp"), MCPServer("excel-mcp-server")
        low = ops.check_inventory(low_stock_only=True)
        low = low if isinstance(low, list) else [low]
        rows = [["SKU", "Supplier", "Quantity", "Cost"]]
        for item in sorted(low, key=lambda i: i["sku"]):
            quantity = 2 * item["reorder_level"] - item["qty"]
            rows.append([item["sku"], item["supplier"], quantity, quantity * item["unit_price_aed"]])
        xl.create_workbook(path="/workspace/reorder.xlsx", sheets=["Reorder"])
        xl.write_range(path="/workspace/reorder.xlsx", sheet="Reorder", at="A1", rows=rows)
        answer(f"The reorder costs {sum(row[3] for row in rows[1:])} AED.")
    """
    heads: dict[str, Scalar] = {"A1": "SKU", "B1": "Supplier", "C1": "Quantity", "D1": "Cost"}

    def column(name: str, letters: str, weight: float) -> WorkbookCheck:
        wanted = {cell: value for cell, value in {**heads, **cells}.items() if cell[0] in letters}
        return WorkbookCheck(name=name, weight=weight, path="reorder.xlsx", sheet="Reorder", cells=wanted)

    return Draft(
        prompt=rng.choice(
            (
                "Please make a reorder list: a workbook /workspace/reorder.xlsx with the sheet Reorder "
                "and the columns SKU, Supplier, Quantity, Cost, one row for each item at or below its "
                "reorder level, sorted by SKU. Order up to twice the reorder level; Cost is quantity "
                "times unit price (plain numbers, no formulas). What does it all cost?",
                "Which goods run low? Put them into /workspace/reorder.xlsx, sheet Reorder, headers SKU, "
                "Supplier, Quantity, Cost in row 1, then one line per item at or under its reorder "
                "level, in the order of the SKUs. Quantity fills the stock up to two times the reorder "
                "level, Cost is that times the unit price, as plain values. Tell me the total cost.",
            )
        ),
        gold=program(gold),
        checks=(
            column("items and suppliers", "AB", 1),
            column("quantities", "C", 1),
            column("costs", "D", 1),
            AnswerNumber(name="states the total", value=total, limit=6),
        ),
        setup=drawn.setup(),
        params={"items": len(low), "total": total},
    )


@template(servers=(FILES, PA), difficulty="medium")
def collect_todos(rng: random.Random) -> Draft:
    owners = [name.split()[0].lower() for name in people(rng, 3)]
    me = owners[0]
    chores = rng.sample(CHORES, 8)
    lines: dict[str, list[str]] = {"main.py": [], "parser.py": [], "report.py": []}
    mine = []
    for number, chore in enumerate(chores):
        owner = me if number < 4 else rng.choice(owners[1:])
        file = rng.choice(sorted(lines))
        lines[file] += [f"def step_{number}(data):", f"    # TODO({owner}): {chore}", "    return data", ""]
        if owner == me:
            mine.append(chore)
    old = todo(rng, "Water the plants", "2025-03-01", ["house"])
    gold = """
        fs, assistant = MCPServer("server-filesystem"), MCPServer("mcp-personal-assistant")
        def text(value):
            return value["content"] if isinstance(value, dict) else value
        count = 0
        for line in text(fs.list_directory(path="/workspace/src")).splitlines():
            for row in text(fs.read_text_file(path="/workspace/src/" + line.split()[-1])).splitlines():
                if $mark in row:
                    assistant.create_todo(title=row.split($mark)[1].strip(), priority="high", tags=["code"])
                    count += 1
        answer(f"Made {count} to-dos.")
    """
    path = "json_extract(data, '$.{}')"
    title, priority, tags = path.format("title"), path.format("priority"), path.format("tags")
    return Draft(
        prompt=rng.choice(
            (
                "In the source files under /workspace/src there are comments like 'TODO(name): what'. "
                f"Please make a to-do in my assistant for each one that is meant for {me}: the text after "
                "the colon as the title, priority high, tag code.",
                f"Collect all TODO({me}) comments from /workspace/src and add each to my to-do list: "
                "title as written after the colon, high priority, tagged code. Other people's TODOs are "
                "not mine.",
            )
        ),
        gold=program(gold, mark=f"TODO({me}):"),
        checks=(
            SqliteCheck(
                name="the to-dos",
                weight=3,
                path=PA_DB,
                server=PA,
                query=f"SELECT {title} FROM todos WHERE id <> '{old['id']}'",
                rows=tuple((chore,) for chore in mine),
            ),
            SqliteCheck(
                name="priority and tag",
                path=PA_DB,
                server=PA,
                query=f"SELECT {title}, {priority}, {tags} FROM todos WHERE id <> '{old['id']}'",
                rows=tuple((chore, "high", json.dumps(["code"])) for chore in mine),
            ),
            UnchangedCheck(
                name="my old to-do",
                of="query",
                path=PA_DB,
                server=PA,
                query=f"SELECT data FROM todos WHERE id = '{old['id']}'",
            ),
            UnchangedCheck(name="the sources", of="folder", path="src"),
        ),
        setup=Setup(
            files=tuple(
                TextFile(path=f"src/{file}", text="\n".join(rows) + "\n") for file, rows in lines.items()
            ),
            databases=(Database(path=PA_DB, server=PA, tables=(records("todos", [old]),)),),
        ),
        params={"mine": len(mine)},
    )
