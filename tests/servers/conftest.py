"""A tiny MCP server as a real package: a wheel made here, a folder with its lock, no registry needed."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from atlas_gym.runtime.catalog import Catalog, Server

CODE = """
import json, os, sys, time

TOOLS = [
    {"name": "greet", "description": "    Greet.\\n    Kindly.", "inputSchema": {"type": "object"}},
    {"name": "now", "description": "Tell the time.", "inputSchema": {"type": "object"}},
    {"name": "read", "description": "Read the note.", "inputSchema": {"type": "object"}},
]
TOOLS += json.loads(os.environ.get("MORE_TOOLS", "[]"))


def answer(method, params):
    if method == "initialize":
        version = params["protocolVersion"]
        info = {"name": "tiny", "version": "9.9"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    tool, arguments = params["name"], params.get("arguments") or {}
    if tool == "fail":
        return {"content": [{"type": "text", "text": "not today"}], "isError": True}
    if tool == "greet":
        value = {"greeting": "hello " + arguments.get("to", "you"), "length": 2}
    elif tool == "now":
        value = {"ns": time.time_ns()}
    else:
        with open(os.environ["NOTE"]) as file:
            value = {"text": file.read()}
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"], message.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""

MANIFEST = """
name = "tiny"
description = "Greets."
registry = "pypi"
package = "tiny-mcp"
version = "1.0"
language = "python"
python = ">=3.11"
command = ["tiny-mcp"]
state = "none"
state_bound = "call"
read_only = ["greet", "now", "read"]
nondeterministic = ["now"]

[env]
NOTE = "{state}/note.txt"
"""

EXAMPLES = """
calls = [
    { tool = "greet", save = "first" },
    { tool = "greet", arguments = { to = "$first.greeting" } },
    { tool = "now" },
    { tool = "read" },
]

[[setup.files]]
server = "tiny"
path = "note.txt"
text = "a note"
"""


@dataclass(frozen=True)
class Tiny:
    """The folders of one tiny server."""

    servers: Path
    folder: Path
    wheels: Path
    cache: Path

    @property
    def server(self) -> Server:
        """The server as its files now say."""
        return Catalog.load([self.servers]).get("tiny")

    def edit(self, file: str, old: str, new: str) -> None:
        """Change one of its files."""
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


def wheel(place: Path, code: str) -> Path:
    """Write `tiny_mcp-1.0-py3-none-any.whl`."""
    info = "tiny_mcp-1.0.dist-info"
    files = {
        "tiny_mcp.py": code,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-mcp\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntiny-mcp = tiny_mcp:main\n",
    }
    lines = [f"{info}/RECORD,,"]
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text.encode())}")
    place.mkdir(parents=True, exist_ok=True)
    file = place / "tiny_mcp-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": "\n".join(lines) + "\n"}.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return file


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiny]:
    made = Tiny(tmp_path / "servers", tmp_path / "servers" / "tiny", tmp_path / "wheels", tmp_path / "cache")
    made.folder.mkdir(parents=True)
    file = wheel(made.wheels, CODE)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (made.folder / "server.toml").write_text(MANIFEST)
    (made.folder / "requirements.txt").write_text(f"tiny-mcp==1.0 \\\n    --hash=sha256:{digest}\n")
    (made.folder / "examples.toml").write_text(EXAMPLES)
    monkeypatch.setenv("ATLAS_CACHE", str(made.cache))
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("UV_FIND_LINKS", str(made.wheels))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    yield made
    run = tmp_path / "run"
    assert not run.exists() or not [p for p in run.iterdir() if p.name.startswith("ep-")], "workspaces left"


@pytest.fixture
def lock_of(tiny: Tiny) -> Path:
    """The tiny server's lock file, written."""
    from atlas_gym.env.locking import write_lock

    write_lock(tiny.server, dependencies=False)
    file = tiny.folder / "lock.json"
    assert json.loads(file.read_text())["tools"]
    return file
