"""Judging what lies on disk when an episode has ended: files, databases, workbooks, git, graphs.

Each function returns "" when the check holds and else what is wrong. "Unchanged" is decided against
the setup itself, laid out again, never against anything that the agent could have written.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from atlas_gym.task import answers, database, repository, workbook
from atlas_gym.task.evidence import Evidence, Unreadable
from atlas_gym.task.kinds import (
    CheckBase,
    FileCheck,
    GitCheck,
    GraphCheck,
    SqliteCheck,
    UnchangedCheck,
    WorkbookCheck,
)
from atlas_gym.task.setup import Setup, lay_out

_NUMBERS_IN_FILE: Final = 3


class Pristine:
    """The setup, laid out once more when a check first asks for it; a context manager.

    Args:
        setup: What to lay out.
        within: A directory for it; one that `gc` collects, should this process be killed meanwhile.
    """

    def __init__(self, setup: Setup, within: Path) -> None:
        self._setup = setup
        self._within = within
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Pristine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder:
            self._folder.cleanup()
            self._folder = None

    def evidence(self) -> Evidence:
        """The end of an episode in which nobody did anything."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="atlas-pristine-", dir=self._within)
            root = Path(self._folder.name)
            lay_out(self._setup, root / "files", lambda server: root / "state" / server)
        root = Path(self._folder.name)
        return Evidence("", root / "files", lambda server: root / "state" / server)


def wrong(check: CheckBase, evidence: Evidence, pristine: Pristine) -> str:
    """What is wrong with the state that this check looks at; "" when nothing is.

    Raises:
        Unreadable: The thing to look at is missing or spoiled.
        Unavailable: The machine cannot look.
    """
    match check:
        case FileCheck():
            return _file(check, evidence)
        case SqliteCheck():
            return _sqlite(check, evidence)
        case WorkbookCheck():
            return _workbook(check, evidence)
        case GitCheck():
            return _git(check, evidence)
        case GraphCheck():
            return _graph(check, evidence)
        case UnchangedCheck():
            before = _picture(check, pristine.evidence())
            return "" if _picture(check, evidence) == before else f"{check.path} was changed"
        case _:
            raise Unreadable(f"nobody knows how to run a check of type {type(check).__name__}")


def parts_differ(value: Any, expected: dict[str, Any], tolerance: float) -> str:
    """The first part that is not as expected at its path; empty when all are."""
    for path, wanted in expected.items():
        try:
            found = answers.at(value, path)
        except LookupError as exc:
            return f"{path!r} is missing: {exc}"
        if not answers.same(found, wanted, tolerance):
            return f"{path!r} is {_short(found)}, not as expected"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _file(check: FileCheck, evidence: Evidence) -> str:
    if not check.exists:
        at = evidence.path(check.path, check.server)
        return f"{check.path} is still there" if at.exists() else ""
    text = evidence.text(check.path, check.server)
    if check.equals is not None and _lines(text) != _lines(check.equals):
        return f"{check.path} has another content: {_short(text)}"
    flat = answers.normalised(text)
    for part in check.contains:
        if answers.normalised(part) not in flat:
            return f"{check.path} does not contain {part!r}"
    for part in check.lacks:
        if answers.normalised(part) in flat:
            return f"{check.path} contains {part!r}"
    stripped = [" ".join(line.split()) for line in _lines(text)]
    for line in check.lines:
        if " ".join(line.split()) not in stripped:
            return f"{check.path} has no line {line!r}"
    if check.only_lines and len([line for line in stripped if line]) != len(check.lines):
        return f"{check.path} has other lines too"
    if check.number is not None:
        problem = answers.has_number(text, check.number, tolerance=check.tolerance, limit=_NUMBERS_IN_FILE)
        if problem:
            return f"{check.path}: {problem}"
    if check.expected:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as exc:
            return f"{check.path} is not JSON: {exc}"
        return parts_differ(value, check.expected, check.tolerance)
    return ""


def _sqlite(check: SqliteCheck, evidence: Evidence) -> str:
    rows = database.rows(evidence.path(check.path, check.server), check.query)
    found: list[Any] = [list(evidence.shown(list(row))) for row in rows]
    wanted: list[Any] = [list(r) for r in check.rows]
    if not check.ordered:
        found, wanted = sorted(found, key=_order), sorted(wanted, key=_order)
    if len(found) != len(wanted):
        return f"{len(found)} rows, not {len(wanted)}: {_short(found)}"
    return "" if answers.same(found, wanted, check.tolerance) else f"other rows: {_short(found)}"


def _order(row: list[Any]) -> list[tuple[int, float, str]]:
    # Numbers are rounded so that the last bit of a sum does not change the order.
    return [
        (1, round(float(v), 6), "") if isinstance(v, int | float) else (0 if v is None else 2, 0.0, str(v))
        for v in row
    ]


def _workbook(check: WorkbookCheck, evidence: Evidence) -> str:
    path = evidence.path(check.path)
    values = evidence.shown(workbook.cells(path, check.sheet))
    for cell, wanted in check.cells.items():
        if not answers.same(values.get(cell), wanted, check.tolerance):
            return f"{check.sheet}!{cell} is {_short(values.get(cell))}, not as expected"
    if check.formulas:
        typed = workbook.cells(path, check.sheet, formulas=True)
        for cell in check.formulas:
            if not str(typed.get(cell, "")).startswith("="):
                return f"{check.sheet}!{cell} holds no formula"
    return ""


def _git(check: GitCheck, evidence: Evidence) -> str:
    with repository.history(evidence.path(check.path)) as history:
        current = history.current()
        if check.current and current != check.current:
            return f"the branch {current!r} is checked out, not {check.current!r}"
        name = check.branch or current
        tip = history.branches().get(name)
        if not check.exists:
            return f"the branch {name!r} is there" if tip else ""
        if not tip:
            return f"there is no branch {name!r}"
        return _branch(check, history, tip, evidence.shown)


def _branch(check: GitCheck, history: repository.History, tip: str, shown: Callable[[Any], Any]) -> str:
    if check.commits is not None and (count := len(history.commits(tip))) != check.commits:
        return f"{count} commits, not {check.commits}"
    message = str(shown(history.message(tip)))
    if check.tip and message.split("\n", 1)[0].strip() != check.tip:
        return f"the tip is {message[:80]!r}"
    for part in check.message:
        if answers.normalised(part) not in answers.normalised(message):
            return f"the tip's message does not say {part!r}"
    for path, wanted in check.files.items():
        found = shown(history.text(tip, path))
        if (found is None) != (wanted is None) or (
            wanted is not None and _lines(found or "") != _lines(wanted)
        ):
            return f"{path} at the tip is {_short(found)}"
    for path, parts in check.contains.items():
        flat = answers.normalised(shown(history.text(tip, path)) or "")
        for part in parts:
            if answers.normalised(part) not in flat:
                return f"{path} at the tip does not contain {part!r}"
    return ""


Relation = tuple[str, str, str]


def _read_graph(text: str) -> tuple[dict[str, tuple[str, list[str]]], set[Relation]]:
    """Entities (name -> type, observations) and relations of a knowledge graph file."""
    entities: dict[str, tuple[str, list[str]]] = {}
    relations: set[Relation] = set()
    for line in filter(str.strip, text.split("\n")):
        try:
            item = json.loads(line)
            if item["type"] == "entity":
                seen = [str(o) for o in item["observations"]]
                entities[str(item["name"])] = (str(item["entityType"]), seen)
            else:
                relations.add((str(item["from"]), str(item["relationType"]), str(item["to"])))
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise Unreadable(f"a line of the graph cannot be read: {_short(line)}") from exc
    return entities, relations


def _graph(check: GraphCheck, evidence: Evidence) -> str:
    entities, relations = _read_graph(evidence.text(check.path))
    if check.entity and not check.exists:
        return f"the entity {check.entity!r} is still there" if check.entity in entities else ""
    if check.entity:
        if check.entity not in entities:
            return f"there is no entity {check.entity!r}"
        kind, seen = entities[check.entity]
        if check.entity_type and not answers.same(kind, check.entity_type):
            return f"{check.entity!r} is of type {kind!r}"
        have = {answers.normalised(o) for o in seen}
        for observation in check.observations:
            if answers.normalised(observation) not in have:
                return f"{check.entity!r} has no observation {observation!r}"
        for observation in check.lacks:
            if answers.normalised(observation) in have:
                return f"{check.entity!r} still has the observation {observation!r}"
    for relation in check.relations:
        if relation not in relations:
            return f"there is no relation {' - '.join(relation)}"
    for relation in check.no_relations:
        if relation in relations:
            return f"the relation {' - '.join(relation)} is there"
    return ""


def _picture(check: UnchangedCheck, evidence: Evidence) -> Any:
    """What must be equal before and after."""
    path = evidence.path(check.path, check.server)
    makers: dict[str, Callable[[], Any]] = {
        "file": lambda: evidence.raw(path) if path.is_file() else None,
        "folder": lambda: _tree(evidence, path, check.except_for),
        "query": lambda: sorted(repr(evidence.shown(list(r))) for r in database.rows(path, check.query)),
        "sheet": lambda: evidence.shown(_cells(path, check)),
        "branch": lambda: _tip(path, check.branch),
        "graph": lambda: _others(evidence.text(check.path), check.except_for),
    }
    return makers[check.of]()


def _tree(evidence: Evidence, top: Path, except_for: Sequence[str]) -> dict[str, bytes | None]:
    names = {path.relative_to(top).as_posix(): path for path in sorted(top.rglob("*"))}
    left_out = evidence.left_out_below(top)

    def may_change(name: str) -> bool:
        return any(name == s or name.startswith(s.rstrip("/") + "/") for s in except_for)

    found: dict[str, bytes | None] = {
        f"{name} ({left_out[name]})": None for name in left_out if not may_change(name)
    }
    for name, path in names.items():
        if not may_change(name):
            found[name] = evidence.raw(path) if path.is_file() and not path.is_symlink() else None
    return found


def _cells(path: Path, check: UnchangedCheck) -> dict[str, Any]:
    found = workbook.cells(path, check.sheet, formulas=True)
    return {cell: value for cell, value in found.items() if cell not in check.except_for}


def _tip(path: Path, branch: str) -> str | None:
    with repository.history(path) as history:
        return history.branches().get(branch)


def _others(text: str, except_for: Iterable[str]) -> Any:
    skip = set(except_for)
    entities, relations = _read_graph(text)
    kept = {name: (kind, sorted(seen)) for name, (kind, seen) in entities.items() if name not in skip}
    return kept, {r for r in relations if r[0] not in skip and r[2] not in skip}
