"""Why a cassette has no answer: the nearest call that it holds, in words, with the next step.

Does not know how a cassette is played.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from atlas_gym.wire.cassette import Cassette
from atlas_gym.wire.cassette_keys import Issued, Track, named

_NEXT: Final = (
    "Record this episode (cassette_mode='record'), or let it go on live (cassette_mode='replay-or-live')."
)
_LONGEST: Final = 300
_LOOKED_AT: Final = 200
"""Recorded arguments that are compared with the ones that are missing."""


def missing_call(cassette: Cassette, issued: Issued, setup: str, written: Sequence[str]) -> str:
    """Why a call has no answer.

    Args:
        cassette: Where it was looked for.
        issued: The call.
        setup: Digest of the episode's set-up.
        written: The episode's earlier calls that may have changed something.
    """
    call = issued.call
    head = f"Cassette {cassette.path} has no answer to {call.server}.{call.tool}({_cut(issued.arguments)})"
    return f"{head}: {_nearest(cassette, issued, setup, written)}. {_NEXT}"


def _nearest(cassette: Cassette, issued: Issued, setup: str, written: Sequence[str]) -> str:
    call = issued.call
    same = (call.server, call.tool)
    of_tool = "FROM calls c JOIN takes t ON t.id = c.take WHERE c.name = ? AND c.tool = ?"
    other = cassette.ask(
        f"SELECT c.take, c.number {of_tool} AND t.setup = ? AND c.server = ? AND c.arguments = ? "
        "ORDER BY c.take DESC LIMIT 1",
        *(*same, setup, issued.server, issued.arguments),
    )
    if other:
        return (
            "the same call was recorded after other writing calls (recorded: "
            f"{named(_written(cassette, *other[0]))}; here: {named(written)})"
        )
    rows = cassette.ask(
        f"SELECT DISTINCT c.arguments, c.history {of_tool} AND t.setup = ? AND c.server = ? "
        f"ORDER BY c.history = ? DESC LIMIT {_LOOKED_AT}",
        *(*same, setup, issued.server, issued.history),
    )
    if rows:
        here = [arguments for arguments, history in rows if history == issued.history]
        near = _closest(issued.arguments, here or [arguments for arguments, _ in rows])
        when = "" if here else ", and after other writing calls"
        return f"the nearest recorded call of this tool has other arguments{when}: {_cut(near)}"
    if cassette.ask(f"SELECT 1 {of_tool} AND t.setup = ? LIMIT 1", *same, setup):
        return f"it was recorded with another version of server {call.server!r} (its lock differs)"
    tasks = cassette.ask(f"SELECT DISTINCT t.task {of_tool} ORDER BY 1 LIMIT 5", *same)
    if tasks:
        names = ", ".join(str(task) for (task,) in tasks)
        return f"this tool was recorded only with other set-ups (tasks {names})"
    tools = cassette.ask("SELECT DISTINCT tool FROM calls WHERE name = ? ORDER BY 1", call.server)
    if tools:
        return f"of server {call.server!r} it holds only calls of {named([str(t) for (t,) in tools])}"
    return f"it holds no call of server {call.server!r} at all"


def missing_end(cassette: Cassette, track: Track) -> str:
    """Why there is nothing that the checks could look at."""
    ends = cassette.ask(
        "SELECT e.take FROM ends e JOIN takes t ON t.id = e.take WHERE t.setup = ? ORDER BY 1 DESC LIMIT 1",
        track.setup,
    )
    head = f"Cassette {cassette.path} does not hold what this episode would have left"
    if not ends:
        return f"{head}: no episode with this set-up was recorded to its end. {_NEXT}"
    recorded = named(_written(cassette, ends[0][0], None))
    return (
        f"{head}: the recorded one ended after other writing calls (recorded: {recorded}; here: "
        f"{named(track.written)}). {_NEXT}"
    )


def missing_server(cassette: Cassette, name: str) -> str:
    """Why there are no tools of a server."""
    known = {record.name for record in cassette.servers()}
    if name in known:
        why = f"it was recorded with another version of server {name!r} (its lock differs)"
    else:
        why = f"it knows {named(sorted(known), 20)}"
    return f"Cassette {cassette.path} does not hold the tools of server {name!r}: {why}. {_NEXT}"


def _written(cassette: Cassette, take: int, before: int | None) -> list[str]:
    rows = cassette.ask(
        "SELECT name, tool FROM calls WHERE take = ? AND writes AND number < ? ORDER BY number",
        *(take, 2**40 if before is None else before),
    )
    return [f"{name}.{tool}" for name, tool in rows]


def _closest(text: str, others: Sequence[str]) -> str:
    def likeness(other: str) -> float:
        return difflib.SequenceMatcher(None, text[:_LONGEST], other[:_LONGEST]).ratio()

    return max(others, key=likeness)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
