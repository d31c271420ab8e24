"""Importing a Python server ahead of its start, and starting it in a fork as a new interpreter would.

Owns what is imported ahead and what a fork sets anew. Stdlib only, loaded by path inside a host. Does not
know descriptors, walls or owners, nor how to tell that an import must not be shared (`bound`).
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import importlib.machinery
import importlib.util
import os
import random
import select
import signal
import sys
import threading
import time
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn


class Server:
    """One server's program, as `prefork` describes it.

    Args:
        config: `script` or `module`, `argv`, `skip` (parts of the command before `argv`), `own` (whether its
            own modules are imported in each fork anew), `package`, `scratch`, `rehearsal` and what follows.
        bound: The module `bound`.
    """

    def __init__(self, config: dict[str, Any], bound: Any) -> None:
        self.config = config
        self.bound = bound
        self.script: str = config["script"]
        self.module: str = config["module"]
        self.code: types.CodeType | None = None
        self._noting = False
        """Whether this is a rehearsal."""
        self.changed: dict[str, str | None] = {}
        """Variables that imports set, or removed."""
        self.movable: list[tuple[dict[str, Any], str]] = []
        """Variables of others' modules that hold a scratch path: (variables of the module, name)."""
        self.scratch = (config["spec"]["directory"], os.path.dirname(os.environ["HOME"]))
        self.generators: tuple[random.Random, ...] = ()
        """Those that modules made for themselves, seeded by chance."""

    # -- before the fork

    def warm_up(self, rehearse: Callable[[], list[str]]) -> dict[str, Any]:
        """Import all that may be imported once.

        Args:
            rehearse: Runs the server in a fork that calls `rehearse`, and gives the modules it imported.

        Returns:
            The report: `unsafe`, reasons why it may not be forked; `modules`, how many are loaded.
        """
        config = self.config
        own = self._own_modules()
        watch = self.bound.Watch(config["scratch"], own, {*_containers(config), id(self.scratch)})
        if self.script:
            with open(self.script, "rb") as file:
                source = importlib.util.decode_source(file.read())
            self.code = compile(source, self.script, "exec", dont_inherit=True)
        elif not config["own"]:
            source = self._module_source()
        if not config["own"]:
            with watch:
                self._import_named(source, watch)
        problems = watch.problems()
        if not problems:
            lazy = rehearse()
            watch.clean()
            with watch:
                for name in dict.fromkeys(lazy):
                    if not _within(name, own):  # its own may hold what its main did before importing them
                        watch.importing(name)
            problems = watch.problems()
            shared = own.intersection(sys.modules) if config["own"] else ()
            if shared:
                problems.append(f"is imported by what it depends on ({', '.join(sorted(shared)[:3])})")
        self.changed = watch.variables()
        self.generators = tuple(watch.generators)
        self.movable = watch.movable
        return {"unsafe": problems, "modules": len(sys.modules), "pid": os.getpid()}

    def _module_source(self) -> str:
        """Text of the module that `python -m` runs; its package is imported on the way."""
        spec = importlib.util.find_spec(self.module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{self.module}.__main__")
        return str(spec.loader.get_source(spec.name)) if spec else ""  # type: ignore[union-attr]

    def _import_named(self, source: str, watch: Any) -> None:
        """Import what the program's top level names."""
        for node in _top_level(ast.parse(source).body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    watch.importing(alias.name)
                continue
            name = "." * node.level + (node.module or "")
            with contextlib.suppress(ImportError, ValueError):
                name = importlib.util.resolve_name(name, self.module)
                if watch.importing(name):
                    for alias in node.names:
                        if not hasattr(sys.modules[name], alias.name):
                            watch.importing(f"{name}.{alias.name}")

    def _own_modules(self) -> frozenset[str]:
        """Names of the modules of the server's own distribution, without importing them."""
        names: set[str] = set()
        from importlib import metadata

        with contextlib.suppress(metadata.PackageNotFoundError):
            for file in metadata.files(self.config["package"]) or []:
                if file.suffix in (".py", ".so") and ".." not in file.parts:
                    parts = [*file.parts[:-1], file.name.partition(".")[0]]
                    names.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        if self.script and not names:  # a program without a distribution: what lies beside it
            for entry in os.scandir(os.path.dirname(self.script)):
                if entry.name.endswith(".py") or entry.is_dir():
                    names.add(entry.name.partition(".")[0])
        return frozenset(names)

    # -- in the fork

    def rehearse(self, spec: dict[str, Any]) -> NoReturn:
        """As `run`, and say on standard error what is imported; see `listen`."""
        self._noting = True
        self.run(spec)

    def run(self, spec: dict[str, Any]) -> NoReturn:
        """Be the server: from what a new interpreter would find to how it would exit.

        Args:
            spec: `env`, `directory`, and `argv` with the interpreter in front.
        """
        code = 1
        try:
            self._renew(spec)
            if self._noting:
                sys.addaudithook(functools.partial(_note, _surroundings()))
            code = self._program()
        finally:
            os._exit(code)

    def _renew(self, spec: dict[str, Any]) -> None:
        os.environ.clear()
        os.environ.update(spec["env"])
        for name, value in self.changed.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        time.tzset()
        sys.orig_argv = list(spec["argv"])
        sys.argv = list(spec["argv"][self.config["skip"] :])
        if self.config["sys_path"] is None:  # `python -m` has the directory it was started in
            sys.path.insert(0, spec["directory"])
        real = (spec["directory"], os.path.dirname(spec["env"]["HOME"]))
        for variables, name in self.movable:
            for old, new in zip(self.scratch, real, strict=True):
                variables[name] = variables[name].replace(old, new)
        for generator in self.generators:
            generator.seed()
        random.seed()
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
        loaded = sys.modules
        if "tempfile" in loaded:
            vars(loaded["tempfile"])["tempdir"] = None
        if "site" in loaded and vars(loaded["site"])["USER_BASE"]:
            vars(loaded["site"]).update(USER_BASE=None, USER_SITE=None)
            loaded["site"].getusersitepackages()
        if "numpy.random" in loaded:
            loaded["numpy.random"].seed()
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = sys.modules["builtins"]
        if sys.version_info < (3, 14):
            main.__annotations__ = {}
        if self.script:
            main.__file__ = self.script
            main.__loader__ = importlib.machinery.SourceFileLoader("__main__", self.script)
            main.__dict__["__cached__"] = None
        self.former = sys.modules["__main__"]  # its functions are running
        sys.modules["__main__"] = main

    def _program(self) -> int:
        code = 0
        try:
            if self.code is not None:
                exec(self.code, sys.modules["__main__"].__dict__)
            else:
                import runpy

                runpy._run_module_as_main(self.module)  # type: ignore[attr-defined]
        except SystemExit as exc:
            code = _exit_code(exc)
        except BaseException as exc:  # noqa: BLE001 - as an interpreter does at its top
            code = 1
            trace = exc.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
                trace = trace.tb_next
            sys.excepthook(type(exc), exc.with_traceback(trace), trace)
            if isinstance(exc, KeyboardInterrupt):
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        try:
            if sys.stdout is not None and not sys.stdout.closed:
                sys.stdout.flush()
        except (OSError, ValueError) as exc:
            new = sys.version_info >= (3, 13)
            where = "on flushing sys.stdout:" if new else f"in: {sys.stdout!r}"
            sys.stderr.write(f"Exception ignored {where}\n{type(exc).__name__}: {exc}\n")
            code = code or 120
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        return code


def _top_level(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that a program begins with: a later one may find what the program did before it."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return


def _within(name: str, packages: frozenset[str]) -> bool:
    """Whether a module or a package around it is among `packages`."""
    return any(name == package or name.startswith(package + ".") for package in packages)


_MARK = b"\x01import "


def _surroundings() -> tuple[object, ...]:
    """What a program may change before it imports, and modules look at."""
    return dict(os.environ), list(sys.argv), list(sys.path)


def _note(before: tuple[object, ...], event: str, args: tuple[Any, ...]) -> None:
    """An audit hook: say the name of each module that is imported while all is as `before`."""
    if event == "import" and _surroundings() == before:
        with contextlib.suppress(OSError):
            os.write(2, _MARK + str(args[0]).encode() + b"\n")


def listen(answers: int, stdout: int, stderr: int, seconds: float) -> list[str]:
    """Read a rehearsal's streams until it has answered, ended, or the time is over.

    Returns:
        The modules that it imported, in order.
    """
    poll = select.poll()
    for fd in (stdout, stderr):
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    said, noted = b"", b""
    deadline = time.monotonic() + seconds
    while said.count(b'"id"') < answers and (left := deadline - time.monotonic()) > 0:
        poll.poll(int(left * 1000) + 1)
        with contextlib.suppress(BlockingIOError):
            noted += os.read(stderr, 1 << 20)
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(stdout, 1 << 20)
            said += chunk
            if not chunk:
                break
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(stderr, 1 << 20):
            noted += chunk
    return [line[len(_MARK) :].decode() for line in noted.splitlines() if line.startswith(_MARK)]


def _exit_code(exc: SystemExit) -> int:
    if exc.code is None:
        return 0
    if isinstance(exc.code, int):
        return exc.code & 0xFF
    sys.stderr.write(f"{exc.code}\n")
    return 1


def _containers(value: Any) -> Iterator[int]:
    """Identities of a JSON value's lists and dictionaries."""
    if isinstance(value, dict | list):
        yield id(value)
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)
