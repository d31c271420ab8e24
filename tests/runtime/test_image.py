"""Images of servers: their names and commands, what is refused, and real builds where an engine runs."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from atlas_gym.errors import InstallError, LockError, StartError
from atlas_gym.runtime import base_image, image, image_base
from atlas_gym.runtime.catalog import Catalog, Server
from atlas_gym.runtime.image_base import Base
from atlas_gym.runtime.image_tar import Tree
from atlas_gym.runtime.manifest import Manifest, load_manifest
from atlas_gym.wire import fake
from tests.docker_base import base_or_skip, engine_or_skip, run, scratch_image, talk

HAVE = Base("some:base", "sha256:1", {"python3": "/usr/bin/python3"}, (3, 12), 20, "2.36", "x86_64")


def core(name: str) -> Server:
    return Catalog.load().get(name)


def copied(name: str, place: Path) -> Server:
    """A core server whose folder may be changed."""
    folder = place / name
    original = core(name).folder
    assert original is not None
    shutil.copytree(original, folder)
    return Server(load_manifest(folder / "server.toml"), folder)


def test_commands_are_the_same_on_every_base() -> None:
    git, files = core("mcp-server-git"), core("server-filesystem")
    assert image.command(git) == ("/opt/server/bin/python", "/opt/server/bin/mcp-server-git")
    node, script, workspace = image.command(files)
    assert node == "/opt/server/bin/node"
    assert script.startswith("/opt/server/node_modules/@modelcontextprotocol/")
    assert workspace == "{workspace}"
    for server in Catalog.load():
        assert image.unavailable(server) == ""
        assert image.command(server)[0].startswith("/opt/server/bin/")


def test_servers_without_a_lock_have_no_image() -> None:
    manifest = Manifest(
        name="mine", description="", registry="user", command=("x",), state="none", state_bound="call"
    )
    assert "mcp.json" in image.unavailable(Server(manifest, None))
    with pytest.raises(InstallError, match="runtime 'process'"):
        image.ensure(Server(manifest, None))


def test_the_name_follows_lock_command_recipe_and_base(tmp_path: Path) -> None:
    server = copied("mcp-server-git", tmp_path)
    assert server.folder is not None
    names = [image._tag(server, "sha256:1"), image._tag(server, "sha256:2")]
    manifest = server.manifest
    names.append(
        image._tag(Server(manifest.model_copy(update={"command": ("other",)}), server.folder), "sha256:1")
    )
    lock = server.folder / "requirements.txt"
    lock.write_text(lock.read_text() + "# one line more\n")
    names.append(image._tag(server, "sha256:1"))
    (server.folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    names.append(image._tag(server, "sha256:1"))
    assert len(set(names)) == len(names)
    assert all(name.startswith("atlas-gym/mcp-server-git:") for name in names)
    assert image._tag(server, "sha256:1") == names[-1]
    lock.unlink()
    with pytest.raises(LockError, match=r"requirements\.txt"):
        image._tag(server, "sha256:1")


@pytest.mark.parametrize(
    ("name", "expected"), [("Some_Server", "atlas-gym/some-server"), ("a--b.", "atlas-gym/a-b")]
)
def test_repositories_are_names_that_docker_takes(name: str, expected: str) -> None:
    assert image._repository(name) == expected


@pytest.mark.parametrize(
    ("libc", "platform"),
    [("2.36", "2_36"), ("2.30", "2_28"), ("2.17", "2_17"), ("2.99", "2_40"), ("2.12", "2_17"), ("", "2_17")],
)
def test_platforms_of_bases(libc: str, platform: str) -> None:
    assert replace(HAVE, libc=libc).platform == f"x86_64-manylinux_{platform}"
    assert replace(HAVE, libc="musl").platform == "x86_64-unknown-linux-musl"


def test_what_a_base_says_about_itself() -> None:
    said = "python3 /usr/local/bin/python3\nnode /usr/bin/node\ngit /usr/bin/git\nnode-version v22.1.0\n"
    found = image_base._read("n", "k", said + "python-version 3 13\nlibc 2.41\nmachine aarch64\n")
    assert (found.python, found.node, found.libc, found.machine) == ((3, 13), 22, "2.41", "aarch64")
    assert found.programs == {
        "python3": "/usr/local/bin/python3",
        "node": "/usr/bin/node",
        "git": "/usr/bin/git",
    }
    nothing = image_base._read("n", "k", "")
    assert (nothing.python, nothing.node, nothing.programs) == ((0, 0), 0, {})


def test_unfit_bases_are_refused_with_the_next_step() -> None:
    python, node = core("mcp-server-git").manifest, core("calc-mcp").manifest
    image_base.refuse_unfit(HAVE, python)
    image_base.refuse_unfit(HAVE, node)
    wanted = python.model_copy(update={"python": ">=3.13"})
    with pytest.raises(
        InstallError, match=r"needs Python >=3\.13, and .* some:base has Python 3\.12.*ATLAS_BASE_P"
    ):
        image_base.refuse_unfit(HAVE, wanted)
    with pytest.raises(InstallError, match="has no Python"):
        image_base.refuse_unfit(replace(HAVE, python=(0, 0)), python)
    with pytest.raises(InstallError, match=r"has Node 18.*ATLAS_BASE_NODE.*servers base"):
        image_base.refuse_unfit(replace(HAVE, node=18), node)


def test_no_engine_is_said_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(StartError, match=r"docker\.io"):
        image.ensure(core("calc-mcp"))
    assert not (tmp_path / "cache").exists()


@pytest.mark.docker
def test_a_base_that_is_not_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    engine_or_skip()
    said: list[str] = []
    for _ in range(2):
        with pytest.raises(
            InstallError, match=r"cannot be pulled \(.*atlas-gym servers base.*ATLAS_BASE_PYTHON"
        ):
            image.ensure(core("mcp-server-git"), base="localhost:1/none:1", say=said.append)
    assert said == ["pulling localhost:1/none:1"]
    monkeypatch.setenv("ATLAS_BASE_NODE", "localhost:1/none:2")
    with pytest.raises(InstallError, match="localhost:1/none:2 is not here"):
        image.ensure(core("calc-mcp"))


@pytest.mark.docker
def test_the_order_of_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    base, empty = base_or_skip(), scratch_image()
    ids = {name: (base_image.find(name) or {})["Id"] for name in (base, empty)}
    monkeypatch.delenv("ATLAS_BASE_NODE", raising=False)
    monkeypatch.setenv("ATLAS_BASE_PYTHON", empty)
    said: list[str] = []
    assert image_base.choose("python", base, said.append) == (base, ids[base])
    assert image_base.choose("python", None, said.append) == (empty, ids[empty])
    monkeypatch.setattr(base_image, "DEFAULT", base)
    assert image_base.choose("node", None, said.append) == (base, ids[base])
    monkeypatch.setattr(base_image, "DEFAULT", "atlas-gym/never-made:latest")
    monkeypatch.setattr(image_base, "DEFAULTS", {"python": base, "node": empty})
    assert image_base.choose("node", None, said.append) == (empty, ids[empty])
    monkeypatch.delenv("ATLAS_BASE_PYTHON")
    assert image_base.choose("python", None, said.append) == (base, ids[base])
    assert said == []


@pytest.mark.docker
def test_an_image_of_one_script_answers_behind_walls() -> None:
    base = base_or_skip()
    files: dict[str, Path | str] = {"fake.py": Path(fake.__file__), "note.txt": "a note"}
    tag = image.from_files("fake", files, base=base)
    assert image.from_files("fake", files, base=base) == tag
    assert image.from_files("fake", {**files, "note.txt": "another"}, base=base) != tag
    answers = talk(tag, ["/opt/server/bin/python", "/opt/server/fake.py"])
    assert len(answers[1]["result"]["tools"]) == 9
    about = base_image.find(tag)
    assert about is not None
    assert about["Config"]["Labels"][image.LABEL_SERVER] == "fake"
    assert about["Config"]["User"] == image.USER
    look = (
        "import sys, os; print(sys.prefix, sys.executable, open('/opt/server/note.txt').read(), os.getcwd())"
    )
    assert run(tag, ["/opt/server/bin/python", "-c", look]) == (
        "/opt/server /opt/server/bin/python a note /workspace\n"
    )
    assert run(tag, ["/opt/server/bin/node", "-p", "1+1"]) == "2\n"


@pytest.mark.docker
def test_two_makers_of_one_image_make_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    base = base_or_skip()
    sent: list[str] = []
    send = image._send

    def noted(into: Tree, recipe: str, start: str, tag: str, name: str) -> None:
        sent.append(tag)
        send(into, recipe, start, tag, name)

    monkeypatch.setattr(image, "_send", noted)
    text = f"# {os.getpid()}"
    tags: list[str] = []
    makers = [
        threading.Thread(target=lambda: tags.append(image.from_files("twice", {"a.py": text}, base=base)))
        for _ in range(3)
    ]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(tags) == 3
    assert sent == [tags[0]]
    assert image._removed([tags[0], "atlas-gym/no-such:1"]) == image.Pruned((tags[0],))


@pytest.mark.docker
def test_a_base_without_a_shell_is_refused() -> None:
    engine_or_skip()
    with pytest.raises(
        InstallError, match=r"Looking into the base image .* failed: .*sh.*Check the Docker engine"
    ):
        image.from_files("never", {"a.py": "pass"}, base=scratch_image())
