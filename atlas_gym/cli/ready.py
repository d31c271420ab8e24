"""Making servers ready with progress, and saying which tasks that leaves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.markup import escape

from atlas_gym.cli.screen import err, progress
from atlas_gym.env import fleet
from atlas_gym.env.world import World
from atlas_gym.errors import AtlasError
from atlas_gym.task.model import Task


def make_ready(world: World, names: Iterable[str]) -> dict[str, str]:
    """Install servers and read their tools.

    Args:
        world: Whose servers; in-process ones need nothing.
        names: Which ones.

    Raises:
        ConfigError: The suite brings no in-process servers, or not these.

    Returns:
        Server -> why it cannot be used here; each was said on the screen.
    """
    if world.config.runtime == "memory":
        for name in names:
            world.catalog.get(name)
        return {}
    missing: dict[str, str] = {}
    wanted = sorted(set(names))
    with progress("Preparing servers", len(wanted)) as ticker:
        for name in wanted:
            reason = world.unavailable(name)
            if not reason:
                try:
                    fleet.prepare(world.catalog.get(name), ticker.say)
                except AtlasError as exc:
                    reason = str(exc)
            if reason:
                missing[name] = reason
                err().print(
                    f"[yellow]Server {escape(name)} is unavailable:[/] {escape(reason)}", soft_wrap=True
                )
            ticker.step(name)
    return missing


def playable(tasks: Sequence[Task], missing: Mapping[str, str]) -> tuple[tuple[Task, ...], dict[str, str]]:
    """The tasks whose visible servers are all there, and for the others why not."""
    can: list[Task] = []
    cannot: dict[str, str] = {}
    for task in tasks:
        lost = [name for name in task.visible if name in missing]
        if lost:
            cannot[task.id] = f"it shows {', '.join(lost)}, which cannot run on this machine"
        else:
            can.append(task)
    return tuple(can), cannot
