"""The standard library in memory, so that a sealed worker never has to open a file.

`preload()` imports what cells usually want and every extension module, holds the code of the rest and
the time zones as bytes, and puts a finder for them in front. Standard library only; runs in the zygote.
Does not know walls or cells.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import marshal
import os
import struct
import sys
import sysconfig
import types
from collections.abc import Sequence
from typing import Any, Final

_WANTED: Final = """
    abc argparse array ast asyncio base64 binascii bisect builtins bz2 calendar cmath
    collections.abc colorsys concurrent.futures contextlib contextvars copy csv dataclasses datetime
    decimal difflib dis email.message email.utils encodings.idna encodings.latin_1 encodings.utf_16
    encodings.ascii enum errno fnmatch fractions functools gc getpass glob graphlib gzip hashlib
    heapq hmac html.parser http.client inspect io ipaddress itertools json keyword linecache locale
    logging lzma marshal math mimetypes numbers operator os pathlib pdb pickle platform pprint pydoc
    queue random re reprlib secrets select selectors shlex shutil signal socket sqlite3 stat
    statistics string stringprep struct subprocess sys tempfile textwrap threading time timeit token
    tokenize tomllib traceback types typing unicodedata unittest.mock urllib.error urllib.parse
    urllib.request uuid warnings weakref xml.dom.minidom xml.etree.ElementTree zipfile zlib zoneinfo
"""
"""Modules to import, beside every extension module."""

_NOT_HELD: Final = """
    test tests idlelib lib2to3 tkinter turtledemo ensurepip venv site-packages dist-packages lib-dynload
    __pycache__ pydoc_data config __phello__
"""
_NOT_LOADED: Final = "_test _xx xx _tkinter _curses readline _dbm _gdbm _ssl nis"


class Memory(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads modules whose code is held in memory."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bool, str, bytes, bool]] = {}

    def add(self, name: str, path: str, *, package: bool) -> None:
        """Hold one module: its compiled code if that is fresh, else its source."""
        with open(path, "rb") as file:
            source = file.read()
        try:
            stat = os.stat(path)
            with open(importlib.util.cache_from_source(path), "rb") as file:
                code = file.read()
            fresh = struct.pack(
                "<4sLLL", importlib.util.MAGIC_NUMBER, 0, int(stat.st_mtime) & 0xFFFFFFFF, stat.st_size
            )
            compiled = code[:16] == fresh
        except OSError:
            compiled = False
        self._files[name] = (package, path, code[16:] if compiled else source, compiled)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module held here."""
        held = self._files.get(fullname)
        if held is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=held[1], is_package=held[0])

    def is_package(self, fullname: str) -> bool:
        """Whether the module is a package."""
        return self._files[fullname][0]

    def get_source(self, fullname: str) -> str | None:
        """Its text, where the text is what is held."""
        _, _, data, compiled = self._files[fullname]
        return None if compiled else importlib.util.decode_source(data)

    def get_code(self, fullname: str) -> types.CodeType:
        """Its code, compiled now where only the source is held."""
        _, path, data, compiled = self._files[fullname]
        if not compiled:
            return self.source_to_code(data, path)
        code = marshal.loads(data)
        assert isinstance(code, types.CodeType)
        return code


def _hold(memory: Memory, folder: str) -> None:
    for root, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f not in _NOT_HELD.split() and not f.startswith("config-")]
        inside = os.path.relpath(root, folder)
        prefix = "" if inside == "." else inside.replace(os.sep, ".")
        for file in files:
            stem, ext = os.path.splitext(file)
            package = stem == "__init__"
            name = prefix if package else f"{prefix}.{stem}".lstrip(".")
            if ext == ".py" and name and name not in sys.modules:
                memory.add(name, os.path.join(root, file), package=package)


def _extensions(folder: str) -> list[str]:
    names = sorted({file.split(".")[0] for file in os.listdir(folder)}) if os.path.isdir(folder) else []
    return [name for name in names if not name.startswith(tuple(_NOT_LOADED.split()))]


def _hold_zones() -> None:
    """Serve `zoneinfo` from bytes. Reading all zones costs 10 ms and half a megabyte."""
    import zoneinfo
    from zoneinfo import _common

    held: dict[str, bytes] = {}
    for key in zoneinfo.available_timezones():
        for folder in zoneinfo.TZPATH:
            path = os.path.join(folder, *key.split("/"))
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    held[key] = file.read()
                break
    if not held:
        return

    def load_tzdata(key: str) -> io.BytesIO:
        if key not in held:
            raise zoneinfo.ZoneInfoNotFoundError(f"No time zone found with key {key}")
        return io.BytesIO(held[key])

    zones: Any = zoneinfo
    common: Any = _common
    common.load_tzdata = load_tzdata
    zones.available_timezones = lambda: set(held)
    zones.reset_tzpath(to=[])


def _know_platform() -> None:
    """Let `platform` answer from its caches, without this machine's name."""
    import platform

    known: Any = platform
    known._uname_cache = platform.uname()._replace(node="sandbox")
    platform.platform()


def preload() -> None:
    """Import, hold and serve. Call once, before the first fork."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in [*_WANTED.split(), *_extensions(sysconfig.get_path("platstdlib") + "/lib-dynload")]:
            try:
                importlib.import_module(name)
            except ImportError:  # a Python built without it: cells see the same ImportError
                continue
    _hold_zones()
    _know_platform()
    memory = Memory()
    _hold(memory, sysconfig.get_path("stdlib"))
    sys.meta_path.insert(0, memory)
    sys.path_importer_cache.clear()
