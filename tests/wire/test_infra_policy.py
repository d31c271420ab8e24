"""Whose a failure is: what clean servers fail on too is the agent's and is scored, everything else is infra.

Each case on servers in this process and on real ones; see `told.py` for what a server can be told.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atlas_gym.errors import StartError
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link, Runtime
from atlas_gym.runtime.manifest import Limits, Manifest
from atlas_gym.runtime.memory import MemoryRuntime
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.task.checks import tool_checks
from atlas_gym.task.kinds import ToolCheck
from atlas_gym.task.model import Task
from atlas_gym.types import ToolCall, ToolResult
from atlas_gym.wire import fake
from atlas_gym.wire.sessions import Sessions

State: TypeAlias = Literal["none", "workspace", "memory"]
SCRIPT = Path(__file__).with_name("told.py")
STATES: tuple[State, ...] = ("none", "workspace", "memory")

_spec = importlib.util.spec_from_file_location("told", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
told = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(told)


def install(name: str, state: State, **limits: Any) -> Installation:
    manifest = Manifest(
        name=name,
        description="A server that does what it is told.",
        registry="user",
        command=(sys.executable, "-I", str(SCRIPT), fake.__file__),
        state=state,
        state_bound="call",
        read_only=("look",),
        limits=Limits(**{"start_seconds": 20.0, "call_seconds": 20.0, **limits}),
    )
    return Installation(Server(manifest, None), Path("/nonexistent"), manifest.command, (Path("/"),))


class Watched:
    """A runtime that counts starts, and refuses them for one server where it is told to."""

    def __init__(self, inner: Runtime) -> None:
        self.inner = inner
        self.name = inner.name
        self.starts = 0
        self.refused = ""
        self.never = False

    async def start(self, installation: Installation, workspace: Workspace) -> Link:
        self.starts += 1
        if installation.server.name == self.refused:
            if self.never:
                await asyncio.Event().wait()
            raise StartError("The machine has no room.")
        return await self.inner.start(installation, workspace)

    async def aclose(self) -> None:
        await self.inner.aclose()


class Played:
    """One episode with the servers `a` and `b`."""

    def __init__(self, runtime: Watched, state: State, before: Callable[[], None], **limits: Any) -> None:
        self.runtime = runtime
        self.replicas: list[Workspace] = []
        self._before = before
        self.workspace = Workspace.create()
        self.sessions = Sessions(
            runtime,
            {name: install(name, state, **limits) for name in ("a", "b")},
            self.workspace,
            replica=self._replica,
        )

    def _replica(self) -> Workspace:
        self._before()
        self.replicas.append(Workspace.create("replica"))
        return self.replicas[-1]

    async def __call__(
        self, server: str, what: str, path: str = "", text: str = "", **how: Any
    ) -> ToolResult:
        arguments = {"what": what, "path": path, "text": text}
        call = ToolCall(server, how.pop("tool", "do"), arguments, via=how.pop("via", "json"))
        return await self.sessions.call(call, **how)


Episode: TypeAlias = Callable[..., AbstractAsyncContextManager[Played]]


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    yield tmp_path / "run"
    assert list((tmp_path / "run").iterdir()) == []  # of trials too, nothing stays


def in_memory() -> Runtime:
    return MemoryRuntime({name: lambda stream: told.serve(fake, stream) for name in ("a", "b")})


@asynccontextmanager
async def play(runtime: Runtime, state: State = "memory", **how: Any) -> AsyncIterator[Played]:
    played = Played(Watched(runtime), state, how.pop("before", lambda: None), **how)
    try:
        async with asyncio.timeout(60):
            yield played
    finally:
        await played.sessions.close()
        played.workspace.close()


@pytest.fixture(params=["memory", "process"])
def episode(request: pytest.FixtureRequest) -> Episode:
    return lambda *given, **how: play(
        in_memory() if request.param == "memory" else ProcessRuntime(), *given, **how
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("what", "failed", "words"),
    [("crash", "crashed", "died on these arguments"), ("hang", "timeout", "did not answer")],
)
async def test_a_write_that_fails_on_a_clean_server_too_is_scored(
    episode: Episode, state: State, what: str, failed: str, words: str
) -> None:
    async with episode(state) as play:
        await play("a", "remember", text="x")
        await play("a", "write", "/workspace/f", "kept")
        result = await play("a", what, seconds=0.4 if what == "hang" else None)
        assert (result.outcome, result.failed) == ("tool_error", failed), play.sessions.lost
        assert words in result.text
        assert "clean server" in result.text
        assert ("is lost" in result.text) == (state == "memory")
        assert ("files are as this call left them" in result.text) == (state == "workspace")
        assert (play.sessions.lost, play.sessions.infra_errors) == ("", 1)
        assert (await play("a", "recall", tool="look")).value == []
        assert (await play("a", "read", "/workspace/f", tool="look")).value == "kept"
        assert len(play.replicas) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("what", ["crash-if", "hang-if"])
async def test_a_write_that_fails_only_here_is_infra(
    episode: Episode, tmp_path: Path, state: State, what: str
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    async with episode(state, before=flag.unlink) as play:
        await play("a", "remember", text="x")
        result = await play("a", what, str(flag), seconds=0.4 if "hang" in what else None)
        assert result.outcome == ("timeout" if "hang" in what else "crashed")
        assert result.failed == ""
        assert "does not happen on a clean server" in play.sessions.lost
        assert ("state is gone" if state == "memory" else "half done") in play.sessions.lost
        assert (await play("a", "recall")).outcome == "crashed"


@pytest.mark.asyncio
async def test_any_failure_on_the_clean_server_counts(episode: Episode, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    async with episode("workspace", before=flag.unlink) as play:
        result = await play("a", "crash-or-hang", str(flag), seconds=1.0)
        assert (result.outcome, result.failed, play.sessions.lost) == ("tool_error", "crashed", "")


@pytest.mark.asyncio
async def test_a_flaky_read_is_healed(episode: Episode) -> None:
    async with episode("workspace") as play:
        result = await play("a", "crash-first", "/workspace/came-here", tool="look")
        assert (result.outcome, result.value) == ("ok", "second time"), result.text
        assert (play.sessions.lost, play.sessions.infra_errors, play.replicas) == ("", 1, [])


@pytest.mark.asyncio
async def test_what_another_server_wrote_is_repeated_first(episode: Episode) -> None:
    async with episode("workspace") as play:
        await play("a", "write", "/workspace/bomb")
        await play("a", "look")
        result = await play("b", "crash-if", "/workspace/bomb")
        assert (result.outcome, result.failed, play.sessions.lost) == ("tool_error", "crashed", "")


@pytest.mark.asyncio
async def test_ids_that_a_server_invents_do_not_hide_what_fails_without_them(episode: Episode) -> None:
    async with episode() as play:
        made = (await play("a", "new")).value
        result = await play("a", "crash-with", text=made)
        assert result.outcome == "crashed"
        assert "does not happen on a clean server" in play.sessions.lost
    async with episode() as play:
        made = (await play("a", "new")).value
        await play("a", "touch", text=made)
        result = await play("a", "crash")  # although the call before comes to something else on the copy
        assert (result.outcome, result.failed, play.sessions.lost) == ("tool_error", "crashed", "")


@pytest.mark.asyncio
@pytest.mark.parametrize("tool", ["do", "look"])
async def test_a_server_that_an_earlier_call_ended_is_scored(episode: Episode, tool: str) -> None:
    async with episode() as play:
        assert (await play("a", "remember", text="x")).outcome == "ok"
        assert (await play("a", "die-after", tool=tool)).outcome == "ok"
        assert await play.sessions._slots["a"].session.ends(seconds=20)  # type: ignore[union-attr]
        result = await play("a", "remember", text="y")
        assert (result.outcome, result.failed, play.sessions.lost) == ("tool_error", "crashed", "")
        assert "is lost" in result.text
        assert (await play("a", "recall")).value == []


@pytest.mark.asyncio
async def test_a_server_that_ended_by_itself_is_infra(episode: Episode, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    async with episode(before=flag.unlink) as play:
        await play("a", "die-after-if", str(flag))
        assert await play.sessions._slots["a"].session.ends(seconds=20)  # type: ignore[union-attr]
        result = await play("a", "recall", seconds=0.5)
        assert result.outcome == "crashed"
        assert "died between two calls" in play.sessions.lost
    async with episode("workspace") as play:
        await play("a", "die-after")
        assert await play.sessions._slots["a"].session.ends(seconds=20)  # type: ignore[union-attr]
        assert (await play("a", "write", "/workspace/f", "x")).outcome == "ok"
        assert (play.sessions.lost, play.sessions.infra_errors, play.replicas) == ("", 1, [])


@pytest.mark.asyncio
async def test_a_server_that_cannot_start_for_what_the_agent_wrote_is_scored_until_it_is_undone(
    episode: Episode,
) -> None:
    async with episode("workspace") as play:
        await play("a", "write", "/workspace/poison")
        for _ in range(3):
            result = await play("b", "read", "/workspace/poison")
            assert (result.outcome, result.failed, play.sessions.lost) == ("tool_error", "crashed", "")
            assert "can no longer be started" in result.text
        assert len(play.replicas) == 2  # with what was done and without it, once
        await play("a", "remove", "/workspace/poison")
        assert (await play("b", "write", "/workspace/f", "x")).outcome == "ok"


@pytest.mark.asyncio
async def test_a_server_that_starts_nowhere_is_infra(episode: Episode) -> None:
    async with episode("workspace") as play:
        play.runtime.refused = "b"
        assert (await play("b", "recall")).outcome == "crashed"
        assert "nothing was done before" in play.sessions.lost
        assert (play.runtime.starts, play.replicas) == (2, [])  # the start was repeated
    async with episode("workspace") as play:
        await play("a", "write", "/workspace/f", "x")
        play.runtime.refused = "b"
        assert (await play("b", "recall")).outcome == "crashed"
        assert "fails in an untouched workspace too" in play.sessions.lost


def checked(**fields: Any) -> Task:
    check = ToolCheck(name="gone", server="a", tool="look", **fields)
    return Task(
        id="t/x-0000",
        suite="t",
        difficulty="easy",
        prompt="Do it.",
        servers=("a",),
        checks=(check,),
        gold="answer('x')",
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("what", ["crash-if", "hang-if"])
async def test_a_check_that_the_agent_made_impossible_fails_and_never_passes(
    episode: Episode, fails: bool, what: str
) -> None:
    asked = {"what": what, "path": "/workspace/bomb"}
    task = checked(arguments=asked, **({"fails": True} if fails else {"expected": {"": "done"}}))
    async with episode("workspace") as play:
        await play("a", "write", "/workspace/bomb")
        [result] = await tool_checks(task, lambda call: play.sessions.call(call, seconds=0.5))
        assert (result.passed, result.error, play.sessions.lost) == (False, "", "")
        assert "clean" in result.detail


@pytest.mark.asyncio
async def test_a_check_that_fails_on_an_untouched_workspace_is_infra(episode: Episode) -> None:
    async with episode("workspace") as play:
        await play("a", "write", "/workspace/f", "x")
        [result] = await tool_checks(checked(arguments={"what": "crash"}, fails=True), play.sessions.call)
        assert not result.passed
        assert result.error
        assert "fails in an untouched workspace too" in play.sessions.lost


@pytest.mark.asyncio
async def test_trials_are_few_and_one_who_crashed_twice_is_not_tried_again(episode: Episode) -> None:
    async with episode() as play:
        for n in range(5):
            result = await play("a", "crash", text=str(n // 2))
            assert (result.outcome, result.failed, play.sessions.lost) == ("tool_error", "crashed", "")
        assert len(play.replicas) == 2


@pytest.mark.asyncio
async def test_a_trial_that_takes_too_long_shows_nothing() -> None:
    async with play(in_memory(), "workspace", start_seconds=0.2) as played:
        await played("b", "write", "/workspace/f")

        def stuck() -> None:
            played.runtime.refused, played.runtime.never = "b", True

        played._before = stuck
        assert (await played("a", "hang", seconds=0.1)).outcome == "timeout"
        assert "a trial on a clean server took too long" in played.sessions.lost


@pytest.mark.asyncio
async def test_closing_during_a_trial_leaves_nothing(episode: Episode) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with episode(before=lambda: loop.call_soon_threadsafe(begun.set)) as play:
        call = asyncio.ensure_future(play("a", "hang", seconds=1.0))
        await begun.wait()
        await play.sessions.close()
        assert (await call).outcome == "crashed"


@pytest.mark.asyncio
async def test_without_a_replica_no_failed_write_is_the_agents() -> None:
    workspace = Workspace.create()
    sessions = Sessions(in_memory(), {"a": install("a", "workspace")}, workspace)
    result = await sessions.call(ToolCall("a", "do", {"what": "crash"}))
    assert (result.outcome, "could not be tried" in sessions.lost) == ("crashed", True)
    await sessions.close()
    workspace.close()


WHAT = st.sampled_from(["remember", "recall", "write", "crash", "die-after"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from("ab"), WHAT, st.integers(0, 2)), max_size=10), st.sampled_from(STATES)
)
def test_whatever_an_agent_crashes_its_episode_is_scored(
    script: list[tuple[str, str, int]], state: State
) -> None:
    async def go() -> None:
        async with play(in_memory(), state) as played:
            memory: dict[str, list[str]] = {"a": [], "b": []}
            dying: set[str] = set()
            for server, what, n in script:
                died = server in dying
                if died:  # the next call finds it dead, not dying
                    assert await played.sessions._slots[server].session.ends(seconds=20)  # type: ignore[union-attr]
                    dying.discard(server)
                    memory[server] = []
                result = await played(server, what, f"/workspace/{n}", str(n))
                if (died and state == "memory") or what == "crash":
                    assert (result.outcome, result.failed) == ("tool_error", "crashed")
                    memory[server] = []
                    continue
                assert result.outcome == "ok", result.text
                if what == "die-after":
                    dying.add(server)
                if what == "remember":
                    memory[server].append(str(n))
                if what == "recall":
                    assert result.value == memory[server]
            assert played.sessions.lost == ""
            assert len(played.replicas) <= 2

    asyncio.run(go())
