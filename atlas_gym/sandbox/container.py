"""The zygote in a hardened container: one per owner, whose workers are sealed as they are outside.

Owns what the engine is asked for, and the owner's socket that the zygote connects to. Nothing in the
container can be written and nothing is reached from it. Does not know cells, frames or how a worker is
asked for: `parent` does.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

from atlas_gym import settings
from atlas_gym.errors import AtlasError, SandboxError, StartError, boundary
from atlas_gym.runtime import base_image, container_files, engine, image_base
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.sandbox import parent

if TYPE_CHECKING:
    from pathlib import Path

_FILES: Final = (
    "zygote.py",
    "stdlib.py",
    "frames.py",
    "console.py",
    "report.py",
    "interpreter.py",
    "seal.py",
)
_INSIDE: Final = "/atlas-gym"
_SOCKET: Final = f"{_INSIDE}/owner"
_MEMORY_SHARE: Final = 0.5
"""Of the machine's memory, for all interpreters of one owner; each has a limit of its own as well."""
_PIDS: Final = 8192
"""Processes and threads of all interpreters of one owner."""
_START_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.25


def unavailable() -> str:
    """Why no interpreter can run in a container here, with the next step; "" when it can."""
    if parent.running("container"):
        return ""
    reason = engine.unavailable()
    if reason:
        return reason.rstrip(".")
    try:
        _base()
    except AtlasError as exc:
        return str(exc).rstrip(".")
    return ""


def _base() -> str:
    """Name of the image: the base of Python servers, if it is here; nothing is pulled for a cell.

    Raises:
        SandboxError: It is not here.
    """
    given = settings.base_image("python")
    names = (given,) if given else (base_image.DEFAULT, image_base.DEFAULTS["python"])
    for name in names:
        if base_image.find(name) is not None:
            return name
    raise SandboxError(
        f"The base image {names[-1]} is not here. Pull it (docker pull {names[-1]}), make one that needs no "
        "registry (atlas-gym servers base), or name one with Python 3.11 or newer: ATLAS_BASE_PYTHON."
    )


class ContainerParent(parent.Parent):
    """A zygote that is the first process of a container of its own."""

    def _launch(self) -> socket.socket:
        self._name = f"atlas-gym-sandbox-{secrets.token_hex(6)}"
        from docker.errors import DockerException

        try:
            with boundary(SandboxError, "Starting the interpreter's container"):
                return self._made()
        except StartError as exc:
            raise SandboxError(str(exc)) from exc
        except SandboxError as exc:
            if not isinstance(exc.__cause__, DockerException):
                raise
            why = engine.short(exc.__cause__)
            raise SandboxError(
                f"The interpreter's container cannot be started from {_base()}: {why}. It needs Python 3.11 "
                "or newer as python3; ATLAS_BASE_PYTHON names another image."
            ) from exc

    def _made(self) -> socket.socket:
        facts = engine.facts()
        who = container_files.identity(rootless=facts.rootless)
        meeting = Workspace.create("sandbox", kind="host")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                path = _listen(listener, meeting)
                api = engine.client().api
                asked = config(path, _base(), facts, who)
                host = api.create_host_config(**asked["host_config"])
                api.create_container(name=self._name, **{**asked, "host_config": host})
                try:
                    api.start(self._name)
                    return self._greet(self._caller(listener, asked["image"]))
                except BaseException:  # Ctrl-C too: the engine would keep it
                    self._wait()
                    raise
        finally:
            meeting.close()  # a connection outlives the socket's name

    def _caller(self, listener: socket.socket, image: str) -> socket.socket:
        """The zygote's connection."""
        listener.settimeout(_LOOK_SECONDS)
        for _ in range(int(_START_SECONDS / _LOOK_SECONDS)):
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            if not _runs(self._name):
                tried = shlex.join(["docker", "run", "--rm", image, "python3", "--version"])
                raise SandboxError(
                    f"The interpreter's container ended at once; {image} needs Python 3.11 or newer. Look "
                    f"at it: {tried}"
                )
        raise SandboxError(f"The interpreter's container gave no sign within {_START_SECONDS:g} s.")

    def _greet(self, control: socket.socket) -> socket.socket:
        """Give the zygote the handle by which it sees its owner's end."""
        handle = os.pidfd_open(self.owner)
        try:
            socket.send_fds(control, [b"owner"], [handle])
        finally:
            os.close(handle)
        credentials = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.pid = struct.unpack("3i", credentials)[0]
        return control

    def _kill(self) -> None:
        self._wait()

    def _wait(self) -> None:
        """Remove the container, whatever became of it."""
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        # Not there any more, going already, or no engine: collection sees what is left.
        with contextlib.suppress(AtlasError, DockerException, RequestException):
            engine.client().api.remove_container(self._name, force=True, v=True)


def config(path: Path, image: str, facts: engine.Facts, who: container_files.Identity) -> dict[str, Any]:
    """What the engine is asked for, in the SDK's words.

    Args:
        path: The owner's socket.
        image: With Python 3.11 or newer as `python3`.
        facts: Of the engine.
        who: The user that it runs as.
    """
    files = {parent.HERE / name: f"{_INSIDE}/sandbox/{name}" for name in _FILES}
    files |= {parent.KERNEL: f"{_INSIDE}/kernel.py", path: _SOCKET}
    memory = int(_MEMORY_SHARE * facts.memory)
    return {
        "image": image,
        "entrypoint": ["python3", *parent.FLAGS, f"{_INSIDE}/sandbox/zygote.py"],
        "command": [_SOCKET, f"{_INSIDE}/kernel.py"],
        "environment": parent.ENVIRONMENT,
        "user": who.user,
        "hostname": "sandbox",
        "working_dir": "/",
        "labels": engine.labels("sandbox"),
        "host_config": {
            "network_mode": "none",
            "ipc_mode": "none",
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "mem_limit": memory,
            "memswap_limit": memory,
            "pids_limit": _PIDS,
            "ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
            "binds": {str(file): {"bind": there, "mode": "ro"} for file, there in files.items()},
            "log_config": {"Type": "none"},
            "restart_policy": {"Name": "no"},
            # It ends with its owner, also one that was killed, and is then gone without anybody's doing.
            "auto_remove": True,
            **({"userns_mode": "host"} if facts.user_namespace else {}),
        },
    }


def _listen(listener: socket.socket, meeting: Workspace) -> Path:
    """Bind in a directory that only this user can enter; the container gets the socket alone."""
    path = meeting.root / "owner"
    directory = os.open(meeting.root, os.O_PATH | os.O_DIRECTORY)
    try:  # through the descriptor, because the name of a socket is at most 107 bytes long
        listener.bind(f"/proc/self/fd/{directory}/owner")
    finally:
        os.close(directory)
    path.chmod(0o666)
    listener.listen(1)
    return path


def _runs(name: str) -> bool:
    from docker.errors import NotFound

    try:
        return bool(engine.client().api.inspect_container(name)["State"]["Running"])
    except NotFound:
        return False
