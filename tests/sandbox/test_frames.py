from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_gym.sandbox.frames import Decoder, FrameError, pack

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.dictionaries(st.text(), VALUES, max_size=4)


@given(st.lists(MESSAGES, max_size=4), st.integers(1, 40))
def test_any_chunks_give_the_same_messages(messages: list[dict[str, object]], size: int) -> None:
    stream = b"".join(pack(message) for message in messages)
    decoder, found = Decoder(1 << 20), []
    for start in range(0, len(stream), size):
        decoder.feed(stream[start : start + size])
        while (message := decoder.next()) is not None:
            found.append(message)
    assert found == messages
    assert decoder.pending == 0


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_a_frame_error(data: bytes) -> None:
    decoder = Decoder(32)
    decoder.feed(data)
    try:
        while decoder.next() is not None:
            pass
    except FrameError:
        return
    assert decoder.pending <= 4 + 32


@given(st.binary(max_size=40))
def test_any_body_is_an_object_or_a_frame_error(body: bytes) -> None:
    decoder = Decoder(64)
    decoder.feed(len(body).to_bytes(4, "big") + body)
    try:
        message = decoder.next()
    except FrameError:
        return
    assert isinstance(message, dict)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"1",
        b"",
        b"{} {}",
        b"{",
        b"\xff\xff",
        b'{"a":' + b"[" * 100_000,
        b'{"a":' + b"9" * 10_000 + b"}",
    ],
)
def test_what_is_no_message(body: bytes) -> None:
    decoder = Decoder(1 << 20)
    decoder.feed(len(body).to_bytes(4, "big") + body)
    with pytest.raises(FrameError):
        decoder.next()


def test_a_frame_over_the_limit_is_refused_before_it_is_received() -> None:
    decoder = Decoder(100)
    decoder.feed((101).to_bytes(4, "big"))
    with pytest.raises(FrameError, match="101 bytes; at most 100"):
        decoder.next()
