"""Recording and replaying sessions, over in-process servers that count how often they are started."""

from __future__ import annotations

import asyncio
import base64
import itertools
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.errors import StartError
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Limits, Manifest
from atlas_gym.runtime.memory import MemoryRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.types import ToolCall, ToolResult
from atlas_gym.wire.calls import Calls
from atlas_gym.wire.cassette import Cassette, End
from atlas_gym.wire.cassette_keys import REMOVED, Secrets, Track
from atlas_gym.wire.cassette_recording import Recording
from atlas_gym.wire.fake import FakeServer, Quit, serve
from atlas_gym.wire.replay import Replaying
from atlas_gym.wire.sessions import Sessions

READS = ("read", "now", "picture", "slow", "whoami", "flaky")
NAMES = ("box", "other")
PNG = base64.b64encode(b"png").decode()
_numbers = itertools.count()


def fake() -> FakeServer:
    """A box with items under ids that are never the same twice."""
    made = FakeServer("box", state={"items": {}})
    turns = itertools.count()

    def put(what: str, state: dict[str, Any]) -> dict[str, Any]:
        """Put something in, under a new id."""
        key = f"id{next(_numbers)}"
        state["items"][key] = what
        return {"id": key, "z": 1.0, "a": 1}

    def put_as(key: str, what: str, state: dict[str, Any]) -> str:
        """Put something in, under this id."""
        state["items"][key] = what
        return f"in /workspace/{key}: {len(state['items'])}"

    def read(key: str, state: dict[str, Any]) -> str:
        """Look at something."""
        return str(state["items"][key])

    def now() -> int:
        """Never the same twice."""
        return next(_numbers)

    def picture() -> dict[str, Any]:
        """A picture."""
        return {
            "content": [{"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"png").decode()}]
        }

    async def slow(seconds: float) -> float:
        """Take some time."""
        await asyncio.sleep(seconds)
        return seconds

    def whoami() -> dict[str, str]:
        """Give the key away."""
        return {"key is hunter22": "hunter22!"}

    def flaky() -> str:
        """End the server, but not the one after it."""
        if next(turns) % 2 == 0:
            raise Quit
        return "mended"

    def break_off() -> None:
        """End the server, with what it was given."""
        raise Quit

    for run in (put, put_as, read, now, picture, slow, whoami, flaky, break_off):
        made.tool(run)
    return made


def install(name: str) -> Installation:
    manifest = Manifest(
        name=name,
        description="A box.",
        registry="user",
        command=("in-process",),
        state="memory" if name == "box" else "none",
        state_bound="start",
        read_only=READS,
        limits=Limits(call_seconds=20),
    )
    return Installation(Server(manifest, None), Path(), manifest.command, ())


class Counting(MemoryRuntime):
    """Counts its starts."""

    def __init__(self) -> None:
        super().__init__({name: serve(fake()) for name in NAMES})
        self.starts: list[str] = []
        self.broken = False

    async def start(self, installation: Installation, workspace: Workspace) -> Any:
        self.starts.append(installation.server.name)
        if self.broken:
            raise StartError("no servers today")
        return await super().start(installation, workspace)


class Studio:
    """Records and replays episodes with one cassette."""

    def __init__(self, path: Path) -> None:
        self.cassette = Cassette.open(path / "x.cassette", create=True)
        self.runtime = Counting()
        self.secrets = Secrets()
        self.workspaces: list[Workspace] = []

    def track(self, setup: str = "setup") -> Track:
        return Track(setup, lambda name: f"digest of {name}", lambda _, tool: tool in READS, self.secrets)

    def live(self) -> Sessions:
        self.workspaces.append(Workspace.create())
        return Sessions(self.runtime, {n: install(n) for n in NAMES}, self.workspaces[-1])

    def record(self, sessions: Calls, track: Track, label: str = "") -> Recording:
        return Recording(
            sessions, self.cassette, track, task="suite/task-1", label=label, secrets=self.secrets
        )

    @asynccontextmanager
    async def recording(self, label: str = "", end: bool = True) -> AsyncIterator[Recording]:
        recording = self.record(self.live(), self.track(), label)
        try:
            yield recording
        finally:
            await recording.close()
            if end:
                await asyncio.to_thread(recording.end, End("/run", {"files": None}))

    @asynccontextmanager
    async def replaying(self, label: str = "", live: bool = False) -> AsyncIterator[Replaying]:
        track = self.track()

        async def go_live() -> Calls:
            return self.live()

        replaying = Replaying(
            self.cassette,
            track,
            label=label,
            go_live=go_live if live else None,
            record=lambda sessions: self.record(sessions, track, label),
        )
        try:
            yield replaying
        finally:
            await replaying.close()


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Studio]:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    made = Studio(tmp_path)
    yield made
    for workspace in made.workspaces:
        workspace.close()


def box(tool: str, /, **arguments: Any) -> ToolCall:
    return ToolCall("box", tool, arguments)


def told(result: ToolResult) -> str:
    """All that the agent gets, in its order."""
    return repr((result.call, result.outcome, result.value, result.text, result.failed))


async def play(sessions: Calls) -> list[ToolResult]:
    """An episode that feeds live ids back."""
    results = [await sessions.call(box("put", what="flour"))]
    key = results[0].value["id"] if isinstance(results[0].value, dict) else ""
    results.append(await sessions.call(box("read", key=key)))
    results += [await sessions.call(box("now")) for _ in range(3)]
    results.append(await sessions.call(box("read", key="missing")))
    results.append(await sessions.call(ToolCall("other", "picture", {}, "code")))
    results.append(await sessions.call(box("read", key=float("nan"))))
    results.append(await sessions.call(box("put_as", key="k", what="rice")))
    results.append(await sessions.call(box("now")))
    return results


@pytest.mark.asyncio
async def test_a_replay_is_the_recorded_episode_and_starts_nothing(studio: Studio) -> None:
    async with studio.recording() as recording:
        live = await play(recording)
        seen = (recording.versions, recording.walls, recording.how, dict(recording.blobs))
        assert recording.infra_errors == 0
    assert {result.outcome for result in live} == {"ok", "tool_error", "invalid_call"}
    studio.runtime.starts.clear()
    async with studio.replaying() as replaying:
        again = await play(replaying)
        assert list(map(told, again)) == list(map(told, live))
        assert (replaying.versions, replaying.walls, replaying.how, dict(replaying.blobs)) == seen
        assert next(iter(replaying.blobs.values())).data == PNG
        assert (replaying.lost, replaying.infra_errors) == ("", 0)
        assert replaying.find_end() == End("/run", {"files": None})
    assert studio.runtime.starts == []


@pytest.mark.asyncio
async def test_a_failure_that_was_mended_counts_in_the_replay_too(studio: Studio) -> None:
    async def play(sessions: Calls) -> list[tuple[str, int]]:
        found = []
        for call in (box("now"), ToolCall("other", "flaky", {}), box("now")):
            found.append((told(await sessions.call(call)), sessions.infra_errors))
        return found

    async with studio.recording() as recording:
        live = await play(recording)
        assert [errors for _, errors in live] == [0, 1, 1]
    async with studio.replaying() as replaying:
        assert await play(replaying) == live


@pytest.mark.asyncio
async def test_calls_at_the_same_time_have_the_keys_of_their_order(studio: Studio) -> None:
    async def together(sessions: Calls) -> list[ToolResult]:
        calls = [box("now"), ToolCall("other", "slow", {"seconds": 0.05}), box("now"), box("now")]
        return list(await asyncio.gather(*map(sessions.call, calls)))

    async with studio.recording() as recording:
        live = await together(recording)
    for _ in range(2):
        async with studio.replaying() as replaying:
            assert list(map(told, await together(replaying))) == list(map(told, live))


@pytest.mark.asyncio
async def test_episodes_recorded_at_once_stay_apart(studio: Studio) -> None:
    async def one(label: str) -> list[ToolResult]:
        async with studio.recording(label) as recording:
            return await play(recording)

    labels = ["a", "b", "c", "d"]
    lives = await asyncio.gather(*map(one, labels))
    assert len({told(live[0]) for live in lives}) == 4
    for label, live in zip(labels, lives, strict=True):
        async with studio.replaying(label) as replaying:
            assert list(map(told, await play(replaying))) == list(map(told, live))


@pytest.mark.asyncio
async def test_the_same_messages_find_their_own_take(studio: Studio) -> None:
    lives = []
    for number in range(3):
        async with studio.recording("one group") as recording:
            recording.track.hear(f"message of rollout {number}")
            lives.append(await play(recording))
    for number in (1, 0, 2):
        async with studio.replaying("one group") as replaying:
            replaying.track.hear(f"message of rollout {number}")
            assert list(map(told, await play(replaying))) == list(map(told, lives[number]))


@pytest.mark.asyncio
async def test_a_miss_is_the_end_and_says_why(studio: Studio) -> None:
    async with studio.recording() as recording:
        await play(recording)
    studio.runtime.starts.clear()
    async with studio.replaying() as replaying:
        await replaying.call(box("put", what="flour"))
        result = await replaying.call(box("put", what="sugar"))
        assert result.outcome == "crashed"
        assert result.is_infra
        assert 'no answer to box.put({"what":"sugar"})' in replaying.lost
        assert "other arguments" in replaying.lost
        assert "cassette_mode='record'" in replaying.lost
        assert replaying.infra_errors == 1
    assert studio.runtime.starts == []


@pytest.mark.asyncio
async def test_an_end_that_was_not_recorded_is_a_miss(studio: Studio) -> None:
    async with studio.recording() as recording:
        await play(recording)
    async with studio.replaying() as replaying:
        await replaying.call(box("put", what="flour"))
        await replaying.prepare_end(needed=False)
        assert replaying.lost == ""
        await replaying.prepare_end(needed=True)
        assert "recorded: box.put, box.put_as; here: box.put)" in replaying.lost


@pytest.mark.asyncio
async def test_a_miss_goes_live_with_the_writes_made_again(studio: Studio) -> None:
    async with studio.recording() as recording:
        await recording.call(box("put_as", key="k", what="rice"))
        first = await recording.call(box("now"))
    studio.runtime.starts.clear()
    async with studio.replaying(live=True) as replaying:
        await replaying.call(box("put_as", key="k", what="rice"))
        assert told(await replaying.call(box("now"))) == told(first)
        assert studio.runtime.starts == []
        read, later = await asyncio.gather(*map(replaying.call, [box("read", key="k"), box("now")]))
        assert read.value == "rice"  # the state is what the replayed calls made
        assert later.value > first.value  # and every call after a miss is live
        assert studio.runtime.starts == ["box"]
        assert (replaying.lost, replaying.infra_errors) == ("", 0)
        recorded = replaying.recording
    assert recorded is not None
    recorded.end(End("/run", {}))
    studio.runtime.starts.clear()
    async with studio.replaying() as replaying:  # the take that went live is a whole one
        await replaying.call(box("put_as", key="k", what="rice"))
        assert told(await replaying.call(box("now"))) == told(first)
        assert told(await replaying.call(box("read", key="k"))) == told(read)
        assert told(await replaying.call(box("now"))) == told(later)
        assert replaying.walls == {"box": "memory"}
    assert studio.runtime.starts == []


@pytest.mark.asyncio
async def test_an_empty_cassette_records_everything_in_replay_or_live(studio: Studio) -> None:
    async with studio.replaying(live=True) as replaying:
        live = await play(replaying)
        recorded = replaying.recording
    assert recorded is not None
    recorded.end(End("/run", {}))
    async with studio.replaying() as replaying:
        assert list(map(told, await play(replaying))) == list(map(told, live))


@pytest.mark.asyncio
async def test_going_live_ends_where_a_write_comes_to_something_else(studio: Studio) -> None:
    async with studio.recording() as recording:
        await recording.call(box("put", what="flour"))
    async with studio.replaying(live=True) as replaying:
        await replaying.call(box("put", what="flour"))  # another id now: what the agent was told is not there
        result = await replaying.call(box("read", key="x"))
        assert result.outcome == "crashed"
        assert "box.put answers differently now" in replaying.lost


@pytest.mark.asyncio
async def test_going_live_without_servers_says_so(studio: Studio) -> None:
    async with studio.recording() as recording:
        await recording.call(box("now"))
    studio.runtime.broken = True
    async with studio.replaying(live=True) as replaying:
        await replaying.call(box("now"))
        result = await replaying.call(box("read", key="x"))
        assert result.outcome == "crashed"
        assert "cannot go on live" in replaying.lost
        assert "no servers today" in replaying.lost


@pytest.mark.asyncio
async def test_what_a_failed_server_ended_is_forgotten(studio: Studio) -> None:
    async with studio.recording() as recording:
        await recording.call(box("put_as", key="k", what="rice"))
        assert studio.cassette.ask("SELECT count(*) FROM calls") == [(1,)]  # written while it runs
        result = await recording.call(box("break_off"))
        assert result.is_infra
        assert recording.lost
    for table in ("takes", "calls", "starts", "ends"):
        assert studio.cassette.ask(f"SELECT count(*) FROM {table}") == [(0,)]


@pytest.mark.asyncio
async def test_a_call_that_nobody_waits_for_is_recorded_all_the_same(studio: Studio) -> None:
    async with studio.recording() as recording:
        waiting = asyncio.ensure_future(recording.call(box("slow", seconds=0.5)))
        await recording.call(ToolCall("other", "now", {}))
        assert waiting.cancel()  # it still ran
        await recording.settled()
    async with studio.replaying() as replaying:
        assert (await replaying.call(box("slow", seconds=0.5))).value == 0.5


@pytest.mark.asyncio
async def test_secrets_are_in_no_recording(studio: Studio) -> None:
    studio.secrets = Secrets(["hunter22"])
    async with studio.recording(end=False) as recording:
        live = [
            await recording.call(box("whoami")),
            await recording.call(box("put_as", key="hunter22", what="x")),
            await recording.call(box("read", key="hunter22")),
        ]
    end = End("/run", {"files/a": b"key=hunter22;"}, {"check": {"detail": "saw hunter22"}})
    await asyncio.to_thread(recording.end, end)
    assert live[0].value == {f"key is {REMOVED}": f"{REMOVED}!"}  # nor does the agent see it
    kept = studio.cassette.path.read_bytes()
    contents = [data for (data,) in studio.cassette.ask("SELECT data FROM contents")]
    assert b"hunter22" not in kept + b"".join(map(zlib.decompress, contents))
    studio.secrets = Secrets()  # another machine, where nobody knows the secret
    async with studio.replaying() as replaying:
        again = [
            await replaying.call(box("whoami")),
            await replaying.call(box("put_as", key=REMOVED, what="x")),
            await replaying.call(box("read", key=REMOVED)),
        ]
        assert [(r.value, r.text) for r in again] == [(r.value, r.text) for r in live]
        end = replaying.find_end() or End("", {})
        assert end.tree == {"files/a": b"key=********;"}


@pytest.mark.asyncio
async def test_a_cassette_that_cannot_be_written_ends_the_episode_as_infra(studio: Studio) -> None:
    async with studio.recording(end=False) as recording:
        studio.cassette.path.unlink()
        await recording.call(box("now"))
        assert "path that can be written" in recording.lost
