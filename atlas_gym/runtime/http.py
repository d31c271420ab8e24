"""The `http` runtime: servers that run elsewhere, reached over streamable HTTP.

Owns one link's requests: each line that is sent becomes a POST, each message that comes back a line. Over
httpx2 itself, as the SDK does, because its transport drops what a session must tell apart (an expired
session, a refused key, a body that is no answer) and reads every message into a model first. Does not know
methods beyond those that begin a session, nor whose state the server keeps: it is shared, and has no walls.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, Final

import httpx2

from atlas_gym.errors import StartError, WireError
from atlas_gym.runtime.http_client import Client, drain, excerpt, is_stream, leads_to, said
from atlas_gym.runtime.http_headers import Endpoint, by_hand, resolve, shown
from atlas_gym.runtime.http_stream import MAX_BODY, Event, Events, TooLong, error_line, one_line, read
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.workspace import Workspace

WALLS: Final = "none (shared server)"
_GOODBYE: Final = 2.0
"""Seconds for each step of ending a link."""
_CONNECT: Final = 30.0
_RESUMES: Final = 3
"""How often a stream that ended early is taken up again before its request is lost."""
_PAUSE: Final = 1.0
"""Seconds before that, unless the server says."""
_MAX_WAIT: Final = 5.0
_OPENING: Final = 0.5
"""Seconds in which a session's own stream should be open, so that the first call's questions are heard."""
_BUFFER: Final = 1 << 20
"""Bytes that wait to be read before the server has to."""
_MAX_UNUSED: Final = MAX_BODY + (4 << 20)
"""Bytes of a stream without one message, before it is given up as flooding."""
_BEGINNINGS: Final = ("initialize", "server/discover")
_WRONG_PLACE: Final = ". Is it the address of a streamable HTTP endpoint?"
_INTERNAL, _NOT_FOUND, _UNREADABLE, _OTHER_VERSION = -32603, -32601, -32700, -32022
_ITS_OWN: Final = (400, 413, 414, 415, 422, 431)
"""Statuses that blame the request: an error of that call. Any other is the server's, and ends the link."""


class _Lines:
    """Whole lines from the server, bounded: who adds waits while nobody reads."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._closed = False
        self._changed = asyncio.Condition()

    async def put(self, line: bytes) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or self._size < _BUFFER)
            if not self._closed:
                self._lines.append(line)
                self._size += len(line)
                self._changed.notify_all()

    async def get(self) -> bytes:
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or bool(self._lines))
            if not self._lines:
                return b""
            line = self._lines.popleft()
            self._size -= len(line)
            self._changed.notify_all()
            return line

    async def close(self) -> None:
        async with self._changed:
            self._closed = True
            self._changed.notify_all()


class HttpLink:
    """One session with a running server. Made by `HttpRuntime.start`; connects at its first message."""

    walls: Final = WALLS
    how: Final = "http"
    own_paths: Final = False
    exit_status: Final = None
    """Whether the server itself has ended cannot be seen from here."""

    def __init__(self, name: str, endpoint: Endpoint, command: str, connect_seconds: float) -> None:
        self.name = name
        self.command = command
        self._endpoint = endpoint
        self._client = Client(endpoint, connect_seconds)
        self._inbox = _Lines()
        self._tasks: set[asyncio.Task[None]] = set()
        self._why = ""
        self._loop = asyncio.get_running_loop()
        self._closing: asyncio.Task[None] | None = None

    def stderr_tail(self) -> str:
        """Why the link ended, secrets replaced; the server's own log is elsewhere."""
        return self._why

    async def send(self, data: bytes) -> None:
        """Post each line of `data`. Waits until answers and notices have arrived, for requests not at all.

        Raises:
            WireError: The link has ended, or a notice could not be delivered.
        """
        for line in data.splitlines():
            if self._why or self._closing is not None:
                raise WireError(f"Server {self.name!r} is gone. {self._why}".rstrip())
            message = json.loads(line)
            if "method" in message and "id" in message:
                self._run(self._ask(message, line))
                continue
            try:
                async with self._client.open("POST", message, line) as response:
                    await drain(response)
            except httpx2.HTTPError as exc:
                await self._end(f"a notice could not be delivered: {said(exc)}")
                raise WireError(f"Server {self.name!r} is gone. {self._why}") from None
            if message.get("method") == "notifications/initialized" and self._client.session:
                opened = self._loop.create_future()
                self._run(self._listen(opened))
                await asyncio.wait({opened}, timeout=_OPENING)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def receive(self) -> bytes:
        """The next line; `b""` when the link has ended."""
        return await self._inbox.get()

    async def aclose(self) -> None:
        """Abandon what runs, end the session at the server, close the connections. Idempotent; bounded."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._inbox.close()
        running = list(self._tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_GOODBYE)
        if self._client.session:
            with contextlib.suppress(TimeoutError, httpx2.HTTPError):
                async with asyncio.timeout(_GOODBYE), self._client.open("DELETE", {}):
                    pass  # whatever the answer: servers that refuse end sessions by themselves
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                await self._client.aclose()

    async def _end(self, why: str) -> None:
        """No more messages: what is behind this link cannot be known any more."""
        self._why = self._why or self._endpoint.redact(f"{self._endpoint.shown}: {why}.")
        await self._inbox.close()

    async def _ask(self, message: dict[str, Any], line: bytes) -> None:
        """One request and its answer, which comes in every case, unless the link ends."""
        try:
            async with self._client.open("POST", message, line) as response:
                cursor, wait = await self._take(response, message)
            for _ in range(_RESUMES):
                if not cursor:
                    return
                await asyncio.sleep(wait)
                async with self._client.open("GET", message, cursor=cursor) as response:
                    cursor, wait = await self._take(response, message)
            if cursor:
                await self._fail(message, f"its answer to {message['method']} broke off again and again")
        except TooLong:
            text = f"the server's answer cannot be read: larger than {MAX_BODY >> 20} MiB"
            await self._put(error_line(message["id"], _UNREADABLE, text))
        except Exception as exc:  # noqa: BLE001 - whatever a client raises for odd bytes, the request must end
            await self._fail(message, f"{message['method']} failed: {said(exc)}")

    async def _listen(self, opened: asyncio.Future[None]) -> None:
        """Hear what a session's server asks of its own accord: it would wait for ever for an answer."""
        cursor = ""
        try:
            for _ in range(_RESUMES):
                async with self._client.open("GET", {}, cursor=cursor) as response:
                    if not opened.done():
                        opened.set_result(None)
                    if response.status_code != HTTPStatus.OK or not is_stream(response):
                        return  # as most servers do, which ask nothing
                    events = Events()
                    async for chunk in response.aiter_bytes():
                        for event in events.feed(chunk):
                            cursor = event.id or cursor
                            if event.data:
                                await self._put(one_line(event.data))
                await asyncio.sleep(_PAUSE)
        except (httpx2.HTTPError, httpx2.StreamError, TooLong):
            return  # calls have streams of their own, and say themselves when the server is gone
        finally:
            if not opened.done():
                opened.set_result(None)

    async def _take(self, response: httpx2.Response, message: dict[str, Any]) -> tuple[str, float]:
        """Pass on what a response holds.

        Returns:
            The id after which a stream without its answer goes on ("" when there is nothing more to come),
            and the seconds to wait before asking for it.
        """
        kind = response.headers.get("content-type", "no content type")
        if message["method"] == "initialize" and response.is_success:
            self._client.session = response.headers.get("mcp-session-id", "")
        if response.status_code != HTTPStatus.OK:
            await self._refused(response, message)
        elif is_stream(response):
            return await self._follow(response, message)
        else:
            body = await drain(response, MAX_BODY)
            found = read(body, message["id"], alone=True)
            if found.answers:
                await self._answered(message, found.value, found.line)
            else:
                what = f"{kind}: {excerpt(body)!r}"
                await self._fail(message, f"its answer to {message['method']} is no JSON-RPC but {what}")
        return "", 0.0

    async def _follow(self, response: httpx2.Response, message: dict[str, Any]) -> tuple[str, float]:
        events, cursor, wait, unused = Events(), "", _PAUSE, 0

        async def passed_on(found: list[Event]) -> bool:
            nonlocal cursor, wait, unused
            for event in found:
                cursor = event.id or cursor
                wait = wait if event.retry is None else min(event.retry / 1000, _MAX_WAIT)
                if event.data:
                    part = read(event.data, message["id"], alone=False)
                    if part.answers:
                        await self._answered(message, part.value, part.line)
                        return True
                    unused = unused if part.value is None else 0
                    await self._put(part.line)
            return False

        end = "ended without an answer"
        try:
            async for chunk in response.aiter_bytes():
                unused += len(chunk)
                if await passed_on(events.feed(chunk)):
                    return "", 0.0
                if unused > _MAX_UNUSED:
                    cursor, end = "", "is flooded with what is no message"
                    break
            else:
                if await passed_on(events.end()):
                    return "", 0.0
        except httpx2.TransportError as exc:
            end = f"broke off: {said(exc)}"
        if not cursor:
            await self._fail(message, f"the stream of {message['method']} {end}")
        return cursor, wait

    async def _answered(self, message: dict[str, Any], answer: Any, line: bytes) -> None:
        if message["method"] == "initialize" and isinstance(answer, dict):
            result = answer.get("result")
            self._client.learn(result.get("protocolVersion") if isinstance(result, dict) else None)
        await self._put(line)

    async def _refused(self, response: httpx2.Response, message: dict[str, Any]) -> None:
        """A status other than 200: the server's own error, one of this request, or the end of the link."""
        status, method, key = response.status_code, message["method"], message["id"]
        body = await drain(response)
        found = read(body, key, alone=True)
        error = found.value.get("error") if found.answers and isinstance(found.value, dict) else None
        text = error.get("message") if isinstance(error, dict) else excerpt(body)
        words = f"HTTP {status} {response.reason_phrase}".rstrip() + (f" ({text})" if text else "")
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            await self._fail(message, f"{words}; {self._key_hint()}")
        elif status == HTTPStatus.NOT_FOUND and self._client.session and method not in _BEGINNINGS:
            self._client.session = ""  # it is over: nothing to delete
            await self._fail(message, f"the session has expired: {words}")
        elif method == "initialize" and status in (400, 404, 405):
            # A server that knows only the protocol without sessions may refuse in any of these ways.
            unknown = not isinstance(error, dict) or error.get("code") != _OTHER_VERSION
            text = self._endpoint.redact(f"{self._endpoint.shown}: {words}{'' if error else _WRONG_PLACE}")
            await self._put(error_line(key, _NOT_FOUND if unknown else _OTHER_VERSION, text))
        elif error is not None and (status in _ITS_OWN or read(body, key, alone=False).answers):
            await self._put(found.line)
        elif status in _ITS_OWN:
            await self._put(error_line(key, _INTERNAL, f"The server refused {method}: {words}"))
        elif (target := leads_to(response)) is not None:
            await self._fail(message, f"{words}, which leads to {shown(str(target))} and was not followed")
        else:
            note = ": it will not answer this request" if response.is_success else ""
            note = _WRONG_PLACE if method in _BEGINNINGS and status in (404, 405) else note
            await self._fail(message, f"{method} was answered with {words}{note}")

    def _key_hint(self) -> str:
        names = self._endpoint.variables
        if names:
            return f"its headers take {', '.join(names)} from your environment: check what is set there"
        return (
            'its entry of mcp.json names no variable: add "headers": {"Authorization": "Bearer ${NAME}"} '
            "and set NAME"
        )

    async def _fail(self, message: dict[str, Any], why: str) -> None:
        """This request has no answer: a start is refused; later, the link ends, as at a process's death."""
        if message["method"] in _BEGINNINGS:
            text = self._endpoint.redact(f"{self._endpoint.shown}: {why}")
            await self._put(error_line(message["id"], _INTERNAL, text))
        else:
            await self._end(why)

    async def _put(self, line: bytes) -> None:
        await self._inbox.put(self._endpoint.redact_line(line))


class HttpRuntime:
    """Opens sessions with running servers. Their state is theirs: episodes can see each other's there."""

    name: str = "http"

    async def start(self, installation: Installation, workspace: Workspace) -> HttpLink:
        """A link to one server. Nothing is sent before the handshake.

        Raises:
            StartError: The entry has no url, names a variable that is not set, or cannot be sent.
        """
        manifest = installation.server.manifest
        if not manifest.url:
            raise StartError(
                f"Server {manifest.name!r} has no url, and runtime 'http' only reaches servers that run "
                "already. Use runtime='process'."
            )
        connect = min(manifest.limits.start_seconds, _CONNECT)
        return HttpLink(manifest.name, resolve(manifest), by_hand(manifest), connect)

    async def aclose(self) -> None:
        """Nothing here outlives an episode."""
