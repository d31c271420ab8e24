"""What an episode makes its calls through, whether servers run, are recorded, or are not there at all.

Owns the protocol alone; `sessions`, `cassette_recording` and `replay` are its forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from atlas_gym.types import ToolCall, ToolResult
from atlas_gym.wire.values import Blob


class Calls(Protocol):
    """What an episode makes its calls through: live sessions, a recording or a replay."""

    @property
    def lost(self) -> str:
        """Why the episode must end as infra; "" while it may go on."""

    @property
    def infra_errors(self) -> int:
        """Failures of servers, mended ones included."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Server -> package==version, of the servers that were started."""

    @property
    def walls(self) -> Mapping[str, str]:
        """Server -> what held it."""

    @property
    def how(self) -> Mapping[str, str]:
        """Server -> how it was started."""

    @property
    def blobs(self) -> Mapping[str, Blob]:
        """Handle -> the image, audio or file that a result names."""

    async def start(self, server: str) -> object:
        """Start a server now instead of at its first call."""

    async def call(self, call: ToolCall, *, seconds: float | None = None) -> ToolResult:
        """Make one call; never raises for the server's fault."""

    async def settled(self) -> None:
        """Wait for the calls that nobody waits for any more."""

    async def close(self) -> None:
        """End everything. Idempotent."""
