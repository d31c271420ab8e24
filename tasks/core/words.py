"""Names and programs that the templates of this suite share: no template itself."""

from __future__ import annotations

import random
import re
import textwrap

FIRST = (
    "Amara", "Bruno", "Chiara", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Ingrid", "Jonas", "Kavya",
    "Liam", "Mireille", "Nadia", "Oskar", "Priya", "Quentin", "Rosa", "Soren", "Tamar", "Ulrich", "Vera",
    "Wanda", "Yusra",
)  # fmt: skip
LAST = (
    "Almeida", "Bergmann", "Castillo", "Dubois", "Eriksen", "Fontaine", "Grimaldi", "Hartley", "Ivanova",
    "Jansen", "Kowalski", "Lindqvist", "Moreau", "Novak", "Okafor", "Petrov", "Rinaldi", "Sorensen",
    "Takahashi", "Varga",
)  # fmt: skip
CITIES = ("Lisbon", "Bergen", "Turin", "Ghent", "Krakow", "Malmo", "Graz", "Porto", "Bilbao", "Aarhus")


def people(rng: random.Random, count: int) -> list[str]:
    """Full names of which no two share a first or a last name."""
    return [f"{a} {b}" for a, b in zip(rng.sample(FIRST, count), rng.sample(LAST, count), strict=True)]


def mailbox(name: str, host: str = "example.org") -> str:
    """A mail address made from a name."""
    return name.lower().replace(" ", ".") + "@" + host


def program(text: str, **values: object) -> str:
    """A gold program: dedented, with every `$name` replaced by the value's Python literal."""
    return re.sub(r"\$(\w+)", lambda match: repr(values[match[1]]), textwrap.dedent(text)).strip() + "\n"


def money(rng: random.Random, low: int, high: int) -> float:
    """An amount with cents, between `low` and `high`."""
    return rng.randint(low * 100, high * 100) / 100


def csv(rows: list[tuple[object, ...]]) -> str:
    """Comma-separated lines; the values hold no comma."""
    return "".join(",".join(str(value) for value in row) + "\n" for row in rows)
