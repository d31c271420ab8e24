"""Every code block of the README and the documents runs, and every command in them exists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for number, match in enumerate(_BLOCK.finditer(page.read_text()), 1):
            if match[1] == language:
                found.append((f"{page.name}:{number}", match[2]))
    return found


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    for page in PAGES:
        kinds = {match[1] for match in _BLOCK.finditer(page.read_text())}
        assert kinds <= {"python", "sh", "text", "toml"}, page


@pytest.mark.git
@pytest.mark.servers
@pytest.mark.parametrize(("where", "code"), blocks("python"), ids=lambda v: v if ":" in v[:40] else "")
def test_python(where: str, code: str, tmp_path: Path) -> None:
    """A block that is followed by a text block prints exactly that."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    page = ROOT / ("README.md" if where.startswith("README") else f"docs/{where.split(':')[0]}")
    after = page.read_text().partition(code + "```")[2] if page.is_file() else ""
    shown = re.match(r"\s*```text\n(.*?)^```$", after, re.S | re.M)
    if shown:
        assert done.stdout == shown[1]


def commands() -> list[str]:
    lines = [line for _, block in blocks("sh") for line in block.splitlines()]
    return sorted({line.partition("  #")[0].strip() for line in lines if line and not line.startswith("#")})


@pytest.mark.parametrize("line", commands())
def test_shell(line: str) -> None:
    """make targets exist; atlas-gym's subcommands take the options that are shown."""
    words = shlex.split(line)
    if words[0] == "make":
        subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True)
    elif words[0] == "atlas-gym":
        plain = [w for w in words[1:] if re.fullmatch(r"[a-z]+", w)]
        program = [str(Path(sys.executable).with_name("atlas-gym")), *plain[:2]]
        done = subprocess.run([*program, "--help"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            program.pop()
            done = subprocess.run([*program, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for option in [w for w in words if w.startswith("--")]:
            assert option in done.stdout, f"{line}: no {option}"
    elif words[0] in ("pip", "git", "cd"):
        assert words[0] != "pip" or "atlas-gym" in line or "-e" in words
    else:
        assert os.access(ROOT / words[0], os.X_OK), line
