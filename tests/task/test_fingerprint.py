"""Equal set-ups have equal digests, different ones different digests, here as everywhere."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_gym.task import setup as model
from atlas_gym.task.fingerprint import digest
from atlas_gym.task.setup import Setup

FULL: dict[str, Any] = {
    "folders": ["empty"],
    "files": [{"path": "a.txt", "text": "ä\n"}, {"path": "b.txt", "server": "memory", "text": ""}],
    "binaries": [{"path": "c.bin", "base64": "AAH/"}],
    "databases": [
        {
            "path": "d.db",
            "script": "CREATE TABLE s (x);",
            "tables": [{"name": "t", "columns": ["id", "v"], "rows": [[1, 1.5], [2, None], [3, "x"]]}],
        }
    ],
    "repositories": [
        {
            "path": "repo",
            "commits": [
                {"message": "one", "files": {"x": "1", "y": "2"}},
                {"message": "two", "files": {"x": None}, "branch": "side", "start": "main"},
            ],
            "tags": {"v1": "main", "v2": "side"},
            "changes": {"y": "3", "z": "4"},
        }
    ],
    "workbooks": [{"path": "w.xlsx", "sheets": [{"name": "S", "rows": [["=A2", True], [1, False]]}]}],
}


def changed(*path: Any, to: Any) -> Setup:
    raw = json.loads(json.dumps(FULL))
    spot = raw
    for step in path[:-1]:
        spot = spot[step]
    spot[path[-1]] = to
    return Setup.model_validate(raw)


def test_it_is_what_it_was() -> None:
    """Kept in cassettes, on other machines: when this fails, raise `_FORMAT` or undo what changed it."""
    assert digest(Setup()) == "131a435a6fbea8d92f6bb24424be21d6"
    assert digest(Setup.model_validate(FULL)) == "743989eefa926c0314e3db78635baaba"


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("folders",), []),
        (("folders", 0), "other"),
        (("files", 0, "text"), "ä"),
        (("files", 0, "path"), "A.txt"),
        (("files", 0, "server"), "memory"),
        (("files", 1, "server"), ""),
        (("binaries", 0, "base64"), "AAH+"),
        (("databases", 0, "script"), ""),
        (("databases", 0, "tables", 0, "name"), "u"),
        (("databases", 0, "tables", 0, "columns", 1), "w"),
        (("databases", 0, "tables", 0, "rows", 0, 0), 1.0),
        (("databases", 0, "tables", 0, "rows", 0, 0), "1"),
        (("databases", 0, "tables", 0, "rows", 1, 1), ""),
        (("databases", 0, "tables", 0, "rows"), [[2, None], [1, 1.5], [3, "x"]]),
        (("repositories", 0, "checkout"), "side"),
        (("repositories", 0, "commits", 0, "message"), "One"),
        (("repositories", 0, "commits", 0, "author"), "Grace Hall"),
        (("repositories", 0, "commits", 0, "files"), {"y": "2", "x": "1"}),
        (("repositories", 0, "commits", 1, "files", "x"), ""),
        (("repositories", 0, "commits", 1, "start"), ""),
        (("repositories", 0, "tags", "v2"), "main"),
        (("repositories", 0, "changes", "z"), "5"),
        (("workbooks", 0, "sheets", 0, "name"), "T"),
        (("workbooks", 0, "sheets", 0, "rows", 0, 1), 1),
        (("workbooks", 0, "sheets", 0, "rows", 1, 1), None),
    ],
)
def test_every_part_counts(path: tuple[Any, ...], to: Any) -> None:
    assert digest(changed(*path, to=to)) != digest(Setup.model_validate(FULL))


def test_what_makes_no_difference_on_disk_makes_none_here() -> None:
    whole = digest(Setup.model_validate(FULL))
    assert digest(changed("repositories", 0, "tags", to={"v2": "side", "v1": "main"})) == whole
    assert digest(changed("repositories", 0, "changes", to={"z": "4", "y": "3"})) == whole
    assert digest(changed("repositories", 0, "commits", 0, "branch", to="main")) == whole
    assert digest(changed("files", 0, "path", to="./a.txt")) == whole
    assert digest(Setup.model_validate_json(json.dumps(FULL))) == whole


def test_kinds_do_not_run_into_each_other() -> None:
    one = Setup(files=(model.TextFile(path="a", text="b"), model.TextFile(path="c", text="d")))
    other = Setup(files=(model.TextFile(path="a", text="bc"), model.TextFile(path="d", text="")))
    as_bytes = Setup(binaries=(model.BinaryFile(path="a", base64="Yg=="),))
    as_text = Setup(files=(model.TextFile(path="a", text="Yg=="),))
    assert len({digest(s) for s in (one, other, as_bytes, as_text)}) == 4


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -0.0, 2**5000, "\ud800"])
def test_odd_values_have_one_too(value: Any) -> None:
    def made(cell: Any) -> Setup:
        table = model.Table(name="t", columns=("a",), rows=((cell,),))
        return Setup(databases=(model.Database(path="d.db", tables=(table,)),))

    assert digest(made(value)) == digest(made(value))
    assert digest(made(value)) not in (digest(made(None)), digest(made(0.0)))


scalars = st.one_of(st.text(), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())
sheets = st.builds(
    model.Sheet, name=st.text(max_size=3), rows=st.lists(st.lists(scalars, max_size=3).map(tuple), max_size=3)
)
setups = st.builds(
    lambda rows: Setup(workbooks=(model.Workbook(path="w.xlsx", sheets=tuple(rows)),)),
    st.lists(sheets, min_size=1, max_size=2),
)


@given(setups, setups)
def test_equal_digests_are_equal_setups(one: Setup, other: Setup) -> None:
    if digest(one) == digest(other):
        assert one == other
    else:
        assert repr(one) != repr(other)
