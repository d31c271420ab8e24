"""One MCP session over one link: the handshake, tool listings, calls, resources.

Owns an actor task that runs the SDK's dispatcher and closes the link in the same task, two deadlines
for every request, and what each failure is called. Does not know tasks, budgets or other sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from atlas_gym.errors import StartError, WireError
from atlas_gym.types import Failed, Outcome
from atlas_gym.wire import handshake
from atlas_gym.wire.codec import Unsendable
from atlas_gym.wire.handshake import ServerInfo
from atlas_gym.wire.stream import Channel
from atlas_gym.wire.values import Blob, Block, resource, unpack

if TYPE_CHECKING:
    from atlas_gym.runtime.link import Link

MAX_PAGES: Final = 100
MAX_TOOLS: Final = 2_000
"""Where the listing of a server that pages without end is cut."""

_GRACE: Final = 0.5
"""Seconds by which our own deadline lies behind the SDK's, which does not cover a blocked write."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request came to. `text` is for the agent; it holds nothing of this machine's."""

    outcome: Outcome
    value: Any = None
    text: str = ""
    blobs: tuple[Blob, ...] = ()
    detail: str = ""
    """For people: exit status and last words on stderr of a server that died."""
    failed: Failed = ""
    """How the server failed, where that is the agent's own error."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Every tool that a server lists, raw, and what was odd about the listing."""

    tools: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()


class _Late(Exception):
    """The deadline passed."""


class _Gone(Exception):
    """The server closed the connection or died."""


class _Running:
    """What the dispatcher calls when it is ready, in the shape of an anyio task status."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def started(self, value: None = None) -> None:
        self.event.set()


class Session:
    """A connected server. Made by `open`; every coroutine runs on one event loop."""

    def __init__(self, link: Link, name: str) -> None:
        self.name: Final = name
        self.info = ServerInfo()
        self.broken = ""
        """Why the session can no longer be used; "" while it can."""
        self.calls = 0
        self._link = link
        self._channel = Channel(link)
        self._dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(
            self._channel, self._channel
        )
        self._running = _Running()
        self._ended = False
        self._ending = False
        self._stamp: dict[str, Any] = {}
        self._actor = asyncio.create_task(self._live(), name=f"atlas-gym session {name}")

    @property
    def walls(self) -> str:
        """What holds the server, for traces."""
        return self._link.walls

    @property
    def how(self) -> str:
        """How it was started."""
        return self._link.how

    @property
    def own_paths(self) -> bool:
        """Whether the agent's paths are real to this server: nothing is translated on the way to it."""
        return self._link.own_paths

    @classmethod
    async def open(cls, link: Link, *, name: str, protocol: str = "legacy", seconds: float) -> Session:
        """Shake hands with a started server. The link is the session's from here on, also on failure.

        Args:
            link: The server's byte streams.
            name: What messages call the server.
            protocol: "legacy" (`initialize`), or "auto": the same, and a server that speaks only the
                protocol without sessions is asked what it speaks. Neither waits for a silent probe.
            seconds: For the whole handshake.

        Raises:
            StartError: It did not answer in time, refused, or died; with its last lines on stderr.
        """
        session = cls(link, name)
        try:
            async with asyncio.timeout(seconds):
                await session._running.event.wait()
                session.info, session._stamp = await handshake.shake(
                    session._dispatcher, protocol=protocol, seconds=seconds
                )
        except BaseException as exc:
            await session.close()
            late = isinstance(exc, TimeoutError) or (
                isinstance(exc, MCPError) and exc.code == REQUEST_TIMEOUT
            )
            if late:
                why = f"did not answer the handshake within {seconds:g} s"
            elif isinstance(exc, MCPError) and exc.code == CONNECTION_CLOSED and session._channel.ended:
                why = f"ended during the handshake ({session._epitaph()})"
            elif isinstance(exc, MCPError):
                why = f"refused the handshake: {exc.message.rstrip('.')}"
            else:
                raise
            raise StartError(
                f"Server {name!r} {why}.{session._last_words()}\nTo see it for yourself: {link.command}"
            ) from exc
        return session

    async def list_tools(self, *, seconds: float) -> Listing:
        """Every page of `tools/list`, as raw dictionaries; entries that are no tool at all are left out.

        Raises:
            WireError: The server refused, died, or did not finish in time.
        """
        tools: list[dict[str, Any]] = []
        notes: list[str] = []
        names: set[str] = set()
        cursors: set[str] = set()
        params: dict[str, Any] = {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        for _ in range(MAX_PAGES):
            page = await self._ask("tools/list", params, max(deadline - loop.time(), 0.001))
            entries = page.get("tools")
            if not isinstance(entries, list):
                notes.append("a page of tools/list holds no list of tools")
                entries = []
            for raw in entries:
                name = raw.get("name") if isinstance(raw, dict) else None
                if not isinstance(name, str) or not name:
                    notes.append("an entry of tools/list has no name and was left out")
                elif name in names:
                    notes.append(f"tool {name!r} is listed twice; the first one counts")
                else:
                    names.add(name)
                    tools.append(raw)
            cursor = page.get("nextCursor")
            if cursor is None or cursor == "":
                break
            if not isinstance(cursor, str) or cursor in cursors:
                notes.append(f"tools/list repeats its cursor after {len(tools)} tools; the rest was left out")
                break
            if len(tools) >= MAX_TOOLS:
                notes.append(f"tools/list is longer than {MAX_TOOLS} tools; the rest was left out")
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        else:
            notes.append(f"tools/list has more than {MAX_PAGES} pages; the rest was left out")
        return Listing(tuple(tools), (*notes, *self.notes()))

    async def call(self, tool: str, arguments: Mapping[str, Any], *, seconds: float) -> Reply:
        """One `tools/call`. Never raises for what the server or the arguments do.

        After a `timeout` or `crashed` the session is `broken`: what the server still does is unknown.
        """
        if self.broken:
            return Reply("crashed", text=f"Server {self.name!r} is gone.", detail=self.broken)
        self.calls += 1
        try:
            raw = await self._request("tools/call", {"name": tool, "arguments": dict(arguments)}, seconds)
        except MCPError as exc:
            return Reply("tool_error", text=exc.message or "The server refused the call without a reason.")
        except Unsendable as exc:
            return Reply("invalid_call", text=f"Nothing was sent to {self.name}.{tool}: {exc}.")
        except _Late:
            text = f"{self.name}.{tool} did not answer within {seconds:g} s."
            return Reply("timeout", text=text, detail=f"{text}{self._last_words()}")
        except _Gone:
            return Reply("crashed", text=f"Server {self.name!r} died during {tool}.", detail=self.broken)
        if raw.get("resultType") == "input_required":
            return Reply(
                "tool_error", text="The tool asks for a person's input, and nobody is there to give it."
            )
        value, text, blobs = unpack(raw)
        if raw.get("isError") is True:
            return Reply("tool_error", text=text or "The tool failed without saying why.", blobs=blobs)
        return Reply("ok", value, text, blobs)

    async def read_resource(self, uri: str, *, seconds: float) -> Reply:
        """One `resources/read`, in the form of a call's reply.

        Raises:
            WireError: The server refused, died, or did not answer in time.
        """
        raw = await self._ask("resources/read", {"uri": uri}, seconds)
        contents = raw.get("contents")
        blocks: list[Block] = (
            [resource(c) for c in contents if isinstance(c, dict)] if isinstance(contents, list) else []
        )
        values = [block.read() for block in blocks]
        return Reply(
            "ok",
            value=values[0] if len(values) == 1 else values,
            text="\n".join(block.text for block in blocks),
            blobs=tuple(block.blob for block in blocks if block.blob),
        )

    def notes(self) -> tuple[str, ...]:
        """What was odd about the server's output so far."""
        lines = self._channel.lines
        if not lines.noise:
            return ()
        return (
            f"{lines.noise} lines of stdout were no JSON-RPC and were ignored (first: {lines.first_noise!r})",
        )

    @property
    def over(self) -> bool:
        """Whether no call can be made any more; true a moment before `broken` can say why."""
        return bool(self.broken) or self._ending

    async def ends(self, *, seconds: float) -> bool:
        """Whether the server ends by itself within some time."""
        if not self.broken:
            await asyncio.wait({self._actor}, timeout=seconds)
        return bool(self.broken)

    async def close(self) -> None:
        """End the server and the actor. Idempotent, bounded by the link's own escalation."""
        self.broken = self.broken or f"the session with {self.name!r} was closed"
        await self._end()

    async def _end(self) -> None:
        if not self._ended and not self._ending:
            self._ended = True  # a second cancel, or one while the link is being closed, would interrupt that
            self._actor.cancel()
        await asyncio.wait({self._actor})

    async def _live(self) -> None:
        try:
            await self._dispatcher.run(_answer, _ignore, task_status=self._running)
        except Exception as exc:  # noqa: BLE001 - whatever the link or the dispatcher raises ends this session only
            self._channel.ended = f"reading failed: {exc!r}"
        finally:
            self._ending = True
            self._running.event.set()
            await self._link.aclose()
            self.broken = self.broken or f"{self._epitaph()}.{self._last_words()}"

    async def _ask(self, method: str, params: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """A request whose failures are a `WireError` each."""
        if self.broken:
            raise WireError(f"Server {self.name!r} cannot be asked for {method}: {self.broken}")
        try:
            return await self._request(method, params, seconds)
        except MCPError as exc:
            raise WireError(f"Server {self.name!r} refused {method}: {exc.message}") from exc
        except Unsendable as exc:
            raise WireError(f"{method} was not sent to server {self.name!r}: {exc}.") from exc
        except _Late:
            raise WireError(
                f"Server {self.name!r} did not answer {method} in time.{self._last_words()}"
            ) from None
        except _Gone:
            raise WireError(f"Server {self.name!r} died during {method}: {self.broken}") from None

    async def _request(self, method: str, params: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        if self._stamp:
            params = {**params, "_meta": self._stamp}
        # No courtesy cancel: a session whose request was abandoned is closed, and the notice could block.
        options: CallOptions = {"timeout": seconds, "cancel_on_abandon": False}
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            async with asyncio.timeout(seconds + _GRACE):
                return await self._dispatcher.send_raw_request(method, params, options)
        except TimeoutError:
            pass
        except MCPError as exc:
            if exc.code == CONNECTION_CLOSED and (self._channel.ended or self._ended or self._ending):
                await self._end()
                raise _Gone from None
            if exc.code != REQUEST_TIMEOUT or loop.time() - start < seconds:
                raise  # the server's own words, whatever code it chose
        self.broken = f"{method} did not answer within {seconds:g} s"
        raise _Late from None

    def _epitaph(self) -> str:
        status = self._link.exit_status
        how = "" if status is None else f", exit status {status}"
        what = self._channel.ended.partition(" Its last lines:")[0].rstrip(".")  # they are said apart
        return f"{what or 'the connection ended'}{how}"

    def _last_words(self) -> str:
        tail = self._link.stderr_tail().strip()
        return f" Its last words on stderr:\n{tail}" if tail else " It wrote nothing to stderr."


async def _answer(
    context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What a server gets that asks its client for something: at once, so that it never waits for us."""
    if method == "ping":
        return {}
    if method == "roots/list":
        return {"roots": []}
    raise MCPError(METHOD_NOT_FOUND, f"This client offers no {method}.")


async def _ignore(
    context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
) -> None:
    """Notifications: none reaches the dispatcher, see `Channel`."""
