"""Suites: a folder with `suite.toml` and template modules, a `tasks.jsonl`, or both.

Owns loading and finding; a suite given as a path runs that folder's Python code. Does not know how a
task is run.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import Field, ValidationError

from atlas_gym import settings
from atlas_gym.errors import TaskError, unknown
from atlas_gym.task.model import Name, Split, Task
from atlas_gym.task.setup import Record
from atlas_gym.task.template import Template, templates_of


class SuiteFile(Record):
    """What `suite.toml` may say."""

    name: Name
    version: str
    description: str = ""
    servers: tuple[Name, ...] = ()
    """Servers from which distractors are drawn."""
    modules: tuple[Name, ...] = ()
    """Template modules beside the file, without `.py`, in the order of the tasks."""
    tasks_per_template: Annotated[int, Field(ge=1, le=1000)] = 1
    counts: dict[str, Annotated[int, Field(ge=0, le=1000)]] = Field(default_factory=dict)
    """Template -> number of tasks, where it is another one."""


@dataclass(frozen=True)
class Suite:
    """A named, versioned list of tasks."""

    name: str
    version: str
    servers: tuple[str, ...]
    tasks: tuple[Task, ...]
    task_seed: int = 0

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def get(self, task_id: str) -> Task:
        """The task with this id; the suite's name may be left out.

        Raises:
            UnknownNameError: With the closest id.
        """
        wanted = task_id if "/" in task_id else f"{self.name}/{task_id}"
        for task in self.tasks:
            if task.id == wanted:
                return task
        hint = "List them with: atlas-gym tasks list " + self.name
        raise unknown("task", task_id, (t.id for t in self.tasks), hint)

    def split(self, name: Split | str) -> Suite:
        """The tasks of one split, as a suite.

        Raises:
            UnknownNameError: No task is in a split of that name.
        """
        kept = tuple(task for task in self.tasks if task.split == name)
        if not kept:
            raise unknown("split", name, {task.split for task in self.tasks})
        return Suite(self.name, self.version, self.servers, kept, self.task_seed)

    @property
    def digest(self) -> str:
        """SHA-256 over every task: two suites with the same digest ask and check the same."""
        text = json.dumps([t.model_dump(mode="json") for t in self.tasks], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def suites() -> list[str]:
    """The names of the suites that ship."""
    root = settings.shipped("tasks")
    if not root.is_dir():
        return []
    return sorted(
        f.name for f in root.iterdir() if (f / "suite.toml").is_file() or (f / "tasks.jsonl").is_file()
    )


def load_suite(name_or_path: str | Path, *, task_seed: int = 0) -> Suite:
    """Load a shipped suite by name, or any folder by path.

    Args:
        name_or_path: "core", or a path to a folder (a text with a "/" is a path).
        task_seed: Shifts the templates' draws: other seeds give other tasks, without end. Tasks of a
            `tasks.jsonl` are the same for every seed.

    Raises:
        UnknownNameError: No suite of that name ships.
        TaskError: A file is missing or wrong; says which, and the line.
    """
    if not isinstance(task_seed, int) or isinstance(task_seed, bool) or task_seed < 0:
        raise TaskError(f"task_seed is {task_seed!r}; give a whole number of at least 0.")
    folder = suite_folder(name_or_path)
    about = _about(folder)
    tasks: list[Task] = []
    used: set[str] = set()
    for made in _templates(folder, about):
        used.add(made.name)
        count = about.counts.get(made.name, about.tasks_per_template)
        first = task_seed * count
        tasks += [made.draw(about.name, number, about.servers) for number in range(first, first + count)]
    if lost := sorted(set(about.counts) - used):
        raise unknown("template", lost[0], used, f"It stands in [counts] of {folder / 'suite.toml'}.")
    tasks += _jsonl(folder / "tasks.jsonl")
    if not tasks:
        raise TaskError(f"Suite {about.name!r} in {folder} holds no task: add modules or a tasks.jsonl.")
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise TaskError(f"Suite {about.name!r} holds two tasks with the id {task.id!r}: rename one.")
        seen.add(task.id)
    return Suite(about.name, about.version, about.servers, tuple(tasks), task_seed)


def suite_folder(name_or_path: str | Path) -> Path:
    """Where a suite lies: a shipped one by name, any other by path.

    Raises:
        UnknownNameError: No suite of that name ships.
        TaskError: There is no such folder.
    """
    if isinstance(name_or_path, Path) or "/" in name_or_path:
        folder = Path(name_or_path)
        if not folder.is_dir():
            raise TaskError(
                f"There is no suite folder {str(folder)!r}. Give a folder with a suite.toml or tasks.jsonl."
            )
        return folder.resolve()
    if name_or_path not in suites():
        raise unknown("suite", name_or_path, suites(), "A path to a suite's folder works too.")
    return settings.shipped("tasks") / name_or_path


def _about(folder: Path) -> SuiteFile:
    path = folder / "suite.toml"
    if not path.is_file():
        return SuiteFile(name=folder.name, version="0")
    try:
        return SuiteFile.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise TaskError(f"{path} is not TOML: {exc}") from exc
    except ValidationError as exc:
        raise TaskError(f"{path}: {_first(exc)}") from exc


def _templates(folder: Path, about: SuiteFile) -> Iterator[Template]:
    if not about.modules:
        return
    # A package of its own per folder: its modules import each other relatively ("from .words import ...").
    package = f"atlas_suite_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    if package not in sys.modules:
        made = ModuleType(package)
        made.__path__ = [str(folder)]
        sys.modules[package] = made
    for name in about.modules:
        if not (folder / f"{name}.py").is_file():
            raise TaskError(
                f"{folder / 'suite.toml'} names the module {name!r}; there is no {name}.py beside it."
            )
        try:
            module = importlib.import_module(f"{package}.{name}")
        except Exception as exc:
            raise TaskError(f"{folder / name}.py cannot be imported: {type(exc).__name__}: {exc}") from exc
        yield from templates_of(module)


def _jsonl(path: Path) -> list[Task]:
    if not path.is_file():
        return []
    tasks = []
    try:
        lines = path.read_text("utf-8").split("\n")
    except UnicodeDecodeError as exc:
        raise TaskError(f"{path} is not UTF-8 text: {exc}") from exc
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            tasks.append(Task.model_validate_json(line))
        except ValidationError as exc:
            raise TaskError(f"{path}, line {number}: {_first(exc)}") from exc
    return tasks


def _first(exc: ValidationError) -> str:
    error: Any = exc.errors(include_url=False)[0]
    where = ".".join(str(part) for part in error["loc"]) or "the whole"
    more = f" (and {exc.error_count() - 1} more)" if exc.error_count() > 1 else ""
    return f"{where}: {error['msg']}{more}"
