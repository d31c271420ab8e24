"""Toy tasks: one that reads, one that writes a file, one that changes a server's memory."""

from __future__ import annotations

import random

from atlas_gym.task.kinds import AnswerNumber, FileCheck, ToolCheck
from atlas_gym.task.setup import Setup, TextFile
from atlas_gym.task.template import Draft, template

STOCK = {"flour": 1200, "sugar": 350, "rice": 2000, "lentils": 800, "olive oil": 750, "salt": 90}


@template(servers=["kitchen", "numbers"], difficulty="easy")
def pantry_total(rng: random.Random) -> Draft:
    items = rng.sample(sorted(STOCK), 3)
    listed = f"{items[0]}, {items[1]} and {items[2]}"
    return Draft(
        prompt=f"How many grams of {listed} are in the pantry all together?",
        checks=[AnswerNumber(name="total", value=sum(STOCK[i] for i in items))],
        gold=f"""
kitchen = MCPServer("kitchen")
numbers = MCPServer("numbers")
grams = [kitchen.amount(item=item)["grams"] for item in {items!r}]
answer(f"{{numbers.add(values=grams):g}} grams")
""",
        params={"items": items},
    )


@template(servers=["kitchen", "notes"], difficulty="medium")
def shopping_list(rng: random.Random) -> Draft:
    limit = rng.choice([400, 780, 900])
    low = sorted(item for item, grams in STOCK.items() if grams < limit)
    return Draft(
        prompt=(
            f"Write everything that we have less than {limit} grams of, one item per line, into "
            "/workspace/shopping.txt. Keep the lines that are in the file already."
        ),
        setup=Setup(files=(TextFile(path="shopping.txt", text="bread\n"),)),
        checks=[FileCheck(name="list", path="shopping.txt", lines=("bread", *low), only_lines=True)],
        gold=f"""
kitchen = MCPServer("kitchen")
notes = MCPServer("notes")
low = [item for item in kitchen.list_items() if kitchen.amount(item)["grams"] < {limit}]
old = notes.read_note(path="/workspace/shopping.txt")
notes.write_note(path="/workspace/shopping.txt", text=old + "".join(f"{{item}}\\n" for item in low))
answer("The list is written.")
""",
        params={"limit": limit},
    )


@template(servers=["kitchen"], difficulty="easy")
def take_some(rng: random.Random) -> Draft:
    item = rng.choice(["flour", "rice", "lentils"])
    grams = rng.randrange(50, 500, 25)
    return Draft(
        prompt=f"Please take {grams} grams of {item} out of the pantry.",
        checks=[
            ToolCheck(
                name="taken",
                server="kitchen",
                tool="amount",
                arguments={"item": item},
                expected={"grams": STOCK[item] - grams},
            )
        ],
        gold=f"""
kitchen = MCPServer("kitchen")
left = kitchen.take(item={item!r}, grams={grams})
answer(f"Done, {{left['grams']}} grams are left.")
""",
        params={"item": item, "grams": grams},
    )
