"""Tasks on a knowledge graph."""

from __future__ import annotations

import json
import random

from atlas_gym.task.kinds import AnswerNumber, AnswerText, GraphCheck, UnchangedCheck
from atlas_gym.task.setup import Setup, TextFile
from atlas_gym.task.template import Draft, template

from .words import people, program

GRAPH = "server-memory"


def graph(
    entities: list[tuple[str, str, list[str]]],
    relations: list[tuple[str, str, str]],
    path: str = "memory.jsonl",
) -> TextFile:
    """A knowledge graph file: entities (name, type, observations), relations (from, type, to)."""
    lines = [
        json.dumps({"type": "entity", "name": name, "entityType": kind, "observations": seen})
        for name, kind, seen in entities
    ]
    lines += [
        json.dumps({"type": "relation", "from": a, "to": b, "relationType": kind}) for a, kind, b in relations
    ]
    return TextFile(path=path, text="\n".join(lines))


@template(servers=(GRAPH,), difficulty="medium")
def reporting_chain(rng: random.Random) -> Draft:
    staff = people(rng, 14)
    depth = rng.randint(4, 6)
    chain = staff[: depth + 1]
    boss_of = {chain[k]: chain[k + 1] for k in range(depth)}
    others = staff[depth + 1 :]
    root, start = chain[-1], chain[0]
    second = others.pop()
    for name in others:
        boss_of[name] = rng.choice([*chain[1:], second])
    desks = ("second floor", "third floor", "remote", "north wing")
    entities = [(name, "person", [f"sits: {rng.choice(desks)}"]) for name in staff]
    rng.shuffle(entities)
    relations = [(a, "reports_to", b) for a, b in boss_of.items()]
    rng.shuffle(relations)
    gold = """
        memory = MCPServer("server-memory")
        graph = memory.read_graph()
        boss = {r["from"]: r["to"] for r in graph["relations"] if r["relationType"] == "reports_to"}
        person, between = boss[$start], 0
        while person in boss:
            person, between = boss[person], between + 1
        answer(f"{person}; {between} people stand between them")
    """
    return Draft(
        prompt=rng.choice(
            (
                "Our org chart is in the knowledge graph (relation reports_to). Follow it upwards from "
                f"{start}: who is at the very top, and how many people stand between the two?",
                "Using the reports_to relations in the knowledge graph: who is the highest boss above "
                f"{start}, and how many managers are there in between?",
            )
        ),
        gold=program(gold, start=start),
        checks=(
            AnswerText(
                name="names the top",
                weight=4,
                all_of=(root,),
                # An answer may tell the chain; it may not list everybody.
                options=(*others, second),
            ),
            AnswerNumber(name="states the distance", value=depth - 1, limit=1),
        ),
        setup=Setup(files=(graph(entities, relations),)),
        params={"top": root, "between": depth - 1},
    )


@template(servers=(GRAPH,), difficulty="hard")
def hand_over(rng: random.Random) -> Draft:
    leaver, heir, *rest = people(rng, 5)
    names = rng.sample(("Aurora", "Basalt", "Cobalt", "Delta", "Ember", "Fjord", "Garnet", "Helix"), 7)
    status = {name: "archived" if k in (1, 4) else "active" for k, name in enumerate(names)}
    lead = {name: leaver if k < 5 else rng.choice(rest) for k, name in enumerate(names)}
    entities = [(name, "person", ["role: engineer"]) for name in (leaver, heir, *rest)]
    entities += [
        (name, "project", [f"status: {status[name]}", f"budget: {rng.randint(2, 90)}k"]) for name in names
    ]
    relations = [(lead[name], "leads", name) for name in names] + [(rest[0], "mentors", rest[1])]
    moving = [name for name in names if lead[name] == leaver and status[name] == "active"]
    month = f"2025-0{rng.randint(1, 9)}"
    gold = """
        memory = MCPServer("server-memory")
        graph = memory.read_graph()
        seen = {e["name"]: e["observations"] for e in graph["entities"]}
        led = [r["to"] for r in graph["relations"] if r["from"] == $leaver and r["relationType"] == "leads"]
        moving = [name for name in led if "status: active" in seen[name]]
        def leads(who):
            return [{"from": who, "to": name, "relationType": "leads"} for name in moving]
        memory.delete_relations(relations=leads($leaver))
        memory.create_relations(relations=leads($heir))
        memory.add_observations(observations=[{"entityName": $leaver, "contents": [$note]}])
        answer("Handed over: " + ", ".join(moving))
    """
    note = f"left the company in {month}"
    return Draft(
        prompt=rng.choice(
            (
                f"{leaver} is leaving. In the knowledge graph, every active project that {leaver} leads "
                f"goes to {heir} (relation leads); archived ones stay as they are. Also note on {leaver}: "
                f'"{note}". Tell me which projects moved.',
                f"Please update the knowledge graph: {heir} takes over the active projects led by "
                f"{leaver}, so the leads relations have to change, but not those of archived projects. "
                f'Add the observation "{note}" to {leaver}, and list the projects that changed hands.',
            )
        ),
        gold=program(gold, leaver=leaver, heir=heir, note=note),
        checks=(
            GraphCheck(
                name="the new lead",
                weight=2,
                path="memory.jsonl",
                relations=tuple((heir, "leads", name) for name in moving),
            ),
            GraphCheck(
                name="the old lead is gone",
                weight=2,
                path="memory.jsonl",
                no_relations=tuple((leaver, "leads", name) for name in moving),
            ),
            GraphCheck(name="the note", path="memory.jsonl", entity=leaver, observations=(note,)),
            AnswerText(
                name="lists the projects",
                all_of=tuple(moving),
                options=tuple(n for n in names if n not in moving),
                # It may add which archived ones did not move.
                allowed=2,
            ),
            GraphCheck(
                name="archived projects stay",
                gate=True,
                path="memory.jsonl",
                relations=tuple((lead[n], "leads", n) for n in names if n not in moving),
            ),
            UnchangedCheck(
                name="everything else", of="graph", path="memory.jsonl", except_for=(leaver, heir)
            ),
        ),
        setup=Setup(files=(graph(entities, relations),)),
        params={"moving": moving},
    )
