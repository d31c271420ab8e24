"""Writing a server's locks: dependencies, tool digests, and the shapes of results seen in real calls.

Owns the order of these steps and the two fresh runs that show which tools do not repeat. Does not know
tasks or episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atlas_gym.env import fleet
from atlas_gym.errors import LockError
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation, install
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.relock import write_dependencies
from atlas_gym.toolspace.examples import Examples, fill, load_examples
from atlas_gym.toolspace.lock import Lock, ToolLock, digest_tool, save_lock
from atlas_gym.toolspace.observed import shape_of
from atlas_gym.types import ToolCall, ToolResult
from atlas_gym.wire.loop import portal
from atlas_gym.wire.sessions import Sessions


@dataclass(frozen=True)
class Written:
    """What `write_lock` did and saw."""

    server: str
    dependencies_changed: bool
    tools: int
    shapes: int
    """Tools whose result was observed."""
    failed: tuple[tuple[str, str], ...]
    """Example calls that did not succeed: (tool, what it said)."""
    restless: tuple[str, ...]
    """Tools that answered differently on two fresh servers and are not declared nondeterministic. A tool
    that reads what a nondeterministic one wrote is among them: judge each."""


def write_lock(
    server: Server,
    say: fleet.Say = lambda _message: None,
    *,
    upgrade: bool = False,
    dependencies: bool = True,
) -> Written:
    """Write the dependency lock and `lock.json` of one server, from the server itself.

    Args:
        server: A server with a folder.
        say: Told, in one line each, what takes long.
        upgrade: Let dependencies move to the newest versions that fit.
        dependencies: False leaves the dependency lock as it is.

    Raises:
        LockError: The server has no folder, or its example calls are not usable.
        InstallError: It cannot be resolved or installed.
        StartError: It did not start.
        StorageError: Something cannot be written.
    """
    if server.folder is None:
        raise LockError(
            f"Server {server.name!r} comes from your mcp.json, which has no locks. Nothing to do."
        )
    changed = write_dependencies(server, say, upgrade=upgrade) if dependencies else False
    installation = install(server, say)
    say(f"reading the tools of {server.name}")
    texts = fleet.ask(installation)
    examples = load_examples(server)
    runs: list[list[ToolResult]] = []
    for number in (1, 2):
        say(f"calling {len(examples.calls)} examples of {server.name} ({number} of 2)")
        runs.append(run_examples(installation))
    values: dict[str, list[Any]] = {}
    for result in runs[0]:
        if result.outcome == "ok":
            values.setdefault(result.call.tool, []).append(result.value)
    tools = tuple(
        ToolLock(
            raw["name"], digest_tool(raw), shape_of(values[raw["name"]]) if raw["name"] in values else None
        )
        for raw in texts.tools
    )
    save_lock(server.folder / "lock.json", Lock(texts.server_version, texts.protocol, tools))
    fleet.keep(installation, texts)
    differing = {
        first.call.tool
        for first, second in zip(*runs, strict=True)
        if (first.outcome, first.value, first.text) != (second.outcome, second.value, second.text)
    }
    return Written(
        server=server.name,
        dependencies_changed=changed,
        tools=len(tools),
        shapes=len(values),
        failed=tuple((r.call.tool, r.text) for r in runs[0] if r.outcome != "ok"),
        restless=tuple(sorted(differing - set(server.manifest.nondeterministic))),
    )


def run_examples(installation: Installation) -> list[ToolResult]:
    """Make every example call of the server, in order, on a fresh one in a fresh workspace.

    Raises:
        LockError: An example takes a value that an earlier result does not hold.
    """
    return portal().run(_run(installation, load_examples(installation.server)))


async def _run(installation: Installation, examples: Examples) -> list[ToolResult]:
    server = installation.server
    workspace = fleet.scratch(server)
    sessions = Sessions(ProcessRuntime(prefork=False), {server.name: installation}, workspace)
    saved: dict[str, Any] = {}
    results: list[ToolResult] = []
    try:
        for example in examples.calls:
            arguments = fill(example.arguments, saved)
            result = await sessions.call(ToolCall(server.name, example.tool, arguments))
            results.append(result)
            if example.save:
                saved[example.save] = result.value
    finally:
        await sessions.close()
        workspace.close()
    return results
