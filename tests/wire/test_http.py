"""Servers over HTTP: real ones of every protocol, and every fault of one that misbehaves, typed."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from atlas_gym import settings
from atlas_gym.errors import StartError
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.http import HttpRuntime
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Limits, Manifest
from atlas_gym.runtime.mixed import ByServer
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.types import Outcome, ToolCall
from atlas_gym.wire import fake
from atlas_gym.wire.session import Session
from atlas_gym.wire.sessions import Sessions

HERE = Path(__file__).parents[1]
SECRET = "hunter2-hunter2"
Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Session]]


@pytest.fixture(autouse=True)
def own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("SOME_TOKEN", SECRET)


def serve(*command: str) -> Iterator[str]:
    """A server's address, while it runs."""
    with subprocess.Popen(
        [*command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def faulty() -> Iterator[str]:
    yield from serve(sys.executable, "-B", str(HERE / "http_faults.py"))


def old_python() -> str:
    """An interpreter whose SDK is of the first generation, from the environments of installed servers."""
    for found in sorted(settings.cache_dir().glob("servers/mcp-server-sqlite-*/bin/python")):
        return str(found)
    return ""


REAL = {
    "streams, sessions": [],
    "json, sessions": ["json"],
    "streams, stateless": ["stateless"],
    "json, stateless": ["json", "stateless"],
    "streams, new protocol": ["modern"],
    "json, new protocol": ["modern", "json"],
    "old SDK, streams": ["old"],
    "old SDK, json, stateless": ["old", "json", "stateless"],
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(k, marks=pytest.mark.servers if "old" in REAL[k] else ()) for k in REAL],
    ids=lambda name: name.replace(", ", "-").replace(" ", "_"),
)
def real(request: pytest.FixtureRequest) -> Iterator[tuple[list[str], str]]:
    flags = REAL[request.param]
    python = sys.executable
    if "old" in flags:
        python = old_python()
        if not python:
            pytest.skip("mcp-server-sqlite is not installed: atlas-gym servers install mcp-server-sqlite")
    for address in serve(python, "-B", str(HERE / "http_server.py"), *flags):
        yield flags, f"{address}/mcp"


def installation(url: str, **more: Any) -> Installation:
    manifest = Manifest(
        name="far",
        description="A server that runs elsewhere.",
        registry="user",
        state=more.pop("state", "memory"),
        state_bound="import",
        url=url,
        protocol="auto",
        **more,
    )
    return Installation(Server(manifest, None), Path("/nonexistent"), (), ())


@pytest.fixture
def opened() -> Opened:
    @asynccontextmanager
    async def enter(url: str, seconds: float = 20, **more: Any) -> AsyncIterator[Session]:
        workspace = Workspace.create()
        try:
            async with asyncio.timeout(60):
                link = await HttpRuntime().start(installation(url, **more), workspace)
                session = await Session.open(link, name="far", protocol="auto", seconds=seconds)
                try:
                    yield session
                finally:
                    await session.close()
        finally:
            workspace.close()

    return enter


def seen(faulty: str, path: str) -> list[dict[str, Any]]:
    """What the faulty server was asked at a path."""
    with urllib.request.urlopen(f"{faulty}/seen") as response:
        return [request for request in json.load(response) if request["path"].startswith(path)]


@pytest.mark.asyncio
async def test_a_real_server(real: tuple[list[str], str], opened: Opened) -> None:
    flags, url = real
    async with opened(url) as session:
        assert session.info.name == "real"
        assert session.info.protocol == ("2026-07-28" if "modern" in flags else "2025-11-25")
        names = [tool["name"] for tool in (await session.list_tools(seconds=20)).tools]
        assert {"echo", "add", "count", "big"} <= set(names)
        echo = await session.call("echo", {"text": "grüße \U0001f600\n[1,"}, seconds=20)
        assert (echo.outcome, echo.value) == ("ok", "grüße \U0001f600\n[1,")
        assert (await session.call("add", {"a": 1, "b": 2}, seconds=20)).value == {"sum": 3}
        failed = await session.call("fail", {"message": "no cheese"}, seconds=20)
        assert failed.outcome == "tool_error"
        assert (await session.call("talk", {"lines": 20}, seconds=20)).value == "talked"
        large = await session.call("big", {"size": 4 * 2**20}, seconds=20)
        assert large.outcome == "ok"
        assert len(large.value) == 4 * 2**20
        if "stateless" not in flags and "modern" not in flags:
            assert (await session.call("roots", {}, seconds=20)).value == 0
        if "modern" in flags:
            for region in ("eu", "Zürich "):
                reply = await session.call("where", {"region": region, "verbose": True}, seconds=20)
                assert (reply.outcome, reply.text) == ("ok", f"{region}, True")
            link: Any = session._link
            assert link._client._marks == {"where": {("region",): "Region", ("verbose",): "Verbose"}}
        late = await session.call("wait", {"seconds": 30}, seconds=0.2)
        assert late.outcome == "timeout"


@pytest.mark.asyncio
async def test_sessions_beside_each_other_keep_their_calls_in_order(
    real: tuple[list[str], str], opened: Opened
) -> None:
    async with opened(real[1]) as one, opened(real[1]) as two:
        texts = [f"{number}" for number in range(10)]

        async def ask(session: Session) -> list[Any]:
            return [(await session.call("echo", {"text": text}, seconds=20)).text for text in texts]

        assert list(await asyncio.gather(ask(one), ask(two))) == [texts, texts]
        together = await asyncio.gather(*(one.call("echo", {"text": text}, seconds=20) for text in texts))
        assert [reply.text for reply in together] == texts


@pytest.mark.asyncio
async def test_a_server_that_dies_during_a_call(opened: Opened) -> None:
    for address in serve(sys.executable, "-B", str(HERE / "http_server.py")):
        async with opened(f"{address}/mcp") as session:
            reply = await session.call("die", {}, seconds=20)
            assert reply.outcome == "crashed"
            assert f"{address}/mcp: " in reply.detail
            again = await session.call("echo", {"text": "x"}, seconds=20)
            assert again.outcome == "crashed"
        with pytest.raises(StartError, match=r"http://127\.0\.0\.1.*initialize failed: ConnectError"):
            async with opened(f"{address}/mcp"):
                pass


ANSWERED: list[tuple[str, Outcome, Any]] = [
    # what the server does, outcome, value or a pattern of the text
    ("stream", "ok", "answer"),
    ("stream-stays", "ok", "answer"),
    ("stream-returns", "ok", "answer"),
    ("stream-old-macs", "ok", "answer"),
    ("stream-lines", "ok", "answer"),
    ("stream-bytes", "ok", "answer"),
    ("stream-unfinished", "ok", "answer"),
    ("stream-garbage", "ok", "answer"),
    ("stream-asks", "ok", "answer"),
    ("stream-wrong-id", "ok", "answer"),
    ("resumed", "ok", "resumed"),
    ("pretty", "ok", "answer"),
    ("no-type", "ok", "answer"),
    ("batch", "ok", "answer"),
    ("other-id", "ok", "answer"),
    ("redirected", "ok", "answer"),
    ("large", "ok", "x" * (8 * 2**20)),
    ("null-id", "tool_error", "^bad arguments$"),
    ("too-large", "tool_error", "cannot be read: larger than 32 MiB"),
    ("stream-endless", "tool_error", "cannot be read: larger than 32 MiB"),
    ("deep", "tool_error", "cannot be read: nested deeper"),
    ("error-400", "tool_error", "^bad arguments$"),
    ("error-413", "tool_error", "refused tools/call: HTTP 413 .*too much"),
    ("error-500-own", "tool_error", "^it broke$"),
]
ENDED: list[tuple[str, Outcome, str]] = [
    # what the server does, outcome, a pattern of why the session is over
    ("error-401", "crashed", r"HTTP 401 Unauthorized .*its headers take SOME_TOKEN from your environment"),
    ("error-404", "crashed", r"the session has expired: HTTP 404 Not Found \(gone\)"),
    ("error-404-own", "crashed", r"the session has expired"),
    ("sessionless", "crashed", r"tools/call was answered with HTTP 404 Not Found \(gone\)"),
    ("error-500", "crashed", r"HTTP 500 Internal Server Error \(Internal . error\)"),
    ("error-503", "crashed", r"HTTP 503 Service Unavailable"),
    ("elsewhere", "crashed", r"HTTP 307 .*leads to http://localhost:9/ and was not followed"),
    ("accepted", "crashed", r"HTTP 202 Accepted: it will not answer this request"),
    ("page", "crashed", r"is no JSON-RPC but text/html: '<html>Sign in</html>'"),
    ("empty", "crashed", r"is no JSON-RPC but application/json: ''"),
    ("half", "crashed", r"tools/call failed: RemoteProtocolError"),
    ("reset", "crashed", r"tools/call failed: (ReadError|RemoteProtocolError)"),
    ("reset-stream", "crashed", r"the stream of tools/call (broke off|ended without an answer)"),
    ("no-http", "crashed", r"tools/call failed: RemoteProtocolError"),
    ("stream-ends", "crashed", r"the stream of tools/call ended without an answer"),
    ("stream-floods", "crashed", r"the stream of tools/call is flooded"),
    ("resumed-never", "crashed", r"its answer to tools/call broke off again and again"),
    ("hang", "timeout", r"did not answer within 0.3 s"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("mode", "outcome", "expected"), ANSWERED, ids=[row[0] for row in ANSWERED])
async def test_an_odd_answer_is_typed_and_the_session_works_on(
    faulty: str, opened: Opened, mode: str, outcome: Outcome, expected: Any
) -> None:
    async with opened(f"{faulty}/{mode}") as session:
        reply = await session.call("bad", {}, seconds=20)
        assert reply.outcome == outcome, (reply.text, reply.detail)
        if outcome == "ok":
            assert reply.value == expected
        else:
            assert re.search(expected, reply.text)
        assert (await session.call("ok", {}, seconds=20)).value == "fine"


@pytest.mark.asyncio
@pytest.mark.parametrize(("mode", "outcome", "why"), ENDED, ids=[row[0] for row in ENDED])
async def test_what_ends_a_session_is_infra_and_says_why(
    faulty: str, opened: Opened, mode: str, outcome: Outcome, why: str
) -> None:
    headers = {"Authorization": "Bearer ${SOME_TOKEN}"}
    async with opened(f"{faulty}/{mode}", headers=headers) as session:
        reply = await session.call("bad", {}, seconds=0.3 if outcome == "timeout" else 20)
        assert reply.outcome == outcome, reply.text
        assert re.search(why, reply.detail), reply.detail
        assert SECRET not in repr(reply)
        assert (await session.call("ok", {}, seconds=20)).outcome == "crashed"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("start-401", r'HTTP 401 .*invalid_token.*names no variable: add "headers"'),
        ("start-404", r"HTTP 404 .*nothing here.*Is it the address of a streamable HTTP endpoint\?"),
        ("start-page", r"no JSON-RPC but text/html: '<html>Welcome"),
        ("start-500", r"HTTP 500 .*no cheese"),
        ("start-elsewhere", r"HTTP 307 .*leads to http://localhost:9/mcp and was not followed"),
        ("start-get", r"HTTP 302 .*leads to http://127\.0\.0\.1.*/sessionless/x and was not followed"),
        ("start-round", r"HTTP 307 .*was not followed"),
        ("start-silent", r"did not answer the handshake within 0.3 s"),
        ("start-reset", r"initialize failed: (ReadError|RemoteProtocolError)"),
    ],
)
async def test_a_start_that_fails_says_why(faulty: str, opened: Opened, mode: str, why: str) -> None:
    with pytest.raises(StartError, match=why) as caught:
        async with opened(f"{faulty}/{mode}", seconds=0.3 if mode == "start-silent" else 20):
            pass
    assert "abcd1234" not in str(caught.value)
    assert "To see it for yourself: curl -i " in str(caught.value)


@pytest.mark.asyncio
async def test_what_is_sent_with_each_message(faulty: str, opened: Opened) -> None:
    async with opened(f"{faulty}/headers/a", headers={"X-Key": "${SOME_TOKEN}", "Accept": "no"}) as session:
        await session.call("bad", {"n": 1}, seconds=20)
    requests = seen(faulty, "/headers/a")
    assert [request["verb"] for request in requests] == ["POST", "POST", "GET", "POST", "DELETE"]
    assert {request["headers"]["x-key"] for request in requests} == {SECRET}
    assert {request["headers"]["accept"] for request in requests} == {"application/json, text/event-stream"}
    later = [(r["headers"].get("mcp-session-id"), r["headers"].get("mcp-protocol-version")) for r in requests]
    assert later == [(None, None)] + [("s-1", "2025-06-18")] * 4
    assert json.loads(requests[3]["body"])["params"] == {"name": "bad", "arguments": {"n": 1}}


@pytest.mark.asyncio
async def test_a_question_of_the_server_is_answered_on_a_request_of_its_own(
    faulty: str, opened: Opened
) -> None:
    async with opened(f"{faulty}/stream-asks/b") as session:
        assert (await session.call("bad", {}, seconds=20)).value == "answer"
    bodies = [json.loads(request["body"]) for request in seen(faulty, "/stream-asks/b") if request["body"]]
    assert {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}} in bodies


@pytest.mark.asyncio
async def test_the_end_does_not_wait_for_a_server_that_hangs(faulty: str, opened: Opened) -> None:
    loop = asyncio.get_running_loop()
    async with opened(f"{faulty}/delete-hangs") as session:
        assert (await session.call("ok", {}, seconds=20)).value == "fine"
        start = loop.time()
    assert loop.time() - start < 20


@pytest.mark.asyncio
async def test_secrets_are_replaced_in_what_a_server_repeats(faulty: str, opened: Opened) -> None:
    headers = {"Authorization": "Bearer ${SOME_TOKEN}", "X-Literal": "literal-secret"}
    async with opened(f"{faulty}/headers?api_key=query-secret", headers=headers) as session:
        reply = await session.call("bad", {}, seconds=20)
        assert reply.value["authorization"] == "Bearer ***"
        assert reply.value["x-literal"] == "***"
        shown = repr(reply) + repr(vars(session)) + session._link.command + session._link.stderr_tail()
        assert not re.search(f"{SECRET}|literal-secret|query-secret", shown)
    sent = [request["headers"] for request in seen(faulty, "/headers?api_key")]
    assert {headers["authorization"] for headers in sent} == {f"Bearer {SECRET}"}


@pytest.mark.asyncio
async def test_an_unset_variable_is_named(
    faulty: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOME_TOKEN")
    with pytest.raises(StartError, match=r"variable SOME_TOKEN in your mcp\.json, which is not set"):
        async with opened(f"{faulty}/x", headers={"Authorization": "Bearer ${SOME_TOKEN}"}):
            pass


@pytest.mark.asyncio
async def test_servers_of_both_sorts_in_one_episode(faulty: str) -> None:
    command = (sys.executable, "-I", str(Path(fake.__file__)))
    near = Manifest(
        name="near",
        description="A process.",
        registry="user",
        state="memory",
        state_bound="call",
        command=command,
        limits=Limits(start_seconds=30),
    )
    servers = {
        "far": installation(f"{faulty}/plain"),
        "near": Installation(Server(near, None), Path("/nonexistent"), command, (Path("/"),)),
    }
    workspace = Workspace.create()
    runtime = ByServer(ProcessRuntime())
    sessions = Sessions(runtime, servers, workspace)
    try:
        async with asyncio.timeout(60):
            far = await sessions.call(ToolCall("far", "ok", {}))
            local = await sessions.call(ToolCall("near", "echo", {"text": "x"}))
        assert (runtime.name, far.value, local.value) == ("process", "fine", "x")
        assert sessions.walls["far"] == "none (shared server)"
    finally:
        await sessions.close()
        workspace.close()
        await runtime.aclose()


@pytest.mark.asyncio
async def test_an_expired_session_costs_a_read_nothing(faulty: str) -> None:
    """The rule for infra failures holds over HTTP: a read is repeated on a new session, then the agent's."""
    servers = {"far": installation(f"{faulty}/error-404", state="workspace", read_only=("bad",))}
    workspace = Workspace.create()
    sessions = Sessions(HttpRuntime(), servers, workspace)
    try:
        async with asyncio.timeout(60):
            result = await sessions.call(ToolCall("far", "bad", {}))
            assert (result.outcome, sessions.infra_errors, sessions.lost) == ("tool_error", 2, "")
            assert (await sessions.call(ToolCall("far", "ok", {}))).value == "fine"
    finally:
        await sessions.close()
        workspace.close()
