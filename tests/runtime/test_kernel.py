"""Every wall, tried from inside by a process that has put it up."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.runtime import kernel

HEADER = """
import ast, ctypes, errno, importlib.util, os, resource, signal, socket, sys, threading, time, struct
spec = importlib.util.spec_from_file_location("kernel", sys.argv[1])
kernel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel)
beside = os.path.join(os.path.dirname(os.path.dirname(sys.argv[1])), "sandbox", "seal.py")
spec = importlib.util.spec_from_file_location("seal", beside)
seal = importlib.util.module_from_spec(spec)
spec.loader.exec_module(seal)
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = kernel.syscall_numbers()
def call(name, *arguments):
    result = libc.syscall(NUMBERS[name], *arguments)
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]
def attempt(function, *arguments):
    try:
        return function(*arguments)
    except OSError as exc:
        return errno.errorcode[exc.errno]
    except ValueError as exc:  # what the resource module makes of EPERM
        return "EPERM" if "not allowed" in str(exc) else str(exc)
results = {}
"""

pytestmark = pytest.mark.skipif(
    kernel.probe().landlock_abi < 6 or not kernel.probe().seccomp, reason=f"walls: {kernel.probe().reason}"
)


def inside(body: str, *arguments: str) -> dict[str, Any]:
    """Run `body` in an isolated interpreter that knows only kernel.py; what it put into `results`."""
    code = HEADER + textwrap.dedent(body) + "\nos.write(1, repr(results).encode())\n"
    path = str(Path(kernel.__file__))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, path, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = ast.literal_eval(done.stdout)
    assert isinstance(found, dict)
    return found


def test_probe_changes_nothing() -> None:
    before = [line for line in Path("/proc/self/status").read_text().splitlines() if "Seccomp" in line]
    assert kernel.probe().reason == ""
    assert before == [
        line for line in Path("/proc/self/status").read_text().splitlines() if "Seccomp" in line
    ]


def test_numbers_agree_with_the_headers() -> None:
    headers = {
        "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        "aarch64": Path("/usr/include/asm-generic/unistd.h"),
    }
    for machine, path in headers.items():
        if not path.exists():
            continue
        pairs = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", path.read_text())
        known = {name: int(number) for name, number in pairs}
        ours = kernel.syscall_numbers(machine)
        assert len(ours) > 120
        assert {n: v for n, v in ours.items() if n in known and known[n] != v} == {}
    assert kernel.syscall_numbers("riscv64") == {}


def test_landlock_paths(tmp_path: Path) -> None:
    for name in ("read", "write", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "write" / "link").symlink_to(tmp_path / "other" / "file")
    found = inside(
        """
        base = sys.argv[2]
        kernel.no_new_privileges()
        kernel.landlock(
            kernel.probe().landlock_abi, read=[base + "/read", base + "/absent"], write=[base + "/write"],
            devices=["/dev/null"],
        )
        def get(path):
            with open(path) as f: return f.read()
        def put(path):
            with open(path, "w") as f: return f.write("x")
        results["read"] = attempt(get, base + "/read/file")
        results["read, write"] = attempt(put, base + "/read/file")
        results["read, make"] = attempt(put, base + "/read/new")
        results["read, unlink"] = attempt(os.unlink, base + "/read/file")
        results["read, truncate"] = attempt(os.truncate, base + "/read/file", 0)
        results["write"] = attempt(put, base + "/write/new")
        results["write, move inside"] = attempt(os.rename, base + "/write/new", base + "/write/newer")
        results["write, fifo"] = attempt(os.mkfifo, base + "/write/fifo")
        results["link out"] = attempt(get, base + "/write/link")
        results["hard link in"] = attempt(os.link, base + "/other/file", base + "/write/stolen")
        results["rename in"] = attempt(os.rename, base + "/other/file", base + "/write/stolen")
        results["other"] = attempt(get, base + "/other/file")
        results["other, list"] = attempt(os.listdir, base + "/other")
        results["dotdot"] = attempt(get, base + "/write/../other/file")
        results["through proc"] = attempt(get, "/proc/self/root" + base + "/other/file")
        results["null"] = attempt(put, "/dev/null")
        results["environ of parent"] = attempt(get, f"/proc/{os.getppid()}/environ")
        results["kill parent"] = attempt(os.kill, os.getppid(), 0)
        server = socket.socket()
        results["tcp bind"] = attempt(server.bind, ("127.0.0.1", 0))
        results["tcp connect"] = attempt(server.connect, ("127.0.0.1", 1))
        """,
        str(tmp_path),
    )
    assert found == {
        "read": "read",
        "read, write": "EACCES",
        "read, make": "EACCES",
        "read, unlink": "EACCES",
        "read, truncate": "EACCES",
        "write": 1,
        "write, move inside": None,
        "write, fifo": None,
        "link out": "EACCES",
        "hard link in": found["hard link in"],
        "rename in": found["rename in"],
        "other": "EACCES",
        "other, list": "EACCES",
        "dotdot": "EACCES",
        "through proc": "EACCES",
        "null": 1,
        "environ of parent": "EACCES",
        "kill parent": "EPERM",
        "tcp bind": "EACCES",
        "tcp connect": "EACCES",
    }
    assert {found["hard link in"], found["rename in"]} <= {"EACCES", "EXDEV"}


def test_landlock_abstract_sockets() -> None:
    found = inside(
        """
        name = b"\\0atlas-gym-test-%d" % os.getpid()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(name)
        listener.listen()
        kernel.no_new_privileges()
        kernel.landlock(kernel.probe().landlock_abi)
        results["connect"] = attempt(socket.socket(socket.AF_UNIX).connect, name)
        """
    )
    assert found == {"connect": "EPERM"}


def test_capabilities_are_gone_after_exec() -> None:
    show = ["grep", "Cap", "/proc/self/status"]
    code = f"import kernel, os; kernel.drop_capabilities(); os.execv('/bin/grep', {show})"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(kernel.__file__).parent,
    )
    caps = dict(line.split(":\t") for line in done.stdout.splitlines())
    wanted = ["CapInh", "CapPrm", "CapEff", "CapAmb"] + (["CapBnd"] if os.getuid() == 0 else [])
    assert {caps[name] for name in wanted} == {"0000000000000000"}


def test_limits_are_capped_by_the_hard_limit() -> None:
    found = inside(
        """
        resource.setrlimit(resource.RLIMIT_NOFILE, (50, 60))
        kernel.set_limits(nofile=1000, core=0)
        results["nofile"] = resource.getrlimit(resource.RLIMIT_NOFILE)
        results["core"] = resource.getrlimit(resource.RLIMIT_CORE)
        """
    )
    assert found == {"nofile": (60, 60), "core": (0, 0)}


SERVER = """
kernel.no_new_privileges()
kernel.install(kernel.server_filter(network=NETWORK))
"""


@pytest.mark.parametrize("network", [False, True])
def test_server_filter_sockets(network: bool) -> None:
    found = inside(
        SERVER.replace("NETWORK", str(network))
        + textwrap.dedent("""
        def made(family, kind=socket.SOCK_STREAM):
            socket.socket(family, kind).close()
        for name in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"):
            results[name] = attempt(made, getattr(socket, name))
        results["udp"] = attempt(made, socket.AF_INET, socket.SOCK_DGRAM)
        results["stream pair"] = attempt(lambda: [s.close() for s in socket.socketpair()])
        pair = attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)
        results["datagram pair"] = pair
        results["io_uring"] = call("io_uring_setup", 1, bytes(120))
        """)
    )
    internet = None if network else "EAFNOSUPPORT"
    assert found == {
        "AF_INET": internet,
        "AF_INET6": internet,
        "udp": internet,
        "AF_UNIX": "EAFNOSUPPORT",
        "AF_NETLINK": "EAFNOSUPPORT",
        "AF_PACKET": "EAFNOSUPPORT",
        "AF_VSOCK": "EAFNOSUPPORT",
        "stream pair": [None, None],
        "datagram pair": "EPERM",
        "io_uring": "ENOSYS",
    }


def test_server_filter_denies_by_name() -> None:
    found = inside(
        SERVER.replace("NETWORK", "False")
        + textwrap.dedent("""
        for name in (kernel._NO_PERMISSION + kernel._NOT_THERE + kernel._NO_XATTR).split():
            if name in NUMBERS:
                results[name] = call(name, 0, 0, 0, 0, 0, 0)
        """)
    )
    assert set(found.values()) == {"EPERM", "ENOSYS", "ENOTSUP"}
    assert {name for name, code in found.items() if code == "ENOSYS"} == set(kernel._NOT_THERE.split())


def test_server_filter_arguments(tmp_path: Path) -> None:
    found = inside(
        SERVER.replace("NETWORK", "False")
        + textwrap.dedent("""
        path = sys.argv[2] + "/file"
        open(path, "w").close()
        def mode(wanted, function=os.chmod, target=path):
            function(target, wanted)
            return oct(os.stat(path).st_mode & 0o7777)
        results["start"] = mode(0o700)
        for wanted in (0o755, 0o744, 0o000, 0o400, 0o600, 0o777, 0o4755):
            results[oct(wanted)] = mode(wanted)
        with open(path) as file:
            results["fchmod"] = mode(0, os.fchmod, file.fileno())
        results["chown"] = attempt(os.chown, path, os.getuid(), -1)
        results["new namespace"] = call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
        results["own limit"] = attempt(resource.prlimit, 0, resource.RLIMIT_CORE)
        results["parent's limit"] = attempt(resource.prlimit, os.getppid(), resource.RLIMIT_CORE, (0, 0))
        results["parent's priority"] = attempt(os.setpriority, os.PRIO_PROCESS, os.getppid(), 19)
        results["parent's cpus"] = attempt(os.sched_setaffinity, os.getppid(), {0})
        pid = os.fork()
        if not pid: os._exit(7)
        results["fork"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        thread = threading.Thread(target=results.__setitem__, args=("thread", 1))
        thread.start(); thread.join()
        """),
        str(tmp_path),
    )
    assert found == {
        "start": "0o700",
        "0o755": "0o755",
        "0o744": "0o744",
        **dict.fromkeys(("0o0", "0o400", "0o600", "0o777", "0o4755", "fchmod"), "0o744"),
        "chown": "EPERM",
        "new namespace": "EPERM",
        "own limit": found["own limit"],
        "parent's limit": "EPERM",
        "parent's priority": "EPERM",
        "parent's cpus": "EPERM",
        "fork": 7,
        "thread": 1,
    }


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 and int 0x80 are of x86_64")
def test_foreign_calls() -> None:
    body = SERVER.replace("NETWORK", "False") + textwrap.dedent("""
        libc.syscall(0x40000000 | 39)
        results["x32"] = errno.errorcode[ctypes.get_errno()]
        """)
    assert inside(body) == {"x32": "ENOSYS"}
    # mov eax, 20 (getpid of i386); int 0x80; ret
    body = """
        import mmap
        page = mmap.mmap(-1, 4096, prot=7)
        page.write(bytes.fromhex("b814000000cd80c3"))
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        pid = os.fork()
        if not pid:
            kernel.no_new_privileges()
            kernel.install(kernel.server_filter(network=False))
            function()
            os._exit(0)
        results["i386"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        """
    assert inside(body) == {"i386": -31}


def test_sealed_cell() -> None:
    found = inside(
        """
        import asyncio, json, subprocess, mmap
        asyncio.run(asyncio.sleep(0))
        own = open("/dev/null")
        with open("/proc/self/maps", "rb") as file:
            maps = file.readlines()
        walls = seal.seal(kernel, memory_mb=64, cpu_seconds=20)
        results["walls"] = walls.landlock_abi >= 6 and walls.seccomp
        results["open"] = attempt(open, "/etc/passwd")
        results["stat"] = attempt(os.stat, "/etc/passwd")
        results["list"] = attempt(os.listdir, "/")
        results["exec"] = attempt(os.execv, "/bin/true", ["true"])
        results["fork"] = attempt(os.fork)
        results["subprocess"] = attempt(subprocess.run, ["true"])
        results["kill"] = attempt(os.kill, os.getppid(), 0)
        results["signal to itself"] = attempt(os.kill, os.getpid(), 9)
        results["socket"] = attempt(socket.socket)
        results["datagram pair"] = attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)
        results["shared memory"] = attempt(mmap.mmap, -1, 4096)
        results["limits"] = attempt(resource.setrlimit, resource.RLIMIT_CPU, (1, 1))
        results["prctl"] = "EPERM" if libc.prctl(4, 1, 0, 0, 0) < 0 else 0
        results["ptrace"] = call("ptrace", 0, 0, 0, 0)
        results["io_uring"] = call("io_uring_setup", 1, bytes(120))
        results["owner of signals"] = call("fcntl", own.fileno(), 8, os.getppid())
        try:
            held = [bytearray(1 << 20) for _ in range(100)]
        except MemoryError:
            results["memory"] = "MemoryError"
        held = None
        libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
        where = lambda found: "EPERM" if found in (None, 2**64 - 1) else "mapped"
        results["stack mapping"] = where(libc.mmap(None, ctypes.c_size_t(1 << 34), 3, 0x122, -1, 0))
        stack = next(line for line in maps if b"[stack]" in line).split(b"-")[0]
        grown = libc.mremap(ctypes.c_void_p(int(stack, 16)), 4096, ctypes.c_size_t(1 << 34), 1)
        results["grown stack"] = where(grown)
        thread = threading.Thread(target=results.__setitem__, args=("thread", 1))
        thread.start(); thread.join()
        results["asyncio"] = asyncio.run(asyncio.sleep(0.001, "slept"))
        results["random"] = len(os.urandom(8))
        results["time"] = time.sleep(0.001)
        """
    )
    works = {
        "walls": True,
        "memory": "MemoryError",
        "thread": 1,
        "asyncio": "slept",
        "random": 8,
        "time": None,
        "stat": "ENOENT",
    }
    assert {name: found[name] for name in works} == works
    assert {name for name, value in found.items() if value != "EPERM"} == set(works)


def test_sealed_cell_without_threads() -> None:
    found = inside(
        """
        seal.seal(kernel, memory_mb=64, cpu_seconds=20, threads=False)
        try:
            threading.Thread(target=int).start()
        except RuntimeError:
            results["thread"] = "RuntimeError"
        """
    )
    assert found == {"thread": "RuntimeError"}
