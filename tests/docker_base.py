"""What tests with a Docker engine share: the skip with its reason, a base image, an empty image."""

from __future__ import annotations

import functools
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from typing import Any

import pytest

from atlas_gym.runtime import engine, image


def engine_or_skip() -> None:
    """Skip the test, with the reason, where no engine answers."""
    reason = engine.unavailable()
    if reason:
        pytest.skip(reason)


def base_or_skip() -> str:
    """The base image made from this interpreter: made at the first call on a machine, then found."""
    engine_or_skip()
    return _base()


@functools.cache
def _base() -> str:
    from atlas_gym.runtime import base_image

    return base_image.make()


@functools.cache
def scratch_image() -> str:
    """An image with one empty file: containers of it can be created, not started."""
    api = engine.client().api
    tag = "atlas-gym/empty:test"
    if not api.images(tag):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("empty"))
        api.import_image_from_data(
            buffer.getvalue(), "atlas-gym/empty", "test", [f"LABEL {engine.LABEL}=image"]
        )
    return tag


def run(image: str, command: list[str]) -> str:
    """What a command prints in a container behind every wall; fails, with what it said, unless it exits 0."""
    api = engine.client().api
    host = api.create_host_config(
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        tmpfs={"/tmp": "mode=1777"},
    )
    made = api.create_container(
        image, command, user="65534:65534", host_config=host, labels=engine.labels("test")
    )["Id"]
    try:
        api.start(made)
        status = api.wait(made, timeout=120)["StatusCode"]
        out, err = (api.logs(made, stdout=i == 0, stderr=i == 1).decode() for i in (0, 1))
    finally:
        api.remove_container(made, force=True)
    assert status == 0, err + out
    return str(out)


def talk(tag: str, command: Sequence[str], env: Sequence[str] = ()) -> list[Any]:
    """Answers to `initialize` and `tools/list`, through the command line that anybody would use."""
    if shutil.which("docker") is None:
        pytest.skip("the program docker is not on PATH (Debian, Ubuntu: apt-get install docker-cli)")
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    walls = ("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    tmpfs = ("--tmpfs", "/tmp:mode=1777", "--tmpfs", "/workspace:mode=1777")
    variables = [part for variable in (f"PATH={image.PATH}", *env) for part in ("-e", variable)]
    labels = [part for key, value in engine.labels("test").items() for part in ("--label", f"{key}={value}")]
    start = [
        "docker",
        "run",
        "-i",
        "--rm",
        "--init",
        *walls,
        *tmpfs,
        *labels,
        *variables,
        "--user",
        image.USER,
    ]
    answers: list[Any] = []
    with subprocess.Popen(
        [*start, tag, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            if "id" in message:
                line = process.stdout.readline()
                assert line, process.stderr.read()
                answers.append(json.loads(line))
        process.stdin.close()
        process.stdout.read()
        process.stderr.read()
    return answers
