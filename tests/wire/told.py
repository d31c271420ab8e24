"""A server that does what it is told, as a script (`python told.py PATH_OF_FAKE_PY`) and as a coroutine.

`do` may change things, `look` is the same function under a name that a manifest may call reading.
"""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class _Hang(BaseException):
    """Told to hang."""


def build(fake: ModuleType) -> Any:
    """The server, of the classes of one `fake` module."""
    made = fake.FakeServer("told")

    def now(what: str, path: str, text: str, state: Any) -> Any:
        file = Path(path)
        match what:
            case "write":
                file.write_text(text)
            case "remove":
                file.unlink()
            case "read":
                return file.read_text()
            case "remember":
                state["notes"].append(text)
            case "recall":
                return list(state["notes"])
            case "new":
                state["ids"].append(secrets.token_hex(8))
                return state["ids"][-1]
            case "touch" | "crash-with" if text not in state["ids"]:
                raise ValueError(f"there is no {text!r}")
            case "touch":
                pass
            case "crash-first" if file.exists():
                return "second time"
            case "crash-first":
                file.touch(exist_ok=False)
                raise fake.Quit
            case "crash" | "crash-with":
                raise fake.Quit
            case "crash-if" | "crash-or-hang" if file.exists():
                raise fake.Quit
            case "hang" | "crash-or-hang":
                raise _Hang
            case "hang-if" if file.exists():
                raise _Hang
            case "crash-if" | "hang-if":
                pass
            case "die-after":
                state["dying"] = True
            case "die-after-if":
                state["dying"] = file.exists()
            case _:
                raise ValueError(what)
        return "done"

    async def act(what: str, path: str = "", text: str = "", state: Any = None) -> Any:
        """Do it."""
        try:
            return now(what, path, text, state)
        except _Hang:
            await asyncio.Event().wait()

    made.tool(act, name="do")
    made.tool(act, name="look")
    return made


def _fresh(workspace: Path) -> dict[str, Any]:
    return {"workspace": str(workspace), "notes": [], "ids": [], "dying": False}


def _poisoned(workspace: Path) -> bool:
    return (workspace / "poison").exists()


async def serve(fake: ModuleType, stream: Any) -> None:
    """Serve one in-process client. A poisoned workspace keeps it from starting."""
    made, state = build(fake), _fresh(stream.workspace.files)
    if _poisoned(stream.workspace.files):
        return
    buffer = b""
    while not state["dying"] and (chunk := await stream.receive()):
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            try:
                reply = await made.answer(line, state)
            except fake.Quit:
                return
            if reply is not None:
                await stream.send(reply)


def main() -> int:
    """Serve stdin and stdout."""
    spec = importlib.util.spec_from_file_location("fake", sys.argv[1])
    assert spec is not None
    assert spec.loader is not None
    fake = importlib.util.module_from_spec(spec)
    sys.modules["fake"] = fake  # dataclasses look their module up
    spec.loader.exec_module(fake)
    if _poisoned(Path.cwd()):
        sys.stderr.write("there is poison in here\n")
        return 4
    made, state = build(fake), _fresh(Path.cwd())
    with asyncio.Runner() as runner:
        for line in sys.stdin.buffer:
            try:
                reply = runner.run(made.answer(line, state))
            except fake.Quit:
                sys.stderr.write("told to end\n")
                return 3
            if reply is not None:
                sys.stdout.buffer.write(reply)
                sys.stdout.buffer.flush()
            if state["dying"]:
                break
    return 0


if __name__ == "__main__":
    sys.exit(main())
