"""Tasks on a personal assistant: to-dos and a calendar."""

from __future__ import annotations

import json
import random
import uuid

from atlas_gym.task.kinds import SqliteCheck, UnchangedCheck
from atlas_gym.task.setup import Database, Setup, Table
from atlas_gym.task.template import Draft, template

from .words import mailbox, people, program

PA = "mcp-personal-assistant"
DB = "home/.config/mcp-pa/database.sqlite"
"""Where the server keeps its database: below its own HOME."""
CREATED = "2025-01-02 08:00:00"
BOOKED = (
    "SELECT json_extract(data, '$.title') AS title, "
    "replace(substr(json_extract(data, '$.start_time'), 1, 16), 'T', ' ') AS begins, "
    "replace(substr(json_extract(data, '$.end_time'), 1, 16), 'T', ' ') AS ends, "
    "json_extract(data, '$.attendees') AS attendees FROM calendar_events"
)
"""Title, start and end (to the minute) and attendees of every event."""

MEETINGS = (
    "Budget round", "Interview", "Design review", "Vendor call", "Training", "Sync", "Demo", "Retrospective",
    "Hiring round", "Planning", "Press call", "Audit", "Office hours",
)  # fmt: skip

CHORES = (
    "Call the agency", "Pay the deposit", "Print the forms", "Buy adapters", "Renew the card",
    "Ask for quotes", "Check the list", "Pick a date", "Return the books", "Water the plants",
    "Sort receipts", "Write to Kim",
)  # fmt: skip


def identity(rng: random.Random) -> str:
    """A version 4 UUID, drawn with the template."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def records(name: str, items: list[dict[str, object]]) -> Table:
    """A table of the assistant: an id and the record as JSON."""
    return Table(
        name=name,
        columns=("id TEXT PRIMARY KEY", "data TEXT NOT NULL"),
        rows=tuple((str(item["id"]), json.dumps(item)) for item in items),
    )


def todo(
    rng: random.Random, title: str, due: str, tags: list[str], *, done: bool = False
) -> dict[str, object]:
    """A to-do as the assistant stores it."""
    return {
        "id": identity(rng),
        "title": title,
        "description": None,
        "due_date": f"{due} 00:00:00",
        "reminder_date": None,
        "priority": "medium",
        "completed": done,
        "created_at": CREATED,
        "completed_at": "2025-01-20 09:00:00" if done else None,
        "tags": tags,
    }


def event(rng: random.Random, title: str, start: str, end: str) -> dict[str, object]:
    """A calendar event as the assistant stores it."""
    return {
        "id": identity(rng),
        "title": title,
        "description": None,
        "start_time": f"{start}:00",
        "end_time": f"{end}:00",
        "location": None,
        "attendees": [],
        "reminder_minutes": 15,
        "created_at": CREATED,
        "tags": [],
    }


@template(servers=(PA,), difficulty="medium")
def close_todos(rng: random.Random) -> Draft:
    tag, other = rng.sample(("travel", "house", "school", "garden"), 2)
    day = f"2025-03-{rng.randint(10, 20)}"
    titles = rng.sample(CHORES, 10)
    items, due_ones = [], []
    for number, title in enumerate(titles):
        early = number % 2 == 0
        due = f"2025-03-{rng.randint(1, 10):02d}" if early else f"2025-03-{rng.randint(21, 30)}"
        tags = [tag] if number < 6 else [other] if number < 8 else [other, tag]
        done = number == 4
        items.append(todo(rng, title, due, tags, done=done))
        if early and tag in tags and not done:
            due_ones.append(title)
    rng.shuffle(items)
    gold = """
        assistant = MCPServer("mcp-personal-assistant")
        done = []
        for item in assistant.list_todos(completed=False):
            if $tag in item["tags"] and item["due_date"][:10] <= $day:
                assistant.complete_todo(todo_id=item["id"])
                done.append(item["title"])
        answer("Done: " + ", ".join(done))
    """
    where = "json_extract(data, '$.completed')"
    return Draft(
        prompt=rng.choice(
            (
                f"Please mark every open to-do tagged {tag} that is due on {day} or earlier as completed. "
                "Do not touch any other to-do.",
                f"I finished all my {tag} chores that were due up to and including {day}. Tick off those "
                f"to-dos (tag {tag}), and only those.",
            )
        ),
        gold=program(gold, tag=tag, day=day),
        checks=(
            SqliteCheck(
                name="the right to-dos are completed",
                path=DB,
                server=PA,
                query=f"SELECT json_extract(data, '$.title') FROM todos WHERE {where}",
                rows=tuple((title,) for title in (*due_ones, titles[4])),
            ),
            UnchangedCheck(
                name="the to-dos themselves",
                of="query",
                path=DB,
                server=PA,
                query="SELECT id, json_extract(data, '$.title'), "
                "substr(json_extract(data, '$.due_date'), 1, 10), json_extract(data, '$.tags') FROM todos",
            ),
        ),
        setup=Setup(databases=(Database(path=DB, server=PA, tables=(records("todos", items),)),)),
        params={"due": due_ones},
    )


@template(servers=(PA,), difficulty="hard", split="test")
def first_free_hour(rng: random.Random) -> Draft:
    day = f"2025-0{rng.randint(4, 9)}-{rng.randint(10, 27)}"
    free = rng.randint(11, 15)
    guest = mailbox(people(rng, 1)[0])
    items = [event(rng, "Stand-up", f"{day} 09:00", f"{day} 09:30")]
    at = 9.5
    names = iter(rng.sample(MEETINGS, len(MEETINGS)))
    while at < free:
        length = rng.choice((0.5, 1, 1.5))
        end = min(free, at + length)
        gap = 0.5 if rng.random() < 0.4 and end + 0.5 < free else 0.0
        items.append(event(rng, next(names), f"{day} {clock(at)}", f"{day} {clock(end)}"))
        at = end + gap
    items.append(event(rng, "Customer visit", f"{day} {clock(free + 1)}", f"{day} {clock(free + 2)}"))
    items.append(event(rng, "Off-site", f"{day[:8]}05 09:00", f"{day[:8]}05 17:00"))
    rng.shuffle(items)
    title = rng.choice(("Contract talk", "Project kick-off", "Portfolio talk"))
    gold = """
        assistant = MCPServer("mcp-personal-assistant")
        events = assistant.list_calendar_events(start_date=$day + "T00:00:00", end_date=$day + "T23:59:59")
        taken = [(e["start_time"][11:16], e["end_time"][11:16]) for e in events]
        for minute in range(9 * 60, 16 * 60 + 1, 30):
            start, end = (f"{m // 60:02d}:{m % 60:02d}" for m in (minute, minute + 60))
            if all(end <= a or start >= b for a, b in taken):
                break
        assistant.create_calendar_event(
            title=$title, start_time=f"{$day}T{start}:00", end_time=f"{$day}T{end}:00", attendees=[$guest]
        )
        answer(f"Booked {start} to {end}.")
    """
    return Draft(
        prompt=rng.choice(
            (
                f"Find the first free full hour on {day} between 09:00 and 17:00 in my calendar (meetings "
                f"start on the hour or half hour) and book '{title}' there, one hour, with {guest} as the "
                "attendee.",
                f"Please put a one-hour meeting '{title}' with {guest} into my calendar on {day}: as "
                "early as possible between 9:00 and 17:00, starting on a full or half hour, and without "
                "overlapping anything.",
            )
        ),
        gold=program(gold, day=day, title=title, guest=guest),
        checks=(
            SqliteCheck(
                name="booked at the first free hour",
                weight=3,
                path=DB,
                server=PA,
                query=f"SELECT title, begins, ends FROM ({BOOKED}) WHERE title = '{title}'",
                rows=((title, f"{day} {clock(free)}", f"{day} {clock(free + 1)}"),),
            ),
            SqliteCheck(
                name="the attendee",
                path=DB,
                server=PA,
                # With the hour: the name alone is copied from the prompt.
                query=f"SELECT begins, attendees FROM ({BOOKED}) WHERE title = '{title}'",
                rows=((f"{day} {clock(free)}", json.dumps([guest], separators=(",", ":"))),),
            ),
            UnchangedCheck(
                name="other events",
                of="query",
                path=DB,
                server=PA,
                query=f"SELECT title, begins, ends FROM ({BOOKED}) WHERE title <> '{title}'",
            ),
        ),
        setup=Setup(databases=(Database(path=DB, server=PA, tables=(records("calendar_events", items),)),)),
        params={"start": clock(free)},
    )


def clock(hours: float) -> str:
    """9.5 as "09:30"."""
    return f"{int(hours):02d}:{int(hours % 1 * 60):02d}"
