"""HTTP as the protocol uses it: headers of each message, redirects, sessions, certificates.

Owns one httpx2 client with the session's id and version. Does not know what answers mean, or lines.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2

from atlas_gym.runtime.http_headers import Endpoint
from atlas_gym.runtime.http_params import MISMATCH, Marks, header_value, headers, marks, results
from atlas_gym.runtime.http_stream import MAX_BODY, TooLong

EXCERPT: Final = 1 << 14
"""Bytes read of a body that is only to be quoted."""

_REDIRECTS: Final = 3
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Method -> the parameter that the protocol without sessions repeats in a header."""
_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_SAFE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_PAGES: Final = 100
_TOOLS: Final = "atlas-gym-tools"
"""Id of our own request for the list of tools."""


class Client:
    """The connections of one session.

    Args:
        endpoint: Where to.
        connect_seconds: For making a connection, and for writing one piece of a message.
    """

    def __init__(self, endpoint: Endpoint, connect_seconds: float) -> None:
        self.session = ""
        """What `initialize` was answered with as the session's id; "" where the server keeps none."""
        self.version = ""
        """What `initialize` agreed on; every later request names it."""
        self._endpoint = endpoint
        self._marks: dict[str, Marks] = {}
        # No limit on reading: a tool may take long, and whoever calls it has a deadline of its own.
        timeout = httpx2.Timeout(connect_seconds, read=None, pool=None)
        self._client = httpx2.AsyncClient(verify=_trust(), timeout=timeout, follow_redirects=False)

    def learn(self, version: Any) -> None:
        """Keep the version of the answer to `initialize`."""
        self.version = version if isinstance(version, str) and _SAFE.fullmatch(version) else ""

    @asynccontextmanager
    async def open(
        self, verb: str, message: dict[str, Any], content: bytes = b"", cursor: str = ""
    ) -> AsyncIterator[httpx2.Response]:
        """Send one HTTP request; a redirect is followed within the same scheme, host and port only.

        Args:
            verb: "POST", "GET" to take up a stream again, "DELETE" to end the session.
            message: What the request is about, for its headers.
            content: The message itself.
            cursor: Id of the event after which a stream goes on.

        Raises:
            httpx2.HTTPError: It could not be sent, or no answer came.
        """
        url = httpx2.URL(self._endpoint.url)
        for left in reversed(range(_REDIRECTS + 1)):
            sent = {**self._endpoint.headers, **self._headers(message)}
            sent |= {"last-event-id": cursor} if cursor else {}
            request = self._client.build_request(verb, url, content=content or None, headers=sent)
            response = await self._client.send(request, stream=True)
            try:
                if left and await self._wants_marks(response, message):
                    self._marks[message["params"]["name"]] = await self._find_marks(message)
                    continue
                target = leads_to(response)
                if (
                    target is None
                    or not left
                    or response.status_code not in (307, 308)
                    or _other(url, target)
                ):
                    yield response
                    return
            finally:
                await response.aclose()
            url = target

    async def _wants_marks(self, response: httpx2.Response, message: dict[str, Any]) -> bool:
        """Whether a call was refused because its arguments were not repeated in headers."""
        name = _version(message) and message["method"] == "tools/call" and message["params"].get("name")
        length = response.headers.get("content-length", "")
        if not name or name in self._marks or response.status_code != 400 or not length.isdigit():
            return False
        if int(length) > EXCERPT:
            return False
        with contextlib.suppress(ValueError, AttributeError, RecursionError):
            return bool(json.loads(await response.aread())["error"]["code"] == MISMATCH)
        return False

    async def _find_marks(self, message: dict[str, Any]) -> Marks:
        """Ask for the schema of the tool that a message calls: nobody else may have on this connection."""
        name, params = message["params"]["name"], {"_meta": message["params"]["_meta"]}
        for _ in range(_PAGES):
            asked = {"jsonrpc": "2.0", "id": _TOOLS, "method": "tools/list", "params": params}
            async with self.open("POST", asked, json.dumps(asked).encode()) as response:
                body = await drain(response, MAX_BODY)
            page = next(iter(results(body, stream=is_stream(response))), {})
            listed = page.get("tools")
            for tool in listed if isinstance(listed, list) else []:
                if isinstance(tool, dict) and tool.get("name") == name:
                    return marks(tool.get("inputSchema"))
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or cursor == params.get("cursor"):
                break
            params = {**params, "cursor": cursor}
        return {}

    async def aclose(self) -> None:
        """Close the connections."""
        with contextlib.suppress(httpx2.HTTPError):
            await self._client.aclose()

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        sent = {
            "accept": "application/json, text/event-stream",
            "accept-encoding": "identity",  # a small body may not unpack into a large one
            "content-type": "application/json",
        }
        method, params = message.get("method", ""), message.get("params") or {}
        version = _version(message)
        if version:
            sent |= {"mcp-protocol-version": version, "mcp-method": method}
            named = params.get(_NAMED.get(method, ""))
            if isinstance(named, str):
                sent["mcp-name"] = header_value(named)
                sent |= headers(self._marks.get(named, {}), params.get("arguments") or {})
        elif method != "initialize":
            sent |= {"mcp-protocol-version": self.version} if self.version else {}
            sent |= {"mcp-session-id": self.session} if self.session else {}
        return sent


@functools.cache
def _trust() -> ssl.SSLContext:
    """Certificates are checked against the system's authorities; reading those takes some 20 ms."""
    return httpx2.create_ssl_context()


async def drain(response: httpx2.Response, limit: int = EXCERPT) -> bytes:
    """The body. Of an excerpt the rest is left unread.

    Raises:
        TooLong: It is larger than the largest message.
    """
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit:
            if limit < MAX_BODY:
                break
            raise TooLong
    return bytes(body[:limit])


def is_stream(response: httpx2.Response) -> bool:
    """Whether the body is a stream of events."""
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "text/event-stream"


def leads_to(response: httpx2.Response) -> httpx2.URL | None:
    """Where a redirect leads."""
    return response.next_request.url if response.next_request is not None else None


def excerpt(body: bytes) -> str:
    """The beginning of a body on one line."""
    text = " ".join(body[:400].decode("utf-8", "replace").split())
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)[:200]


def said(exc: BaseException) -> str:
    """An error in words: many of httpx2's have none of their own."""
    text = str(exc).strip().rstrip(".")
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def _version(message: dict[str, Any]) -> str:
    """The version that a message of the protocol without sessions names; "" for all others."""
    meta = (message.get("params") or {}).get("_meta")
    version = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
    return version if isinstance(version, str) and _SAFE.fullmatch(version) else ""


def _other(url: httpx2.URL, target: httpx2.URL) -> bool:
    moved = (url.scheme, url.host, url.port) != (target.scheme, target.host, target.port)
    return moved or target.userinfo not in (b"", url.userinfo)
