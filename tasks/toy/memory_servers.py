"""The toy suite's servers: plain functions behind real MCP, each episode with a state of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atlas_gym.env.memory import MemoryServer
from atlas_gym.wire.fake import FakeServer

STOCK = {"flour": 1200, "sugar": 350, "rice": 2000, "lentils": 800, "olive oil": 750, "salt": 90}


def kitchen() -> FakeServer:
    """A pantry that can be looked at and taken from."""
    fake = FakeServer("kitchen", state={"stock": dict(STOCK)})

    def list_items(state: dict[str, Any]) -> list[str]:
        """Names of everything in the pantry."""
        return sorted(state["stock"])

    def amount(item: str, state: dict[str, Any]) -> dict[str, Any]:
        """How many grams of an item are in the pantry."""
        if item not in state["stock"]:
            raise ValueError(f"there is no {item!r} in the pantry")
        return {"item": item, "grams": state["stock"][item]}

    def take(item: str, grams: int, state: dict[str, Any]) -> dict[str, Any]:
        """Take some grams of an item out of the pantry."""
        if not 0 < grams <= state["stock"].get(item, 0):
            raise ValueError(f"cannot take {grams} g of {item!r}")
        state["stock"][item] -= grams
        return {"item": item, "grams": state["stock"][item]}

    for run in (list_items, amount, take):
        fake.tool(run)
    return fake


def notes() -> FakeServer:
    """Text notes in the workspace."""
    fake = FakeServer("notes")

    def inside(path: str, state: dict[str, Any]) -> Path:
        root = Path(state["workspace"])
        full = (root / path).resolve()
        if not full.is_relative_to(root.resolve()):
            raise ValueError(f"{path} is outside of the workspace")
        return full

    def read_note(path: str, state: dict[str, Any]) -> str:
        """Read a note."""
        return inside(path, state).read_text(encoding="utf-8")

    def write_note(path: str, text: str, state: dict[str, Any]) -> str:
        """Write a note, replacing what was there."""
        inside(path, state).write_text(text, encoding="utf-8")
        return f"wrote {len(text)} characters to {path}"

    for run in (read_note, write_note):
        fake.tool(run)
    return fake


def numbers() -> FakeServer:
    """Sums."""
    fake = FakeServer("numbers")

    def add(values: list[float]) -> float:
        """Add numbers up."""
        return sum(values)

    def divide(a: float, b: float) -> float:
        """Divide a by b."""
        return a / b

    for run in (add, divide):
        fake.tool(run)
    return fake


def colours() -> FakeServer:
    """Names of colours: never needed, so it serves as a distractor."""
    fake = FakeServer("colours")

    def mix(first: str, second: str) -> str:
        """Name the colour that two colours give."""
        return "-".join(sorted([first, second]))

    fake.tool(mix)
    return fake


def servers() -> Mapping[str, MemoryServer]:
    """Every server of the suite, by name."""
    return {
        "colours": MemoryServer(colours(), "Mixes colours.", ("mix",), state="none"),
        "kitchen": MemoryServer(
            kitchen(), "A pantry: what is in it, and taking some out.", ("list_items", "amount")
        ),
        "notes": MemoryServer(notes(), "Text notes in files.", ("read_note",), state="workspace"),
        "numbers": MemoryServer(numbers(), "Sums and quotients.", ("add", "divide"), state="none"),
    }
