"""`Unicode`: bounded free text as a Gymnasium space, safe in shared memory and in every vector mode.

Owns the space and its three shared-memory functions. `gymnasium.spaces.Text` cannot hold free text: a
full charset takes seconds to build, and under shared memory its observations never change.
Does not know what the text is for.
"""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from atlas_gym.errors import ConfigError

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LONGEST_SAMPLE: Final = 64
_HEADER: Final = 8
_UTF8_WIDTH: Final = 4

# Plain letters, markup, white space, a control character, accents (composed and not), scripts of two
# directions, signs outside the basic plane, and an emoji joined from three.
_ALPHABET: Final = (
    *"abcdefghijklmnopqrstuvwxyz",
    *"ABC0123456789 .,:;!?'\"{}[]()<>/|\\_-+=#\n\t\x07",
    *"éüßñ你好世界かなلغةΩя€",
    "e\u0301",
    "🙂",
    "👩\u200d🔬",
    "𝛼",
)


class Unicode(Space[str]):
    """Every text of at most `max_length` characters, without lone surrogates.

    Args:
        max_length: Most characters (code points). Shared memory holds four bytes for each.
        seed: Seed of `sample`.

    Raises:
        ConfigError: `max_length` is no whole number above zero.
    """

    def __init__(self, max_length: int = 262_144, *, seed: int | np.random.Generator | None = None) -> None:
        if not isinstance(max_length, int) or isinstance(max_length, bool) or max_length < 1:
            raise ConfigError(f"Unicode max_length = {max_length!r}: give a whole number above zero.")
        self.max_length: Final = max_length
        super().__init__(shape=(), dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: text has no fixed number of dimensions."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A short text, empty at times and not only ASCII.

        Raises:
            ConfigError: A mask or a probability was given; free text has neither.
        """
        if mask is not None or probability is not None:
            raise ConfigError("Unicode.sample takes neither mask nor probability: free text has no choices.")
        length = int(self.np_random.integers(0, min(self.max_length, _LONGEST_SAMPLE) + 1))
        picks = self.np_random.integers(0, len(_ALPHABET), size=length)
        return "".join(_ALPHABET[i] for i in picks)[: self.max_length]

    def contains(self, x: Any) -> bool:
        """Whether `x` is a str (or of a subclass), short enough, and valid Unicode."""
        return isinstance(x, str) and len(x) <= self.max_length and not _SURROGATE.search(x)

    def to_jsonable(self, sample_n: Iterable[str]) -> list[str]:
        """A list of plain strings."""
        return [str(text) for text in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        """What `to_jsonable` gave."""
        return [str(text) for text in sample_n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unicode) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash((Unicode, self.max_length))

    def __repr__(self) -> str:
        return f"Unicode({self.max_length})"


class SharedTexts(Sequence[str]):
    """The texts of all environments as they stand in shared memory now; a deep copy is a plain tuple.

    AsyncVectorEnv makes this view once and deep-copies it at every step.
    """

    def __init__(self, memory: Any, count: int) -> None:
        self._memory = memory
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self._read(i) for i in range(*index.indices(self._count)))
        return self._read(range(self._count)[index])

    def __iter__(self) -> Iterator[str]:
        return (self._read(i) for i in range(self._count))

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (tuple, SharedTexts)) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SharedTexts{tuple(self)!r}"

    def _read(self, index: int) -> str:
        data = _slot(self._memory, index, self._count)
        size = int.from_bytes(data[:_HEADER], "little")
        return bytes(data[_HEADER : _HEADER + size]).decode("utf-8")


def _slot(memory: Any, index: int, count: int | None = None, size: int | None = None) -> memoryview:
    """One environment's bytes: a header with the length, then UTF-8."""
    data = memoryview(memory.get_obj()).cast("B")
    size = size or len(data) // (count or 1)
    return data[index * size : (index + 1) * size]


def _slot_size(space: Unicode) -> int:
    return _HEADER + _UTF8_WIDTH * space.max_length


@create_shared_memory.register(Unicode)
def _create(space: Unicode, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ctx.Array("B", n * _slot_size(space))


@read_from_shared_memory.register(Unicode)
def _read(space: Unicode, shared_memory: Any, n: int = 1) -> SharedTexts:
    return SharedTexts(shared_memory, n)


@write_to_shared_memory.register(Unicode)
def _write(space: Unicode, index: int, value: str, shared_memory: Any) -> None:
    if value not in space:
        raise ValueError(
            f"The text of environment {index} ({len(value)} characters) is not in {space!r}: it is longer, "
            "or holds a lone surrogate. Raise max_length, or fit the text first."
        )
    data = value.encode("utf-8")
    slot = _slot(shared_memory, index, size=_slot_size(space))
    slot[_HEADER : _HEADER + len(data)] = data
    slot[:_HEADER] = len(data).to_bytes(_HEADER, "little")
