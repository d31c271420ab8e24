"""One session: listings, handshakes, resources, closing from anywhere."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from atlas_gym.errors import StartError, WireError


def names(listing: Any) -> list[str]:
    return [tool["name"] for tool in listing.tools]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("mode", "expected", "note"),
    [
        ("plain", ["ok", "bad"], ""),
        ("list-no-type", ["ok", "bad"], ""),
        ("list-null-schema", ["ok", "bad"], ""),
        ("list-two-pages", ["ok", "bad"], ""),
        ("list-duplicates", ["ok", "bad"], "'ok' is listed twice"),
        ("list-same-cursor", ["ok", "bad"], "repeats its cursor"),
        ("list-endless", ["ok"], "more than 100 pages"),
        ("start-noise", ["ok", "bad"], "2 lines of stdout were no JSON-RPC"),
    ],
)
async def test_a_listing_is_lenient_bounded_and_says_what_was_odd(
    opened: Any, mode: str, expected: list[str], note: str
) -> None:
    async with asyncio.timeout(60), opened(mode) as session:
        listing = await session.list_tools(seconds=20)
        assert names(listing) == expected
        assert note in " ".join(listing.notes)
        assert bool(note) == bool(listing.notes)
        # A bad entry breaks no call, and a call lists nothing first.
        assert (await session.call("ok", {}, seconds=20)).value == "fine"
        assert (await session.call("bad", {}, seconds=20)).value == "answer"


@pytest.mark.asyncio
async def test_a_listing_without_end_is_cut(opened: Any) -> None:
    async with asyncio.timeout(60), opened("list-endless-tools") as session:
        listing = await session.list_tools(seconds=20)
        assert len(listing.tools) == 2002
        assert any("longer than 2000" in note for note in listing.notes)


@pytest.mark.asyncio
async def test_a_refused_listing_is_an_error_and_calls_work(opened: Any) -> None:
    async with asyncio.timeout(60), opened("list-refused") as session:
        with pytest.raises(WireError, match="refused tools/list: no tools here"):
            await session.list_tools(seconds=20)
        assert (await session.call("ok", {}, seconds=20)).value == "fine"


@pytest.mark.asyncio
async def test_a_bare_handshake_is_accepted(opened: Any) -> None:
    async with asyncio.timeout(60), opened("start-bare") as session:
        assert (session.info.name, session.info.version) == ("", "")
        assert (await session.call("ok", {}, seconds=20)).value == "fine"


@pytest.mark.asyncio
async def test_auto_speaks_to_servers_without_sessions(opened: Any) -> None:
    async with asyncio.timeout(60), opened("modern", protocol="auto") as session:
        assert (session.info.name, session.info.version, session.info.protocol) == (
            "modern",
            "9",
            "2026-07-28",
        )
        assert names(await session.list_tools(seconds=20)) == ["ok", "bad"]
        assert (await session.call("bad", {}, seconds=20)).value == "answer"


@pytest.mark.asyncio
async def test_auto_asks_an_older_server_nothing_that_it_does_not_know(opened: Any) -> None:
    async with asyncio.timeout(60), opened("plain", protocol="auto") as session:
        assert session.info.protocol == "2025-11-25"
        assert (await session.call("ok", {}, seconds=20)).value == "fine"


@pytest.mark.asyncio
async def test_a_failed_handshake_closes_the_link_and_shows_the_last_words(opened: Any) -> None:
    with pytest.raises(StartError, match=re.compile("start-dies.*ended.*cheese.*misbehaving.py", re.DOTALL)):
        async with opened("start-dies"):
            pass


@pytest.mark.asyncio
async def test_an_unknown_resource_is_an_error(opened: Any) -> None:
    async with asyncio.timeout(60), opened("plain") as session:
        with pytest.raises(WireError, match="refused resources/read"):
            await session.read_resource("memo://x", seconds=20)


@pytest.mark.asyncio
async def test_a_session_may_be_closed_from_another_task_and_twice_and_during_a_call(opened: Any) -> None:
    async with asyncio.timeout(60), opened("hang") as session:
        call = asyncio.create_task(session.call("bad", {}, seconds=20))
        await asyncio.sleep(0)
        await asyncio.gather(session.close(), asyncio.create_task(session.close()))
        assert (await call).outcome == "crashed"
        assert (await session.call("ok", {}, seconds=20)).outcome == "crashed"
        with pytest.raises(WireError, match="closed"):
            await session.list_tools(seconds=1)


@pytest.mark.asyncio
async def test_a_cancelled_opening_leaves_no_session_behind(opened: Any) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5), opened("start-silent"):
            pass
    left = [task.get_name() for task in asyncio.all_tasks() if "session" in task.get_name()]
    assert left == []
