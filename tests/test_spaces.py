from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import (
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas_gym.errors import ConfigError
from atlas_gym.spaces import SharedTexts, Unicode

GREETINGS = ("Grüße", "你好 🙂", "e\u0301 👩\u200d🔬 \x00 \n")


def echo(max_length: int = 64) -> Callable[[], gym.Env[dict[str, Any], str]]:
    """Makes an environment that says what it was told; "end" ends it.

    Nested, so that it is pickled by value: a worker process need not be able to import this file.
    """

    def make() -> gym.Env[dict[str, Any], str]:
        import gymnasium as gym
        import numpy as np

        from atlas_gym.spaces import Unicode

        class Echo(gym.Env[dict[str, Any], str]):
            def __init__(self) -> None:
                self.action_space = Unicode(max_length)
                self.observation_space = gym.spaces.Dict(
                    {
                        "prompt": Unicode(32),
                        "result": Unicode(max_length),
                        "turn": gym.spaces.Box(0, 1_000, (), np.int64),
                    }
                )
                self._turn = 0

            def _observe(self, result: str) -> dict[str, Any]:
                return {"prompt": f"Sag «{self._word}»", "result": result, "turn": np.array(self._turn)}

            def reset(
                self, *, seed: int | None = None, options: dict[str, Any] | None = None
            ) -> tuple[dict[str, Any], dict[str, Any]]:
                super().reset(seed=seed)
                self._word = "äöü"[int(self.np_random.integers(3))]
                self._turn = 0
                return self._observe(""), {}

            def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
                self._turn += 1
                return self._observe(action[:max_length]), 1.0, action == "end", False, {}

        return Echo()

    return make


texts = st.text(max_size=64)


@given(text=texts)
def test_contains_any_bounded_text(text: str) -> None:
    assert text in Unicode(64)
    assert (text in Unicode(3)) == (len(text) <= 3)


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb", "x" * 65, b"x", 3, None, ["x"]])
def test_contains_nothing_else(value: Any) -> None:
    assert not Unicode(64).contains(value)


def test_a_str_subclass_is_text() -> None:
    class Sampled(str):
        pass

    assert Sampled("hi") in Unicode(64)
    assert np.str_("hi") in Unicode(64)


@pytest.mark.parametrize("length", [0, -1, 2.5, True, "9"])
def test_bad_lengths(length: Any) -> None:
    with pytest.raises(ConfigError, match="max_length"):
        Unicode(length)


def test_samples_repeat_by_seed_and_lie_in_the_space() -> None:
    one, two = Unicode(64, seed=3), Unicode(64, seed=3)
    samples = [one.sample() for _ in range(300)]
    assert samples == [two.sample() for _ in range(300)]
    assert all(sample in one for sample in samples)
    assert any(not sample.isascii() for sample in samples)
    assert "" in samples
    assert len(set(samples)) > 250
    assert all(Unicode(1, seed=i).sample() in Unicode(1) for i in range(50))
    one.seed(3)
    assert one.sample() == samples[0]


def test_sample_takes_no_mask() -> None:
    with pytest.raises(ConfigError, match="neither mask nor probability"):
        Unicode(64).sample(mask=3)  # type: ignore[arg-type]


def test_equality_and_repr() -> None:
    assert Unicode(64) == Unicode(64, seed=1)
    assert Unicode(64) != Unicode(65)
    assert Unicode(64) != gym.spaces.Text(64)
    assert hash(Unicode(64)) == hash(Unicode(64))
    assert repr(Unicode(64)) == "Unicode(64)"
    assert Unicode(64).is_np_flattenable is False


@given(sample=st.lists(texts))
def test_json_round_trip(sample: list[str]) -> None:
    space = Unicode(64)
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(sample)))) == sample


def test_pickles_and_copies_are_small_and_equal() -> None:
    space = Unicode(1_000_000, seed=5)
    assert len(pickle.dumps(space)) < 1_000
    again = pickle.loads(pickle.dumps(space))
    assert again == copy.deepcopy(space) == space
    assert again.sample() == copy.deepcopy(space).sample() == space.sample()


def test_batches() -> None:
    space = Unicode(64, seed=1)
    batch = batch_space(space, 3)
    assert isinstance(batch, gym.spaces.Tuple)
    assert batch.sample() in batch
    assert GREETINGS in batch
    assert tuple(iterate(batch, GREETINGS)) == GREETINGS
    out: Any = create_empty_array(space, 3)
    assert concatenate(space, GREETINGS, out) == GREETINGS


@settings(deadline=None)
@given(values=st.lists(texts, min_size=3, max_size=3), others=st.lists(texts, min_size=3, max_size=3))
def test_shared_memory_gives_back_what_was_written_last(values: list[str], others: list[str]) -> None:
    space = Unicode(64)
    memory = create_shared_memory(space, n=3)
    view: Any = read_from_shared_memory(space, memory, n=3)
    assert isinstance(view, SharedTexts)
    assert tuple(view) == ("", "", "")
    for written in (values, others):
        for index, value in enumerate(written):
            write_to_shared_memory(space, index, value, memory)  # type: ignore[arg-type]
        assert view == tuple(written)
        assert (view[0], view[-1], view[1:], len(view)) == (
            written[0],
            written[2],
            tuple(written[1:]),
            3,
        )
        assert copy.deepcopy(view) == tuple(written)
        assert isinstance(copy.deepcopy(view), tuple)


def test_shared_memory_holds_the_longest_text_and_refuses_a_longer_one() -> None:
    space = Unicode(64)
    memory = create_shared_memory(space, n=2)
    longest = "\U0010ffff" * 64
    write_to_shared_memory(space, 0, longest, memory)  # type: ignore[arg-type]
    view: Any = read_from_shared_memory(space, memory, n=2)
    assert tuple(view) == (longest, "")
    with pytest.raises(IndexError):
        view[2]
    for bad in (longest + "x", "\ud800"):
        with pytest.raises(ValueError, match=r"not in Unicode\(64\)"):
            write_to_shared_memory(space, 1, bad, memory)  # type: ignore[arg-type]


def test_the_environment_checker_accepts_it() -> None:
    check_env(echo()(), skip_render_check=True)


@contextmanager
def closing(env: Any) -> Iterator[Any]:
    try:
        yield env
    finally:
        env.close()


def _vector_envs(mode: AutoresetMode) -> Iterator[Callable[[], Any]]:
    makers = [echo()] * 3
    yield lambda: SyncVectorEnv(makers, autoreset_mode=mode)
    for context in ("fork", "spawn", "forkserver"):
        yield lambda context=context: AsyncVectorEnv(  # type: ignore[misc]
            makers, context=context, autoreset_mode=mode
        )
    yield lambda: AsyncVectorEnv(makers, context="fork", shared_memory=False, autoreset_mode=mode)


KINDS = ("sync", "fork", "spawn", "forkserver", "no shared memory")


# Python 3.12 warns of every fork beside a thread; numpy keeps threads of its own.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", KINDS)
def test_vector_environments(kind: str, mode: AutoresetMode) -> None:
    make = list(_vector_envs(mode))[KINDS.index(kind)]
    with closing(make()) as env:
        observations, _ = env.reset(seed=[1, 2, 3])
        assert observations["result"] == ("", "", "")
        prompts = observations["prompt"]
        assert env.reset(seed=[1, 2, 3])[0]["prompt"] == prompts
        assert observations in env.observation_space

        first, *_ = env.step(GREETINGS)
        assert first["result"] == GREETINGS
        assert first["prompt"] == prompts
        second, _, terminated, _, info = env.step(("end", "kurz", ""))
        assert list(terminated) == [True, False, False]
        assert first["result"] == GREETINGS, "an earlier observation must not change"
        if mode is AutoresetMode.SAME_STEP:
            assert second["result"] == ("", "kurz", "")
            assert info["final_obs"][0]["result"] == "end"
        else:
            assert second["result"] == ("end", "kurz", "")
        if mode is AutoresetMode.DISABLED:
            third, _ = env.reset(options={"reset_mask": np.array([True, False, False])})
            assert third["result"] == ("", "kurz", "")
        else:
            third, *_ = env.step(GREETINGS)
            expected = "" if mode is AutoresetMode.NEXT_STEP else GREETINGS[0]
            assert third["result"] == (expected, *GREETINGS[1:])
        assert env.action_space.sample() in env.action_space
