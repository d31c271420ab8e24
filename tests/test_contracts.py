"""House rules that a machine can check (design: floors, file length, public names, light import)."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import atlas_gym

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "atlas_gym"
SOURCES = sorted(PACKAGE.rglob("*.py"))
HEAVY = (
    "mcp",
    "torch",
    "docker",
    "transformers",
    "openpyxl",
    "tokenizers",
    "tiktoken",
    "matplotlib",
    "bm25s",
)


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_file_is_short_and_says_what_it_owns(file: Path) -> None:
    text = file.read_text()
    assert len(text.splitlines()) <= 400
    doc = ast.get_docstring(ast.parse(text)) or ""
    assert doc, f"{file} has no module docstring"
    if file.name != "errors.py":  # its docstring is the drawn tree
        assert len(doc.splitlines()) <= 10, f"the docstring of {file} is longer than ten lines"


def test_no_package_of_leftovers() -> None:
    names = {part for file in SOURCES for part in file.relative_to(PACKAGE).with_suffix("").parts}
    assert not names & {"utils", "util", "common", "helpers", "misc"}


def test_nothing_prints_outside_the_command_line() -> None:
    for file in SOURCES:
        if "cli" in file.relative_to(PACKAGE).parts:
            continue
        calls = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)]
        assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"], file


def test_public_names_are_few_sorted_and_real() -> None:
    assert len(atlas_gym.__all__) <= 15
    assert sorted(atlas_gym.__all__) == atlas_gym.__all__
    for name in atlas_gym.__all__:
        value = getattr(atlas_gym, name)
        assert value.__module__.startswith("atlas_gym.")
    with pytest.raises(AttributeError, match="no_such_name"):
        atlas_gym.no_such_name  # noqa: B018 - reading it is the test


def test_import_registers_and_stays_light() -> None:
    code = (
        "import sys, gymnasium, atlas_gym; assert 'Atlas-MCP-v0' in gymnasium.registry; "
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_imports() -> None:
    for file in SOURCES:
        dotted = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if file.name in ("__main__.py", "parent.py", "launcher.py"):  # programs, run by path
            continue
        import_module(dotted)


def test_servers_and_tasks_ship() -> None:
    from atlas_gym import settings

    assert (settings.shipped("servers") / "mcp-server-git" / "server.toml").is_file()
    assert (settings.shipped("tasks") / "core" / "suite.toml").is_file()
