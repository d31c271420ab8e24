"""What importing a server's modules binds that forks of one interpreter must not share.

Owns the search: threads, descriptors, files, shared memory, chance, paths of the scratch directories. Stdlib
only, loaded by path inside a host. Does not know what is imported or why.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import importlib.util
import io
import os
import random
import site
import sys
import threading
import types
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_SERVANTS = frozenset(("random", "uuid", "secrets", "tempfile", "os", "pathlib", "genericpath", "posixpath"))
"""Modules that draw random bytes, and look at files, for their callers."""
_LOOKS = (
    *((builtins, "open"), (io, "open"), (os, "open"), (os, "stat"), (os, "lstat"), (os, "access")),
    *((os, "listdir"), (os, "scandir"), (os, "readlink")),
)
_SUPPORTS = (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids)


class Watch:
    """Sees, around imports (`with`), what they bind; `problems` tells.

    Args:
        scratch: Root of the directories that stand for an episode's while importing; its name is unique.
        own: Names of the server's own modules. What others draw by chance tells episodes nothing.
        known: Identities of objects of ours that hold the name of the scratch directories.
    """

    def __init__(self, scratch: str, own: frozenset[str], known: set[int]) -> None:
        self.name = os.path.basename(scratch)
        self.folders = [os.path.join(scratch, part) for part in ("files", "state")]
        self.entries = entries_of(self.folders)
        self.own = own
        self.known = known
        self.generators: weakref.WeakSet[random.Random] = weakref.WeakSet()
        """Generators made at import and seeded by chance."""
        self.drawn: set[str] = set()
        """Own modules that drew random numbers."""
        self.looked: set[str] = set()
        """Own modules that looked for files of an episode."""
        self.movable: list[tuple[dict[str, Any], str]] = []
        """Variables of others' modules that hold a path, such as the directory at import."""
        self.environ = dict(os.environ)
        self.descriptors = _descriptors()
        self.state = random.getstate()
        self.mask = _umask()
        self.place = os.getcwd()
        self._real: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        real_urandom, real_seed, real_import = os.urandom, random.Random.seed, builtins.__import__
        self._real = (real_urandom, real_seed, real_import)
        executing = [""]

        def urandom(size: int, /) -> bytes:
            if self._real:  # else a module has kept this function
                self._note(_caller(_SERVANTS), self.drawn)
            return real_urandom(size)

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            if self._real:
                (self.generators.add if a is None else self.generators.discard)(generator)
            real_seed(generator, a, version)

        def import_(
            name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
        ) -> Any:
            full = name
            if level:
                with contextlib.suppress(ImportError, KeyError, TypeError):
                    full = importlib.util.resolve_name("." * level + name, globals["__package__"])
            if full in sys.modules or not self._real:
                return real_import(name, globals, locals, fromlist, level)
            self._attribute(executing[-1])
            executing.append(full)
            try:
                return real_import(name, globals, locals, fromlist, level)
            finally:
                self._attribute(executing.pop())

        os.urandom = urandom
        vars(random)["_urandom"] = urandom
        random.Random.seed = seed  # type: ignore[method-assign, assignment]
        builtins.__import__ = import_
        for module, name in _LOOKS:
            setattr(module, name, self._watched(getattr(module, name)))

    def __exit__(self, *_error: object) -> None:
        for module, name in _LOOKS:
            watched = getattr(module, name)
            setattr(module, name, watched.__wrapped__)
            for known in _SUPPORTS:
                known.discard(watched)
        os.urandom, random.Random.seed, builtins.__import__ = self._real  # type: ignore[method-assign]
        vars(random)["_urandom"] = os.urandom
        self._real = ()

    def importing(self, name: str) -> bool:
        """Import one module; whether that was possible."""
        try:
            __import__(name)
        except Exception:  # noqa: BLE001 - it is tried again, and fails again, in the fork
            return False
        return True

    def _attribute(self, module: str) -> None:
        state = random.getstate()
        if state != self.state:
            self.state = state
            self._note(module, self.drawn)

    def _note(self, module: str, what: set[str]) -> None:
        if module in self.own:
            what.add(module)

    def _watched(self, real: Any) -> Any:
        """A function on files that notes when an own module uses it on the scratch directories."""

        @functools.wraps(real)
        def call(*args: Any, **more: Any) -> Any:
            path = args[0] if args else next(iter(more.values()), ".")
            named = bool(self._real) and isinstance(path, str | os.PathLike)
            if named and self.name in os.path.abspath(os.fspath(path)):
                self._note(_caller(sys.stdlib_module_names), self.looked)
            return real(*args, **more)

        for known in _SUPPORTS:
            if real in known:
                known.add(call)
        return call

    def variables(self) -> dict[str, str | None]:
        """Environment variables that were changed; None for those removed."""
        now = dict(os.environ)
        changed: dict[str, str | None] = {k: v for k, v in now.items() if self.environ.get(k) != v}
        return changed | dict.fromkeys(self.environ.keys() - now.keys())

    def clean(self) -> None:
        """Remove what was made in the scratch directories meanwhile."""
        for path in sorted(entries_of(self.folders) - self.entries, reverse=True):  # contents first
            with contextlib.suppress(OSError):
                if os.path.isdir(path) and not os.path.islink(path):
                    os.rmdir(path)
                else:
                    os.unlink(path)

    def problems(self) -> list[str]:
        """Everything found, each as the rest of a sentence that begins with "when imported, it"."""
        chance = [f"drew random numbers (in {name})" for name in sorted(self.drawn)]
        looks = [f"looked for files of the episode (in {name})" for name in sorted(self.looked)]
        return [*self._process(), *self._files(), *chance, *looks, *self._paths()]

    def _process(self) -> Iterator[str]:
        tasks = len(os.listdir("/proc/self/task"))
        if tasks > 1:
            names = sorted(t.name for t in threading.enumerate() if t is not threading.main_thread())
            yield f"started {tasks - 1} threads ({', '.join(names) or 'not of Python'})"
        for _, target in sorted(_descriptors().items() - self.descriptors.items()):
            yield f"opened {self._shown(target)}"
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
            yield "left a child process running"
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                fields = line.split(None, 5)
                if fields[1].startswith("rw") and fields[1].endswith("s"):
                    yield f"mapped shared memory ({fields[-1].strip()})"
        if _umask() != self.mask:
            yield "changed the umask"
        if os.getcwd() != self.place:
            yield "changed the directory"

    def _files(self) -> Iterator[str]:
        for path in sorted(entries_of(self.folders) - self.entries):
            yield f"made {self._shown(path)}"

    def _paths(self) -> Iterator[str]:
        """Strings with the scratch directories' name: paths of one episode that every fork would know."""
        for name, value in self.variables().items():
            if value is not None and self.name in value:
                yield f"set the variable {name} to a path"
        ours = {id(x) for x in (self, vars(self), self.movable, self.environ, self.entries, self.folders)}
        ours |= {id(sys.argv), id(sys.orig_argv), id(vars(site)), id(vars(os.environ)["_data"]), *self.known}
        modules = {
            id(vars(m)): name for name, m in list(sys.modules.items()) if isinstance(m, types.ModuleType)
        }
        found = set()
        self.movable.clear()
        for holder in gc.get_objects():
            if id(holder) in ours or isinstance(holder, types.FrameType):
                continue
            for kept in _values(holder, ours):
                if isinstance(kept, bytes) and os.fsencode(self.name) in kept:
                    found.add(self._shown(os.fsdecode(kept)))
                elif isinstance(kept, str) and self.name in kept:
                    module = modules.get(id(holder), "")
                    if module and module not in self.own:
                        self.movable += [(holder, key) for key, item in holder.items() if item is kept]
                    else:
                        found.add(self._shown(kept))
        for shown in sorted(found):
            yield f"kept the path {shown}"

    def _shown(self, path: str) -> str:
        return path.rpartition(self.name)[2].lstrip("/") or path


def entries_of(folders: list[str]) -> set[str]:
    """Every file and directory below some directories."""
    return {
        os.path.join(folder, name)
        for top in folders
        for folder, below, files in os.walk(top)
        for name in (*below, *files)
    }


def _caller(servants: frozenset[str]) -> str:
    """The module behind those that do things for others."""
    frame = sys._getframe(2)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in servants:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def _values(holder: object, ours: set[int]) -> Iterator[object]:
    """What an object refers to, containers opened that the collector does not track: it never lists those."""
    for value in gc.get_referents(holder):
        if isinstance(value, dict | tuple) and not gc.is_tracked(value):
            if id(value) not in ours:
                yield from _values(value, ours)
        else:
            yield value


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target != f"/proc/{os.getpid()}/fd":
                found[int(name)] = target
    return found
