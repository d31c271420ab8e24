"""Base images: the parts that are copied, what runs in the result, and a minimal Debian."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from atlas_gym.errors import InstallError, StartError
from atlas_gym.runtime import base_image, engine, image_parts
from atlas_gym.runtime.image_tar import Tree
from tests.docker_base import base_or_skip, engine_or_skip, run

INSIDE = """
import importlib, json, locale, os, pwd, ssl, sqlite3, subprocess, sys, sysconfig, warnings, zoneinfo
warnings.simplefilter("ignore")
failed = []
for name in sorted(sys.stdlib_module_names - set(sys.argv[1].split())):
    try:
        importlib.import_module(name)
    except ImportError as exc:
        failed.append(f"{name}: {exc}")
os.chdir("/tmp")
git = "git init -q r && cd r && echo a > a && git add . && git -c user.name=a -c user.email=b commit -qm x"
done = subprocess.run(["sh", "-c", git + " && git log --format=%s && git status --short"],
                      capture_output=True, text=True)
print(json.dumps({
    "failed": failed,
    "prefix": sys.prefix,
    "version": list(sys.version_info[:2]),
    "user": pwd.getpwuid(os.getuid()).pw_name,
    "locale": locale.setlocale(locale.LC_ALL, ""),
    "zone": str(zoneinfo.ZoneInfo("Europe/Paris").utcoffset(__import__("datetime").datetime(2026, 7, 1))),
    "certificates": ssl.create_default_context().cert_store_stats()["x509_ca"] > 0,
    "git": [done.returncode, done.stdout, done.stderr],
    "node": subprocess.run(["node", "-p", "[1,2].length"], capture_output=True, text=True).stdout,
}))
"""


def test_libraries_of_the_interpreter_are_found() -> None:
    parts = image_parts.Parts(Tree())
    image_parts.python(parts, sys.executable)
    found, loaders = image_parts.needs(parts.binaries)
    assert any(name.startswith("libc.") for name in found)
    assert all(path.exists() for path in (*found.values(), *loaders))
    assert loaders
    assert "usr/local/bin/python3" in parts.tree
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"usr/local/lib/{name}/os.py" in parts.tree
    assert list(parts.modules.values()) == [f"usr/local/lib/{name}"]
    for junk in ("test", "ensurepip", "idlelib", "site-packages/pip"):
        assert f"usr/local/lib/{name}/{junk}" not in parts.tree


def test_a_library_without_bytecode_is_compiled(tmp_path: Path) -> None:
    library, work = tmp_path / "lib" / "python", tmp_path / "work"
    (library / "package" / "test").mkdir(parents=True)
    work.mkdir()
    for name in ("one.py", "package/two.py", "package/test/junk.py"):
        (library / name).write_text("value = 1\n")
    (library / "invalid.py").write_text("value = = 1\n")
    parts = image_parts.Parts(Tree(), modules={library: "usr/local/lib/python"})
    parts.tree.copy("usr/local/lib/python", library, image_parts._is_junk)
    image_parts.bytecode(parts, sys.executable, work)
    tag = sys.implementation.cache_tag
    assert [path for path in parts.tree.paths("usr/local/lib/python") if path.endswith(".pyc")] == [
        f"usr/local/lib/python/__pycache__/one.{tag}.pyc",
        f"usr/local/lib/python/package/__pycache__/two.{tag}.pyc",
    ]
    assert not list(library.rglob("*.pyc"))
    many = len(parts.tree)
    image_parts.bytecode(parts, "no-such-python", work)
    assert len(parts.tree) == many


def test_places_are_below_usr_where_that_is_merged() -> None:
    assert image_parts.place("/lib64/ld-linux-x86-64.so.2") == "usr/lib64/ld-linux-x86-64.so.2"
    assert image_parts.place("/usr/lib/git-core") == "usr/lib/git-core"
    assert image_parts.place("/opt/x") == "opt/x"


def test_what_cannot_be_copied_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "scripted"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    parts = image_parts.Parts(Tree())
    with pytest.raises(InstallError, match="is a script"):
        image_parts.program(parts, "scripted")
    with pytest.raises(InstallError, match="leave out --program nothing-such"):
        image_parts.program(parts, "nothing-such")
    with pytest.raises(InstallError, match="ldd is not on PATH"):
        image_parts.needs([Path(sys.executable)])
    with pytest.raises(InstallError, match="does not run"):
        image_parts.python(parts, str(tmp_path / "no-python"))


def test_without_an_engine_the_next_step_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(StartError, match=r"docker\.io"):
        base_image.make()


def test_debootstrap_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InstallError, match="apt-get install debootstrap"):
        base_image._debian(("git",), "", "", lambda _message: None)


def test_a_bootstrap_that_fails_shows_its_last_lines() -> None:
    command = ["sh", "-c", "echo all was well; echo E: no such suite >&2; exit 3"]
    with pytest.raises(InstallError, match=r"status 3: all was well \| E: no such suite\. Check"):
        base_image._run(command)


@pytest.mark.docker
def test_a_base_is_made_once_and_everything_in_it_runs() -> None:
    base = base_or_skip()
    said: list[str] = []
    assert base_image.make(say=said.append) == base
    assert not any("importing" in line for line in said)
    here = [name for name in sys.stdlib_module_names if not _importable(name)]
    left_out = [
        "tkinter",
        "_tkinter",
        "turtle",
        "idlelib",
        "turtledemo",
        "ensurepip",
        "lib2to3",
        "antigravity",
    ]
    out = run(base, ["python3", "-c", INSIDE, " ".join([*here, *left_out, "this"])])
    inside = json.loads(out)
    assert inside["failed"] == []
    assert inside["git"] == [0, "x\n", ""]
    assert inside["node"] == "2\n"
    assert inside["prefix"] == "/usr/local"
    assert inside["version"] == list(sys.version_info[:2])
    assert inside["user"] == "nobody"
    assert inside["locale"] == "C.UTF-8"
    assert inside["zone"] == "2:00:00"
    assert inside["certificates"]


def _importable(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


@pytest.mark.docker
def test_one_more_name() -> None:
    base = base_or_skip()
    named = base_image.make(tag="atlas-gym/test-name")
    try:
        assert named == "atlas-gym/test-name"
        about, same = base_image.find(named), base_image.find(base)
        assert about is not None
        assert same is not None
        assert about["Id"] == same["Id"]
        assert about["Config"]["Labels"][engine.LABEL] == "base"
    finally:
        engine.client().api.remove_image("atlas-gym/test-name")
    assert base_image.find(named) is None


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.net
@pytest.mark.timeout(900)
def test_a_minimal_debian() -> None:
    engine_or_skip()
    if shutil.which("debootstrap") is None and shutil.which("mmdebstrap") is None:
        pytest.skip("neither debootstrap nor mmdebstrap is on PATH (Debian: apt-get install debootstrap)")
    base = base_image.make("debootstrap", programs=("git",))
    out = run(
        base, ["sh", "-c", "python3 -c 'import sys; print(sys.version_info >= (3, 11))'; git --version"]
    )
    assert out.startswith("True\ngit version")


@pytest.mark.docker
def test_an_import_that_breaks_off_leaves_no_image(tmp_path: Path) -> None:
    engine_or_skip()
    (tmp_path / "file").write_text("long enough")
    tree = Tree()
    tree.file("file", tmp_path / "file")
    (tmp_path / "file").write_text("short")
    with pytest.raises(InstallError, match="became shorter"):
        base_image._import(tree.stream(), "atlas-gym/test-broken:1", "interpreter")
    assert base_image.find("atlas-gym/test-broken:1") is None
