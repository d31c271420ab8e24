"""When a server that keeps failing to start may be tried again.

Owns the states of one circuit breaker. Does not know what a server is, nor waits: whoever asks is told at
once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from atlas_gym.errors import ConfigError

State: TypeAlias = Literal["closed", "open", "half-open"]
Clock: TypeAlias = Callable[[], float]

_REASON_CHARS: Final = 600


@dataclass(frozen=True)
class Policy:
    """How patient a breaker is."""

    failures: int = 3
    """Failures in a row, each of another episode, that open it."""
    pause: float = 5.0
    """Seconds from its opening to the next attempt; doubled each time that attempt fails."""
    longest: float = 120.0
    """Seconds beyond which the pause does not grow."""

    def __post_init__(self) -> None:
        if self.failures < 1 or self.pause < 0 or self.longest < self.pause:
            raise ConfigError(
                f"A breaker needs failures >= 1 and 0 <= pause <= longest, not failures={self.failures}, "
                f"pause={self.pause}, longest={self.longest}. Correct them."
            )


class Breaker:
    """Closed while starts work; open after failures in a row; then half-open: one attempt decides.

    Args:
        policy: Its numbers.
        clock: Seconds that only go forward.
    """

    def __init__(self, policy: Policy = Policy(), clock: Clock = time.monotonic) -> None:
        self.failures = 0
        """Failures in a row."""
        self.opened = 0
        """How often it has opened since it was last closed."""
        self.reason = ""
        """What the last failure said; "" after a success."""
        self.proven = False
        """Whether the last attempt that ended was a success."""
        self._policy = policy
        self._clock = clock
        self._until: float | None = None
        self._trying = False
        self._blamed: set[str] = set()

    @property
    def state(self) -> State:
        """`closed`: attempts are free. `open`: none is allowed. `half-open`: one is."""
        if self._until is None:
            return "closed"
        return "open" if self._clock() < self._until else "half-open"

    @property
    def wait(self) -> float:
        """Seconds until the next attempt is allowed; 0 when it is."""
        return 0.0 if self._until is None else max(0.0, self._until - self._clock())

    @property
    def trying(self) -> bool:
        """Whether the one attempt of `half-open` is on its way."""
        return self._trying

    def begin(self) -> bool:
        """Take note of an attempt that begins. Returns whether it is the one on which the state depends."""
        trial = self.state == "half-open" and not self._trying
        self._trying = self._trying or trial
        return trial

    def succeeded(self) -> None:
        """An attempt went well: everything is forgiven."""
        self.failures = self.opened = 0
        self.reason = ""
        self.proven = True
        self._until = None
        self._trying = False
        self._blamed.clear()

    def failed(self, reason: str, *, by: str = "", trial: bool = False) -> None:
        """An attempt failed.

        Args:
            reason: What is told to those who are refused.
            by: Whose attempt it was (an episode's name). One that fails again and again counts once: what an
                agent did to its own workspace must not close a server to the others. "" counts each time.
            trial: Whether `begin` returned True for it.
        """
        self.reason = reason.strip()[:_REASON_CHARS]
        self.proven = False
        trial = trial and self._until is not None  # else another start has meanwhile gone well
        if trial:
            self._trying = False
        if by in self._blamed and not trial:
            return
        if by:
            self._blamed.add(by)
        self.failures += 1
        if trial or (self._until is None and self.failures >= self._policy.failures):
            pause = min(self._policy.pause * 2.0**self.opened, self._policy.longest)
            self.opened += 1
            self._until = self._clock() + pause

    def abandoned(self, *, trial: bool) -> None:
        """An attempt ended without saying anything about the server: its caller went away."""
        if trial:
            self._trying = False
