"""Images of real packages, built without a registry, and the core servers inside theirs."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from typer.testing import CliRunner

from atlas_gym.cli.servers import app
from atlas_gym.errors import InstallError
from atlas_gym.runtime import base_image, engine, image, uv
from atlas_gym.runtime.catalog import Catalog
from tests.docker_base import base_or_skip, run, talk


@pytest.mark.docker
def test_a_build_that_fails_says_why_and_leaves_nothing(tiny: Any) -> None:
    base = base_or_skip()
    (tiny.folder / "Dockerfile").write_text(
        "ARG BASE\nFROM ${BASE}\nCOPY server /opt/server\nRUN echo the last words; exit 7\n"
    )
    with pytest.raises(
        InstallError, match=r"returned a non-zero code: 7.*the last words.*atlas-gym servers base"
    ):
        image.ensure(tiny.server, base=base)
    assert not [p for p in (tiny.cache / "images").iterdir() if p.is_dir()]
    left = engine.client().api.containers(all=True, filters={"ancestor": base})
    assert not [c for c in left if "last words" in c["Command"]]


@pytest.mark.docker
def test_a_server_from_a_wheel_without_a_registry(tiny: Any) -> None:
    base = base_or_skip()
    said: list[str] = []
    image._removed([image._tag(tiny.server, (base_image.find(base) or {})["Id"])])  # an earlier run's
    tag = image.ensure(tiny.server, base=base, say=said.append)
    assert said == [f"building the image of tiny on {base}"]
    answers = talk(tag, image.command(tiny.server))
    assert [tool["name"] for tool in answers[1]["result"]["tools"]] == ["greet", "now", "read"]
    assert image.ensure(tiny.server, base=base, say=said.append) == tag
    assert len(said) == 1
    assert not [p for p in (tiny.cache / "images").iterdir() if p.is_dir()]
    where = "import tiny_mcp; print(tiny_mcp.__cached__, tiny_mcp.__file__)"
    cached, file = run(tag, ["/opt/server/bin/python", "-c", where]).split()
    assert run(tag, ["ls", cached]).strip() == cached
    assert file.startswith("/opt/server/lib/python3.")
    script = run(tag, ["head", "-n", "1", "/opt/server/bin/tiny-mcp"])
    assert script == "#!/opt/server/bin/python\n"


@pytest.mark.docker
def test_only_images_that_no_lock_needs_are_pruned(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    base = base_or_skip()
    # A mark of its own: the images of whoever else uses this machine are none of the test's business.
    monkeypatch.setattr(engine, "LABEL", f"io.atlas-gym-test-{os.getpid()}")
    tiny.edit("server.toml", "Greets.", f"Greets {os.getpid()}.")
    (tiny.folder / "Dockerfile").write_text(image._RECIPE + f"ENV TEST={os.getpid()}\n")
    old = image.ensure(tiny.server, base=base)
    busy = image.from_files("busy", {"a.py": f"# {os.getpid()}"}, base=base)
    named = image.from_files("named", {"b.py": f"# {os.getpid()}"}, base=base)
    api = engine.client().api
    api.tag(named, "mine/named", str(os.getpid()))
    container = api.create_container(busy, ["/none"])["Id"]
    try:
        assert old not in image.prune([tiny.server], base=base, dry_run=True).images
        (tiny.folder / "Dockerfile").write_text(image._RECIPE + f"ENV TEST={os.getpid()}-again\n")
        new = image.ensure(tiny.server, base=base)
        planned = image.prune([tiny.server], base=base, dry_run=True).images
        assert set(planned) == {old, busy}
        done = image.prune([tiny.server], base=base)
        assert done.images == (old,)
        ((kept, why),) = done.kept
        assert (kept, "is being used" in why or "using" in why) == (busy, True)
        assert all(base_image.find(name) for name in (new, busy, named, base))
        assert base_image.find(old) is None
        shown = CliRunner().invoke(app, ["build", "--prune", "--base", base], env={"COLUMNS": "200"})
        assert shown.exit_code == 0
        assert "Removed 1 images." in shown.output
        assert f"Kept {busy}: " in shown.output
        assert base_image.find(new) is None
    finally:
        api.remove_container(container)
        image._removed([old, busy, named, f"mine/named:{os.getpid()}"])


@pytest.mark.docker
def test_a_command_that_is_not_in_the_package(tiny: Any) -> None:
    base = base_or_skip()
    tiny.edit("server.toml", 'command = ["tiny-mcp"]', 'command = ["tiny-mpc"]')
    with pytest.raises(InstallError, match=r"bin/tiny-mpc is not in its image.*Correct 'command'"):
        image.ensure(tiny.server, base=base)
    tiny.edit("server.toml", '"tiny-mpc"]', '"tiny-mcp"]\nprograms = ["no-such-program"]')
    with pytest.raises(InstallError, match=r"no-such-program, which .* --program NAME"):
        image.ensure(tiny.server, base=base)
    tiny.edit("server.toml", '"no-such-program"]', '"no-such-program"]\ndebian = ["no-such-package"]')
    said: list[str] = []
    with pytest.raises(InstallError, match=r"apt-get.*not found.*servers base"):
        image.ensure(tiny.server, base=base, say=said.append)
    assert said[-1] == "tiny: installing no-such-package from Debian's packages"


@pytest.mark.docker
def test_a_recipe_of_its_own_and_bytecode_made_inside(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    base = base_or_skip()
    tiny.edit("server.toml", "state_bound", 'programs = ["no-such-program"]\nstate_bound')
    (tiny.folder / "Dockerfile").write_text(image._RECIPE + f"ENV OWN={os.getpid()}\n")
    # As if this machine had no interpreter of the base's version.
    monkeypatch.setattr(uv, "minor", lambda _request: (0, 0))
    tag = image.ensure(tiny.server, base=base)
    try:
        where = (
            "import os, tiny_mcp; print(os.environ['OWN'], os.path.exists(tiny_mcp.__cached__), os.getuid())"
        )
        assert run(tag, ["/opt/server/bin/python", "-c", where]) == f"{os.getpid()} True 65534\n"
    finally:
        image._removed([tag])


@pytest.mark.docker
@pytest.mark.servers
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["mcp-server-git", "server-filesystem", "mcp-server-sqlite"])
def test_core_servers_answer_with_the_tools_of_their_lock(name: str) -> None:
    server = Catalog.load().get(name)
    assert server.folder is not None
    tag = image.ensure(server, base=base_or_skip())
    places = {"workspace": "/workspace", "state": "/tmp", "home": "/tmp"}
    command = [server.manifest.expand(part, places) for part in image.command(server)]
    answers = talk(tag, command, [f"{key}={value}" for key, value in server.manifest.env.items()])
    locked = json.loads((server.folder / "lock.json").read_text())["tools"]
    assert {tool["name"] for tool in answers[1]["result"]["tools"]} == {tool["name"] for tool in locked}
