"""Installing a real package from a wheel that is made here: no registry is asked."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.errors import InstallError, LockError, StorageError
from atlas_gym.runtime import cache
from atlas_gym.runtime.install import directory, install, installed, unavailable


def test_install_once(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed(tiny.server) is None
    said: list[str] = []
    made = install(tiny.server, said.append)
    assert said == ["installing tiny (tiny-mcp==1.0)"]
    assert made.directory.parent == tiny.cache / "servers"
    assert made.directory.name.startswith("tiny-")
    assert [Path(part).name for part in made.command] == ["python", "tiny-mcp"]
    assert all(Path(part).is_relative_to(made.directory) for part in made.command)
    assert made.path == (made.directory / "bin",)
    assert list(made.directory.rglob("tiny_mcp*.pyc")), "not compiled: it would start slowly each time"
    monkeypatch.setenv("UV_FIND_LINKS", "/nowhere")
    assert install(tiny.server, said.append) == made
    assert installed(tiny.server) == made
    assert len(said) == 1


def test_read_paths_hold_the_interpreter(tiny: Any) -> None:
    made = install(tiny.server)
    for needed in (made.directory, Path(sys.base_prefix), Path(os.__file__).parent):
        assert any(needed.resolve().is_relative_to(path.resolve()) for path in made.read_paths), needed
    assert Path("/") not in made.read_paths
    assert Path.home() not in made.read_paths


def test_another_lock_is_another_installation(tiny: Any) -> None:
    before = directory(tiny.server)
    tiny.edit("requirements.txt", "tiny-mcp==1.0", "# a comment\ntiny-mcp==1.0")
    assert directory(tiny.server) != before


def test_a_wrong_hash_leaves_nothing(tiny: Any) -> None:
    tiny.edit("requirements.txt", "sha256:", "sha256:" + "0" * 64 + " #")
    place = directory(tiny.server)
    with pytest.raises(InstallError, match=r"(?i)hash"):
        install(tiny.server)
    assert not place.exists()
    assert installed(tiny.server) is None


def test_a_command_that_the_package_does_not_bring(tiny: Any) -> None:
    tiny.edit("server.toml", '["tiny-mcp"]', '["tiny-other"]')
    with pytest.raises(InstallError, match=r"tiny-other is not in it.*server\.toml"):
        install(tiny.server)
    assert not directory(tiny.server).exists()


def test_what_a_killed_install_left_is_made_again(tiny: Any) -> None:
    place = directory(tiny.server)
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").write_text("half a file")
    assert installed(tiny.server) is None
    assert installed(tiny.server) != install(tiny.server)
    assert (place / "bin" / "python").is_symlink()


def test_an_interpreter_that_is_gone_is_replaced(tiny: Any) -> None:
    made = install(tiny.server)
    python = made.directory / "bin" / "python"
    python.unlink()
    python.symlink_to("/gone/python3")
    assert installed(tiny.server) is None
    assert install(tiny.server) == made
    assert python.exists()


def test_a_spoilt_marker_is_no_installation(tiny: Any) -> None:
    made = install(tiny.server)
    for text in ("", "[]", "{}", '{"command": 3}'):
        (made.directory / ".complete").write_text(text)
        assert installed(tiny.server) is None
    assert install(tiny.server) == made


def test_many_at_once_install_it_once(tiny: Any) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: install(tiny.server, said.append), range(4)))
    assert len(said) == 1
    assert made.count(made[0]) == 4


def test_interrupted_making_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"

    def interrupted() -> None:
        with cache.making(place):
            cache.start(place)
            (place / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not place.exists()


def test_a_failure_beside_a_complete_directory_keeps_it(tmp_path: Path) -> None:
    place = tmp_path / "a"
    with cache.making(place):
        cache.start(place)
        cache.finish(place, {"x": 1})
    with pytest.raises(RuntimeError), cache.making(place):
        raise RuntimeError
    assert cache.facts(place) == {"x": 1}


def test_a_cache_that_cannot_be_written(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(StorageError, match=r"Locking .*ATLAS_CACHE"):
        install(tiny.server)


def test_a_missing_program_is_named_with_its_package(tiny: Any) -> None:
    tiny.edit("server.toml", "state =", 'programs = ["frobnicate"]\ndebian = ["frob-tools"]\nstate =')
    assert "frobnicate" in unavailable(tiny.server)
    assert "apt-get install frob-tools" in unavailable(tiny.server)
    with pytest.raises(InstallError, match=r"'tiny' is unavailable.*frobnicate"):
        install(tiny.server)


def test_programs_are_on_the_path_and_may_be_read(tiny: Any) -> None:
    tiny.edit("server.toml", "state =", 'programs = ["sh"]\nstate =')
    made = install(tiny.server)
    assert any((folder / "sh").exists() for folder in made.path)


def test_a_python_that_is_not_there(tiny: Any) -> None:
    tiny.edit("server.toml", ">=3.11", ">=3.99")
    assert "needs Python >=3.99" in unavailable(tiny.server)


@pytest.mark.parametrize("text", ["", "other==1.0 --hash=sha256:00\n", "tiny-mcp==1.1 \\\n"])
def test_a_dependency_lock_of_something_else(tiny: Any, text: str) -> None:
    (tiny.folder / "requirements.txt").write_text(text)
    with pytest.raises(
        LockError, match=r"requirements\.txt: does not hold tiny-mcp==1\.0.*servers lock tiny"
    ):
        install(tiny.server)


def test_a_missing_dependency_lock(tiny: Any) -> None:
    (tiny.folder / "requirements.txt").unlink()
    with pytest.raises(LockError, match=r"requirements\.txt: cannot be read.*servers lock tiny"):
        install(tiny.server)
