"""Reading prose: numbers, names, JSON, paths."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_gym.task import answers

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The total is $1,234.50.", [1234.5]),
        ("1.234,50 EUR", [1234.5]),
        ("USD1200 or AED 7", [1200, 7]),
        ("-5 and \u22127 and -$3.20", [-5, -7, -3.2]),
        ("1.2e3; 3 million; 4k; .5", [1200, 3_000_000, 4000, 0.5]),
        ("**42**", [42]),
        ("5kg, 10 ms, 12 %", [5, 10, 12]),
        ("- 5\n- 6", [5, 6]),
        ("1,2,3", [1, 2, 3]),
        ("C-1007, v1.2.3, msg_12, AC-24K, 3-5", []),
        ("on 2024-03-05 at 10:30: 3 items", [3]),
        ("2024-03-05T10:30:00Z", []),
        ("inf nan 1e999", []),
        ("1 234,50 EUR or 1\u202f234,5 or 1234,50", [1234.5, 1234.5, 1234.5]),
        ("1.234,567; 1,234,567; 12 345", [1234.567, 1_234_567, 12, 345]),
        ("_7_, 1,\u200b234.50, 9.5usd", [7, 1234.5, 9.5]),
        ("1. Ada: 40\n2. Bob: 50", [40, 50]),
        ("3. Ada\n4. Bob", [3, 4]),
        ("", []),
    ],
)
def test_numbers_of_a_text(text: str, found: list[float]) -> None:
    assert [values[0] for values in answers.numbers(text)] == pytest.approx(found)


def test_a_percentage_means_itself_and_its_fraction() -> None:
    assert answers.numbers("12.5 %") == [(12.5, 0.125)]


@given(
    st.floats(min_value=-1e9, max_value=1e9, allow_nan=False),
    st.sampled_from(["{:.2f}", "{:,.2f}", "{:.6e}"]),
)
def test_every_written_number_is_found(value: float, form: str) -> None:
    text = f"It is {form.format(value)} in all."
    assert not answers.has_number(text, value, tolerance=max(0.01, abs(value) * 1e-5), limit=1)


@pytest.mark.parametrize("text", ["five", "There are Five people.", "**five**", "One of us counted five."])
def test_small_numbers_may_be_words(text: str) -> None:
    assert not answers.has_number(text, 5, tolerance=0, limit=2)


def test_words_do_not_get_around_the_limit() -> None:
    assert "different numbers" in answers.has_number("two, three, four or five", 5, tolerance=0, limit=2)
    assert not answers.has_number("5, and two of us checked it one by one", 5, tolerance=0, limit=1)
    assert answers.has_number("fivefold", 5, tolerance=0, limit=2)


@pytest.mark.parametrize("text", ["a" + "_" * 20_000 + "a", "111 " * 5_000, "11,1" * 5_000, "1. " * 7_000])
def test_no_text_makes_reading_slow(text: str) -> None:
    """Bounded work: a quadratic pattern would need minutes here and run into the suite's timeout."""
    assert answers.numbers(text * 1_000) == answers.numbers(text[: answers.MAX_ANSWER])


def test_many_numbers_are_a_dump() -> None:
    dump = " ".join(map(str, range(100)))
    assert "different numbers" in answers.has_number(dump, 42, tolerance=0, limit=6)
    assert "different numbers" not in answers.has_number(dump, 42, tolerance=0, limit=6, known=dump)
    assert answers.has_number("41 43", 42, tolerance=0, limit=6) == "the number is not in it"


@pytest.mark.parametrize(
    ("text", "phrase", "there"),
    [
        ("It was ADA  Moreau.", "Ada Moreau", True),
        ("Adam", "Ada", False),
        ("(Ada)", "ada", True),
        ("Stra\u00dfe", "STRASSE", True),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("anything", "", False),
        ("_Ada Moreau_", "Ada Moreau", True),
        ("*Ada* **Mo\u200breau**", "Ada Moreau", True),
        ("set max_retries", "max_retries", True),
        ("set max_retries", "retries", False),
    ],
)
def test_mentions_are_whole_words(text: str, phrase: str, there: bool) -> None:
    assert answers.mentions(text, phrase) is there


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1]}',
        'Here:\n```json\n{"a": [1]}\n```',
        'It is {"a": [1]}, I think {b}.',
        'See [x] and {"a": [1]}',
    ],
)
def test_json_in_an_answer(text: str) -> None:
    assert answers.json_in(text) == {"a": [1]}


@pytest.mark.parametrize("text", ["", "no", "[", "[" * 5000, "{" * 19_000, '"just a text"'])
def test_no_json_in_an_answer(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        answers.json_in(text)


def test_paths() -> None:
    value = {"data": [{"to": "a@b.c", "n": 1}, {"to": "x", "n": 2}, {"to": "a@b.c", "n": 3}], "d.e": 0}
    assert answers.at(value, "") is value
    assert answers.at(value, "data[1].n") == 2
    assert answers.at(value, "data[to=a@b.c][1].n") == 3
    assert answers.at(value, "data[to=nobody]") == []
    for path in ("data[9]", "nothing", "data.to", "data[0][0]"):
        with pytest.raises(LookupError):
            answers.at(value, path)
    with pytest.raises(ValueError, match="cannot be read"):
        answers.at(value, "data[")


@given(JSON)
def test_every_json_value_is_the_same_as_itself(value: object) -> None:
    assert answers.same(json.loads(json.dumps(value)), value)


@pytest.mark.parametrize(
    ("found", "wanted", "equal"),
    [
        (1, True, False),
        (True, 1, False),
        (None, 0, False),
        ("1.50", 1.5, True),
        ("one", 1, False),
        ("nan", 1, False),
        (float("nan"), 1, False),
        (1.004, 1, True),
        (1.006, 1, False),
        (" A  b", "a B", True),
        ([1, 2], (1, 2), True),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
    ],
)
def test_same(found: object, wanted: object, equal: bool) -> None:
    assert answers.same(found, wanted, 0.005) is equal
