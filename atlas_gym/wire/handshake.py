"""How a session begins, in both families of the protocol, leniently.

Owns `initialize`, and `server/discover` for servers that speak only the protocol without sessions.
Does not know links or deadlines beyond the seconds that it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS

_CLIENT: Final = {"name": "atlas-gym", "version": version("atlas-gym")}


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says of itself; empty where it says nothing."""

    name: str = ""
    version: str = ""
    protocol: str = ""
    instructions: str = ""


async def shake(
    dispatcher: JSONRPCDispatcher[TransportContext], *, protocol: str, seconds: float
) -> tuple[ServerInfo, dict[str, Any]]:
    """Begin a session.

    `initialize` comes first in both modes: a server of either family answers it at once, whereas old
    servers may stay silent, or die, when asked `server/discover` first.

    Returns:
        What the server is, and the `_meta` that every later request must carry (empty for most).

    Raises:
        MCPError: The server refused, or the connection ended, or the deadline passed.
    """
    options: CallOptions = {"timeout": seconds, "cancel_on_abandon": False}
    params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": _CLIENT}
    try:
        raw = await dispatcher.send_raw_request("initialize", params, options)
    except MCPError as exc:
        if protocol != "auto" or exc.code not in (UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND):
            raise
        return await _discover(dispatcher, options)
    await dispatcher.notify("notifications/initialized", None)
    return _info(raw.get("serverInfo"), raw.get("protocolVersion"), raw.get("instructions")), {}


async def _discover(
    dispatcher: JSONRPCDispatcher[TransportContext], options: CallOptions
) -> tuple[ServerInfo, dict[str, Any]]:
    stamp = {
        PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
        CLIENT_INFO_META_KEY: _CLIENT,
        CLIENT_CAPABILITIES_META_KEY: {},
    }
    raw = await dispatcher.send_raw_request("server/discover", {"_meta": stamp}, options)
    offered = raw.get("supportedVersions")
    mutual = [v for v in MODERN_PROTOCOL_VERSIONS if isinstance(offered, list) and v in offered]
    if not mutual:
        raise MCPError(
            UNSUPPORTED_PROTOCOL_VERSION, f"it speaks {offered!r}, we speak {MODERN_PROTOCOL_VERSIONS!r}"
        )
    stamp[PROTOCOL_VERSION_META_KEY] = mutual[-1]
    meta = raw.get("_meta")
    server = meta.get(SERVER_INFO_META_KEY) if isinstance(meta, dict) else None
    return _info(server, mutual[-1], raw.get("instructions")), stamp


def _info(server: Any, protocol: Any, instructions: Any) -> ServerInfo:
    fields = server if isinstance(server, dict) else {}
    return ServerInfo(
        name=str(fields.get("name") or ""),
        version=str(fields.get("version") or ""),
        protocol=str(protocol or ""),
        instructions=instructions if isinstance(instructions, str) else "",
    )
