"""The engine: reasons, one client per thread and process, labels, and a collection that spares others."""

from __future__ import annotations

import gc
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError

from atlas_gym.errors import StartError
from atlas_gym.runtime import engine
from atlas_gym.runtime.owner import Owner
from tests.docker_base import engine_or_skip, scratch_image

DEAD = Owner(
    pid=1, start=1, boot=Owner.current().boot, namespace=Owner.current().namespace, node=os.uname()[1]
)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Look for the engine at a socket."""
    return lambda path: monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")


def test_no_socket_says_what_to_install(tmp_path: Path, at: Any) -> None:
    at(tmp_path / "none.sock")
    assert "apt-get install docker.io" in engine.unavailable()
    with pytest.raises(StartError, match="Containers cannot be used"):
        engine.client()
    assert engine.collect() == engine.Collected()


def test_a_socket_nobody_listens_at(tmp_path: Path, at: Any) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "dead.sock"))
    at(tmp_path / "dead.sock")
    assert "Start it" in engine.unavailable()


def test_an_engine_that_hangs_is_given_up(tmp_path: Path, at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_ANSWER_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf.sock"))
        deaf.listen()
        at(tmp_path / "deaf.sock")
        assert "does not answer" in engine.unavailable()


def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "nonsense://nowhere")
    assert "nonsense://nowhere does not answer" in engine.unavailable()


def test_labels_name_the_owner() -> None:
    found = engine.labels("server", "ep-1")
    assert Owner.from_json(found[engine.LABEL_OWNER]) == Owner.current()
    assert found[engine.LABEL] == "server"
    assert found[engine.LABEL_EPISODE] == "ep-1"
    assert found[engine.LABEL_USER] == str(os.getuid())
    assert engine.LABEL_EPISODE not in engine.labels("host")


@pytest.mark.docker
def test_one_client_per_thread_and_none_leaves_a_socket() -> None:
    engine_or_skip()

    def sockets() -> int:
        kinds = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                kinds.append(os.readlink(f"/proc/self/fd/{fd}"))
            except OSError:
                continue  # the listing's own
        return sum(kind.startswith("socket:") for kind in kinds)

    mine = engine.client()
    assert engine.client() is mine
    before = sockets()
    others: list[int] = []

    def ask() -> None:
        other = engine.client()
        assert other.ping()
        assert other.info()
        others.append(id(other))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mine.ping()
    gc.collect()
    assert len(others) == 4
    assert id(mine) not in others
    assert sockets() == before


@pytest.mark.docker
def test_a_fork_makes_its_own_client() -> None:
    engine_or_skip()
    mine = engine.client()
    code = os.fork()
    if code == 0:
        try:
            good = engine.client() is not mine and engine.client().ping()
        finally:
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(code, 0)[1]) == 0


@pytest.mark.docker
def test_facts_of_the_engine() -> None:
    engine_or_skip()
    found = engine.facts()
    assert found.version
    assert found.cpus >= 1
    assert found.memory > 1 << 20
    assert replace(found, pids_limit=False).missing.count("pids") == 1
    assert not replace(found, rootless=True).same_ids


@pytest.fixture
def container() -> Iterator[Any]:
    """Create (never start) a container with some labels; all are removed in the end."""
    engine_or_skip()
    api = engine.client().api
    image = scratch_image()
    made: list[str] = []

    def create(labels: dict[str, str]) -> str:
        made.append(api.create_container(image, ["/none"], labels=labels)["Id"])
        return str(api.inspect_container(made[-1])["Name"]).lstrip("/")

    yield create
    for key in made:
        engine._ended(lambda k: api.remove_container(k, force=True), key)


@pytest.mark.docker
def test_only_what_dead_owners_left_is_collected(container: Any) -> None:
    api = engine.client().api
    ours = engine.labels("server", "ep-x")

    def owned(owner: Owner, **more: str) -> dict[str, str]:
        return {**ours, engine.LABEL_OWNER: owner.to_json(), **more}

    dead = container(owned(DEAD))
    spared = {
        "alive": container(ours),
        "foreign": container({"com.example": "theirs"}),
        "unlabelled": container({}),
        "far": container(owned(replace(DEAD, node="another-machine"))),
        "odd": container({**ours, engine.LABEL_OWNER: "{"}),
        "other user": container({**owned(DEAD), engine.LABEL_USER: str(os.getuid() + 1)}),
    }
    networks: set[str] = set()
    with suppress(APIError):  # some kernels have no bridges
        api.create_network(f"atlas-gym-test-{os.getpid()}", labels=owned(DEAD))
        networks.add(f"atlas-gym-test-{os.getpid()}")
    volume = api.create_volume(f"atlas-gym-test-{os.getpid()}", labels=owned(DEAD))["Name"]
    images = {image["Id"] for image in api.images()}

    planned = engine.collect(dry_run=True)
    assert dead in planned.containers
    assert dead in {name.lstrip("/") for c in api.containers(all=True) for name in c["Names"]}
    done = engine.collect()
    assert dead in done.containers
    assert volume in done.volumes
    assert networks <= set(done.networks)
    left = {name.lstrip("/") for c in api.containers(all=True) for name in c["Names"]}
    assert set(spared.values()) <= left
    assert dead not in left
    assert not networks & {n["Name"] for n in api.networks()}
    assert {image["Id"] for image in api.images()} >= images
    reasons = dict(done.kept)
    assert "another-machine" in reasons[spared["far"]]
    assert "names no owner" in reasons[spared["odd"]]
    assert "belongs to user" in reasons[spared["other user"]]
    assert spared["foreign"] not in reasons
    assert done.alive >= 1
    assert dead not in engine.collect().containers


def test_what_was_collected_as_text() -> None:
    text = str(engine.Collected(("a",), (), ("v",), (("b", "why"),), 2))
    assert text == "Removed 1 containers, 0 networks and 1 volumes; 2 in use.\nKept b: why."
    assert json.loads(engine.labels("host")[engine.LABEL_OWNER])["pid"] == os.getpid()
