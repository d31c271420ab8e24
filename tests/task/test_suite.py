"""Loading suites: templates, files, and every way in which a folder can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlas_gym.errors import ConfigError, TaskError, UnknownNameError
from atlas_gym.task.kinds import FileCheck
from atlas_gym.task.model import Task
from atlas_gym.task.suite import load_suite, suites

TEMPLATES = '''
"""Two templates."""
from atlas_gym.task.kinds import AnswerNumber
from atlas_gym.task.template import Draft, template
from .words import WORD


@template(servers=("b",), difficulty="hard", split="test")
def later(rng):
    return Draft(WORD, "answer('')", [AnswerNumber(name="n", value=rng.randint(0, 10**9))])


@template(servers=("a",), difficulty="easy")
def earlier(rng):
    check = AnswerNumber(name="n", value=rng.randint(0, 10**9))
    return Draft(" Say it. ", "answer('')", [check], params={"k": 1})
'''
ABOUT = 'name = "mine"\nversion = "3"\nservers = ["a", "b", "c", "d", "e", "f"]\nmodules = ["made"]\n'


def line(number: int) -> str:
    return Task(
        id=f"mine/fixed-{number}",
        suite="mine",
        difficulty="easy",
        prompt="p",
        servers=("a",),
        gold="answer('')",
        checks=(FileCheck(name="f", path="a"),),
    ).model_dump_json()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "made.py").write_text(TEMPLATES)
    (tmp_path / "words.py").write_text('WORD = "Say it later."\n')
    (tmp_path / "suite.toml").write_text(ABOUT + "tasks_per_template = 2\n[counts]\nearlier = 3\n")
    (tmp_path / "tasks.jsonl").write_text(line(1) + "\n\n" + line(2) + "\n")
    return tmp_path


def test_a_suite_is_its_templates_then_its_file(folder: Path) -> None:
    suite = load_suite(folder)
    assert (suite.name, suite.version, len(suite)) == ("mine", "3", 7)
    assert [t.id for t in suite] == [
        "mine/later-0000",
        "mine/later-0001",
        "mine/earlier-0000",
        "mine/earlier-0001",
        "mine/earlier-0002",
        "mine/fixed-1",
        "mine/fixed-2",
    ]
    drawn = suite.get("earlier-0001")
    assert drawn == suite.get("mine/earlier-0001")
    assert (drawn.prompt, drawn.split, drawn.difficulty, drawn.servers) == (
        "Say it.",
        "train",
        "easy",
        ("a",),
    )
    assert 2 <= len(drawn.distractors) <= 4
    assert set(drawn.distractors) <= set("bcdef")
    assert len(suite.split("test")) == 2


def test_the_same_seed_draws_the_same_and_another_never_does(folder: Path) -> None:
    first, again, other = load_suite(folder), load_suite(str(folder)), load_suite(folder, task_seed=5)
    assert first.digest == again.digest
    assert first.digest != other.digest
    assert [t.id for t in other][:3] == ["mine/later-0010", "mine/later-0011", "mine/earlier-0015"]
    assert not {t.model_dump_json() for t in first if t.template} & {t.model_dump_json() for t in other}


def test_a_folder_with_only_a_file_is_a_suite(folder: Path) -> None:
    (folder / "suite.toml").unlink()
    assert len(load_suite(folder)) == 2


def test_unknown_names_have_a_closest_one(folder: Path) -> None:
    assert "core" in suites()
    with pytest.raises(UnknownNameError, match="'core'"):
        load_suite("cor")
    with pytest.raises(UnknownNameError, match="mine/later-0001"):
        load_suite(folder).get("later-001")
    with pytest.raises(UnknownNameError, match="'test'"):
        load_suite(folder).split("tests")


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("suite.toml", "name = ", "suite.toml is not TOML"),
        ("suite.toml", ABOUT + "task_per_template = 2\n", "suite.toml: task_per_template"),
        ("suite.toml", ABOUT + "tasks_per_template = 0\n", "suite.toml: tasks_per_template"),
        ("suite.toml", ABOUT.replace("made", "maid"), "no maid.py"),
        ("suite.toml", ABOUT + "[counts]\nearly = 2\n", "Unknown template 'early'.*'earlier'"),
        ("made.py", "import nothing_like_this", "cannot be imported: ModuleNotFoundError"),
        ("made.py", "def", "cannot be imported: SyntaxError"),
        ("made.py", TEMPLATES.replace("value=rng", "valu=rng"), "'later' of suite 'mine', draw 0 is not"),
        (
            "made.py",
            TEMPLATES.replace("(0, 10**9)", "(1, 0)"),
            "'later' of suite 'mine', draw 0 failed: ValueError",
        ),
        ("tasks.jsonl", line(1) + "\n{", "tasks.jsonl, line 2"),
        ("tasks.jsonl", line(1) + "\n" + line(1), "two tasks with the id"),
        ("tasks.jsonl", '{"id": "a/b"}', "line 1: suite: Field required"),
    ],
)
def test_broken_files_are_named(folder: Path, file: str, text: str, why: str) -> None:
    (folder / file).write_text(text)
    with pytest.raises(ConfigError, match=why):
        load_suite(folder)


def test_other_ways_to_be_wrong(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(TaskError, match="not UTF-8"):
        load_suite(tmp_path)
    (tmp_path / "tasks.jsonl").write_text("\n")
    with pytest.raises(TaskError, match="holds no task"):
        load_suite(tmp_path)
    with pytest.raises(TaskError, match="no suite folder"):
        load_suite(tmp_path / "nowhere")
    with pytest.raises(TaskError, match="task_seed"):
        load_suite("core", task_seed=-1)
