"""Warmed parents in containers: one per server and owner, whose forks are walled like those outside.

Owns what differs from `prefork`: the container around the host, the paths that it sees, who may reach them.
Does not know how a host forks, or what a server says.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from atlas_gym.errors import StartError, boundary
from atlas_gym.runtime import engine, prefork
from atlas_gym.runtime.attach import request
from atlas_gym.runtime.container_files import give, let_through
from atlas_gym.runtime.container_link import remove, socket_path
from atlas_gym.runtime.container_spec import HOSTNAME, Ground, Image, by_hand, walls
from atlas_gym.runtime.host import HostPlan, HostProcess
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.kernel import Walls
from atlas_gym.runtime.launch import Launch, plan
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.prefork import FILES, IDLE, Hosts
from atlas_gym.runtime.workspace import Workspace

_HERE: Final = "/opt/atlas-gym"
"""Where a host's own files are in its container."""
_READ: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc")
"""What a server may read of its image, beside its own directory: there is nothing of this machine in it."""


@dataclass(frozen=True)
class Shared:
    """How much one container of forks may hold."""

    children: int = 64
    """Servers whose memory and processes fit into it at their limits."""
    idle: float = IDLE
    """Seconds after which one that nobody uses ends."""


class ContainerHosts(Hosts):
    """Hosts in containers; `get` takes installations as `inside` gives them.

    Args:
        walls: Put up around the children.
        ground: What all containers share.
        shared: How much one may hold.
    """

    def __init__(self, walls: Walls, ground: Ground, shared: Shared) -> None:
        super().__init__(walls, idle=shared.idle)
        self._ground = ground
        self._shared = shared
        self._inside: dict[str, tuple[Image, Manifest]] = {}

    def inside(self, installation: Installation, image: Image) -> Installation:
        """The same server as its image holds it."""
        self._inside[installation.server.name] = image, installation.server.manifest
        home = Path(image.command[0]).parent
        path = dict(image.env).get("PATH", f"{home}:/usr/local/bin:/usr/bin:/bin")
        reads = (home.parent, *map(Path, _READ))
        return Installation(
            installation.server, home.parent, image.command, reads, tuple(map(Path, path.split(":")))
        )

    def planned(self, installation: Installation, workspace: Workspace) -> Launch:
        """What starting one server of an episode takes; its directories are made and given.

        Args:
            installation: As `inside` gave it.
            workspace: The episode.

        Raises:
            StorageError: The directories cannot be made or given.
        """
        launch = plan(installation, workspace, self.walls)
        state = workspace.state(installation.server.name)
        who = self._ground.who
        let_through((workspace.root.parent, workspace.root, workspace.root / "state"), who)
        give((workspace.files, state, state / "home", state / "tmp"), who)
        spec = launch.spec
        folders = {workspace.files: str(workspace.files), state: str(state)}
        image, manifest = self._inside[installation.server.name]
        host = walls(manifest.limits, self._ground, network=spec["network"])
        private = {key for key, value in spec["env"].items() if value in launch.secrets}
        shown = by_hand(image.reference, spec["argv"], spec["env"], private, folders, host, self._ground)
        return replace(launch, walls=f"container+{launch.walls}", command=shown)

    def prepare(self, installation: Installation, workspace: Workspace) -> HostPlan:
        """As outside, but the host's own files are where they are mounted."""
        found = super().prepare(installation, workspace)
        command = tuple(
            f"{_HERE}/forkhost.py" if part.endswith("/forkhost.py") else part for part in found.command
        )
        return replace(found, command=command)

    def launch(self, host: HostPlan) -> HostProcess:
        """Start the host's container.

        Raises:
            StartError: The engine refuses.
            StorageError: The host's directory cannot be given to it.
        """
        image, manifest = self._inside[host.server]
        return ContainerProcess(
            host, image.reference, self._ground, _host(host, manifest, self._ground, self._shared)
        )


def _host(host: HostPlan, manifest: Manifest, ground: Ground, shared: Shared) -> dict[str, Any]:
    """The host configuration: walls for many, the run directory where it is, the host's own files."""
    network = manifest.network != "none"
    found = walls(manifest.limits, ground, network=network, many=shared.children)
    run = host.workspace.root.parent
    found["binds"] = {str(run): {"bind": str(run), "mode": "rw"}}
    for file in FILES:
        found["binds"][str(Path(prefork.__file__).parent / file)] = {"bind": f"{_HERE}/{file}", "mode": "ro"}
    # Each child has its own limits; the host uses more files with each of them, and more time as it ages.
    found["ulimits"] = [{"Name": "core", "Soft": 0, "Hard": 0}]
    found["nano_cpus"] = int(ground.all_cpus * 1e9)
    found["auto_remove"] = True
    del found["restart_policy"]
    return found


class ContainerProcess:
    """A host in a container. It is removed by its engine when the host has ended."""

    def __init__(self, host: HostPlan, reference: str, ground: Ground, config: dict[str, Any]) -> None:
        let_through((host.workspace.root.parent,), ground.who)
        give((host.workspace.root,), ground.who)
        self._name = f"atlas-gym-{host.workspace.root.name}-{secrets.token_hex(4)}"
        self._stream = socket.socket(socket.AF_UNIX)
        self.pid = 0
        try:
            with boundary(StartError, "Starting a container"):
                self._start(host, reference, ground, config)
        except BaseException:
            self.end()
            raise

    def _start(self, host: HostPlan, reference: str, ground: Ground, config: dict[str, Any]) -> None:
        api = engine.client().api
        api.create_container(
            name=self._name,
            host_config=api.create_host_config(**config),
            image=reference,
            entrypoint=list(host.command[:1]),
            command=list(host.command[1:]),
            environment=dict(host.env),
            user=ground.who.user,
            working_dir="/",
            hostname=HOSTNAME,
            labels=engine.labels("host"),
            stdin_open=True,
        )
        self._stream.settimeout(host.start_seconds)
        self._stream.connect(socket_path())
        self._stream.sendall(request(self._name))
        head = b""
        while b"\r\n\r\n" not in head:  # one at a time: what follows is the container's
            byte = self._stream.recv(1)
            if not byte:
                raise StartError("the engine hung up")
            head += byte
        api.start(self._name)
        self._stream.setblocking(False)
        self.pid = _first_child(int(api.inspect_container(self._name)["State"]["Pid"]))

    def running(self) -> bool:
        """Whether it has not ended: the stream of its output ends with it."""
        poll = select.poll()
        poll.register(self._stream, select.POLLIN)
        while poll.poll(0):
            try:
                data = self._stream.recv(1 << 16)
            except OSError:
                return False
            if not data:
                return False
        return True

    def end(self) -> None:
        """Kill and remove it."""
        self._stream.close()
        with contextlib.suppress(StartError), boundary(StartError, "removing"):  # gc finds it
            remove(engine.client().api, self._name)


def _first_child(pid: int) -> int:
    """The host itself, whose parent is the engine's init; 0 where processes of containers are not seen."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return 0
