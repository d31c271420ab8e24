"""Tasks that need exact calculation."""

from __future__ import annotations

import hashlib
import random
import zlib
from datetime import datetime
from zoneinfo import ZoneInfo

from atlas_gym.task.kinds import AnswerNumber, AnswerText, CalledCheck, FileCheck, UnchangedCheck
from atlas_gym.task.setup import Setup, TextFile
from atlas_gym.task.template import Draft, template

from .words import csv, program

CALC = "calc-mcp"
FILES = "server-filesystem"
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ZONES = {
    "Tokyo": "Asia/Tokyo",
    "Kolkata": "Asia/Kolkata",
    "Auckland": "Pacific/Auckland",
    "Sydney": "Australia/Sydney",
}


def written(hour: int, minute: int) -> tuple[str, ...]:
    """The ways to write a time of day: 15:20, 3:20 pm, 03:20 p.m., and 3 pm at the full hour."""
    half, twelve = ("am", "a.m.") if hour < 12 else ("pm", "p.m."), hour % 12 or 12
    short = [f"{twelve}:{minute:02d}", f"{twelve:02d}:{minute:02d}", *([] if minute else [f"{twelve}"])]
    spoken = [f"{time}{gap}{end}" for time in short for gap in ("", " ") for end in half]
    return tuple(
        dict.fromkeys([f"{hour:02d}:{minute:02d}", *([f"{hour}:{minute:02d}"] * (hour < 10)), *spoken])
    )


@template(servers=(CALC,), difficulty="easy")
def call_abroad(rng: random.Random) -> Draft:
    city = rng.choice(sorted(ZONES))
    month, date, hour, minute = (
        rng.randint(1, 12),
        rng.randint(1, 28),
        rng.randint(15, 19),
        rng.choice((0, 20, 40)),
    )
    start = datetime(2025, month, date, hour, minute, tzinfo=ZoneInfo("America/New_York"))
    there = start.astimezone(ZoneInfo(ZONES[city]))
    clock, day = f"{there:%H:%M}", DAYS[there.weekday()]
    right = written(there.hour, there.minute)
    asked = written(hour, minute)
    minutes = sorted({minute, (minute + 30) % 60})  # zones differ by whole or half hours
    flipped = {form for form in written((there.hour + 12) % 24, there.minute) if "m" in form} - {*asked}
    wrong = {form for h in range(24) for m in minutes for form in written(h, m)} - {*right, *asked, *flipped}
    gold = """
        calc = MCPServer("calc-mcp")
        there = calc.datetime(
            action="convert", datetime=$start, fromTimezone="America/New_York", toTimezone=$zone
        )
        day = calc.date(action="weekday", date=there[:10])["weekday"]
        answer(f"{there[11:16]} on {day}")
    """
    return Draft(
        prompt=rng.choice(
            (
                f"Our call starts at {start:%H:%M} in New York on {start:%Y-%m-%d}. What time is it then "
                f"in {city}, and which day of the week? Please look it up rather than guess.",
                f"When it is {start:%H:%M} on {start:%Y-%m-%d} in New York, what are the local time and "
                f"the weekday in {city}? Use a tool, I do not trust mental arithmetic with time zones.",
            )
        ),
        gold=program(gold, start=f"{start:%Y-%m-%dT%H:%M:00}", zone=ZONES[city]),
        checks=(
            AnswerText(
                name="states the time",
                weight=3,
                any_of=right,
                none_of=tuple(sorted(flipped)),  # "5:20 pm" says 5:20, and is wrong at 05:20
                options=tuple(sorted(wrong)),
                # "09:20 pm" is read as 09:20 too.
                allowed=2,
            ),
            AnswerText(name="names the weekday", all_of=(day,), options=tuple(d for d in DAYS if d != day)),
            CalledCheck(name="looked it up", server=CALC, tools=("datetime",), mentions=(ZONES[city],)),
        ),
        params={"time": clock, "day": day},
    )


@template(servers=(CALC, FILES), difficulty="medium")
def checksum_audit(rng: random.Random) -> Draft:
    kind = rng.choice(("sha256", "md5", "crc32"))
    names = rng.sample(("alpha", "bravo", "carol", "delta", "echo", "foxtrot", "golf", "hotel"), 6)
    texts = {f"{n}.txt": f"{n} {rng.randint(10**6, 10**7)} {rng.choice('xyz')}" for n in names}
    broken = set(rng.sample(sorted(texts), 2))

    def digest(text: str) -> str:
        if kind == "crc32":
            return f"{zlib.crc32(text.encode()):08x}"
        return hashlib.new(kind, text.encode(), usedforsecurity=False).hexdigest()

    rows = [(name, digest(text + "?" if name in broken else text)) for name, text in texts.items()]
    gold = """
        calc, fs = MCPServer("calc-mcp"), MCPServer("server-filesystem")
        def text(value):
            return value["content"] if isinstance(value, dict) else value
        broken = []
        for line in text(fs.read_text_file(path="/workspace/data/manifest.csv")).splitlines()[1:]:
            name, wanted = line.split(",")
            content = text(fs.read_text_file(path="/workspace/data/" + name))
            if calc.hash(input=content, algorithm=$kind)["hash"] != wanted:
                broken.append(name)
        fs.write_file(path="/workspace/broken.txt", content="\\n".join(sorted(broken)) + "\\n")
        answer("Broken: " + ", ".join(broken))
    """
    return Draft(
        prompt=rng.choice(
            (
                f"Check the files in /workspace/data against the {kind} sums in "
                "/workspace/data/manifest.csv. Write the names of the files that do not match into "
                "/workspace/broken.txt, one per line.",
                f"/workspace/data/manifest.csv lists a {kind} checksum for each file beside it. Which "
                "files are damaged? Put just their names, one per line, into /workspace/broken.txt. (The "
                "files have no line end after the text.)",
            )
        ),
        gold=program(gold, kind=kind),
        checks=(
            FileCheck(
                name="the damaged files",
                path="broken.txt",
                lines=tuple(sorted(broken)),
                only_lines=True,
                weight=3,
            ),
            UnchangedCheck(name="the data", of="folder", path="data"),
        ),
        setup=Setup(
            files=(
                *(TextFile(path=f"data/{name}", text=text) for name, text in texts.items()),
                TextFile(path="data/manifest.csv", text=csv([("file", kind), *rows])),
            )
        ),
        params={"broken": sorted(broken)},
    )


@template(servers=(CALC,), difficulty="medium", split="test")
def address_plan(rng: random.Random) -> Draft:
    bits = [rng.randint(25, 29) for _ in range(4)]
    nets = [f"10.{rng.randint(0, 99)}.{rng.randint(0, 99)}.0/{bit}" for bit in bits]
    hosts = sum(2 ** (32 - bit) - 2 for bit in bits)
    spread = rng.sample(range(100, 999), 6)
    mean = sum(spread) / 6
    deviation = (sum((x - mean) ** 2 for x in spread) / 6) ** 0.5
    gold = """
        calc = MCPServer("calc-mcp")
        hosts = sum(calc.ip(action="range", cidr=net)["hostCount"] for net in $nets)
        spread = calc.math(action="statistics", values=$spread)["stddev"]
        answer(f"{hosts} hosts; standard deviation {spread:.2f}")
    """
    listed, loads = ", ".join(nets), ", ".join(map(str, spread))
    return Draft(
        prompt=rng.choice(
            (
                f"How many usable host addresses do the networks {listed} have together? And what is the "
                f"population standard deviation of these loads, to two decimals: {loads}?",
                f"Two numbers for my network plan, please: the sum of usable hosts in {listed}; and the "
                f"population standard deviation (two decimals) of the loads {loads}.",
            )
        ),
        gold=program(gold, nets=nets, spread=spread),
        checks=(
            AnswerNumber(name="states the hosts", value=hosts, limit=4),
            AnswerNumber(name="states the deviation", value=deviation, tolerance=0.0051, limit=4),
            CalledCheck(
                name="calculated the networks",
                weight=0.25,
                server=CALC,
                tools=("ip",),
                arguments={"cidr": nets[0]},
            ),
        ),
        params={"hosts": hosts},
    )
