"""A breaker opens after failures in a row, tries once when its pause is over, and forgets on success."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_gym.errors import ConfigError
from atlas_gym.runtime.breaker import Breaker, Policy


class Clock:
    """Goes forward when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(**policy: float) -> tuple[Breaker, Clock]:
    clock = Clock()
    return Breaker(Policy(**policy), clock), clock  # type: ignore[arg-type]


def test_opens_after_failures_in_a_row() -> None:
    breaker, _ = make(failures=3, pause=5.0)
    breaker.failed("one")
    breaker.failed("two")
    breaker.succeeded()
    for reason in ("one", "two"):
        breaker.failed(reason)
        assert (breaker.state, breaker.wait) == ("closed", 0.0)
    breaker.failed("  no such file\n")
    assert (breaker.state, breaker.wait, breaker.reason) == ("open", 5.0, "no such file")


def test_one_trial_when_the_pause_is_over() -> None:
    breaker, clock = make(failures=1, pause=5.0)
    breaker.failed("dead")
    clock.now += 4.75
    assert (breaker.state, breaker.wait) == ("open", 0.25)
    clock.now += 0.25
    assert breaker.state == "half-open"
    assert [breaker.begin(), breaker.begin()] == [True, False]
    assert breaker.trying
    breaker.succeeded()
    assert (breaker.state, breaker.trying, breaker.reason, breaker.failures) == ("closed", False, "", 0)


def test_the_pause_doubles_up_to_a_longest_one() -> None:
    breaker, clock = make(failures=1, pause=5.0, longest=18.0)
    pauses = []
    trial = False
    for _ in range(4):
        breaker.failed("dead", trial=trial)
        pauses.append(breaker.wait)
        clock.now += breaker.wait
        trial = breaker.begin()
        assert trial
    assert pauses == [5.0, 10.0, 18.0, 18.0]
    breaker.succeeded()
    breaker.failed("dead")
    assert breaker.wait == 5.0


def test_an_abandoned_trial_leaves_it_to_the_next() -> None:
    breaker, clock = make(failures=1, pause=1.0)
    breaker.failed("dead")
    clock.now += 1.0
    assert breaker.begin()
    breaker.abandoned(trial=False)
    assert breaker.trying
    breaker.abandoned(trial=True)
    assert breaker.state == "half-open"
    assert breaker.begin()


def test_what_was_on_its_way_neither_opens_it_again_nor_shortens_the_pause() -> None:
    breaker, clock = make(failures=2, pause=4.0)
    breaker.failed("dead")
    breaker.failed("dead")
    clock.now += 1.0
    breaker.failed("late")
    assert (breaker.wait, breaker.opened) == (3.0, 1)
    breaker.succeeded()
    assert breaker.state == "closed"


def test_one_episode_alone_does_not_open_it() -> None:
    breaker, _ = make(failures=2)
    for _ in range(5):
        breaker.failed("spoilt", by="ep-1")
    assert (breaker.state, breaker.failures) == ("closed", 1)
    breaker.failed("spoilt", by="ep-2")
    assert breaker.state == "open"


def test_its_trial_counts_whoever_makes_it() -> None:
    breaker, clock = make(failures=1, pause=1.0)
    breaker.failed("dead", by="ep-1")
    clock.now += 1.0
    breaker.failed("dead", by="ep-1", trial=breaker.begin())
    assert (breaker.state, breaker.wait) == ("open", 2.0)


@pytest.mark.parametrize("wrong", [{"failures": 0}, {"pause": -1.0}, {"pause": 10.0, "longest": 5.0}])
def test_wrong_numbers(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="A breaker needs"):
        Policy(**wrong)  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["begin", "good", "bad", "gone", "wait"]), st.sampled_from(["a", "b", "c", ""])
        )
    )
)
def test_at_most_one_trial_and_none_while_open(steps: list[tuple[str, str]]) -> None:
    breaker, clock = make(failures=2, pause=1.0, longest=8.0)
    running: list[bool] = []
    for step, who in steps:
        if step == "wait":
            clock.now += 1.0
        elif step == "begin":
            state = breaker.state
            trial = breaker.begin()
            assert not trial or (state == "half-open" and True not in running)
            running.append(trial)
        elif running:
            trial = running.pop(0)
            if step == "good":
                breaker.succeeded()
                running = [False] * len(running)
                assert breaker.state == "closed"
            elif step == "bad":
                breaker.failed("dead", by=who, trial=trial)
                assert not trial or breaker.state == "open"
            else:
                breaker.abandoned(trial=trial)
        assert breaker.wait <= 8.0
        assert breaker.trying == (True in running)
