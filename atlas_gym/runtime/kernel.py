"""Walls of the Linux kernel for one process: Landlock, seccomp, capabilities, rlimits, prctl.

Owns the system call numbers (x86_64, aarch64), the filters and the order in which walls go up. Stands
alone: stdlib only, importable as part of the package and loadable by path under `python -I`. Does not
know what is being walled in. No library is used: `pyseccomp` needs libseccomp.so (not on every machine)
and is unmaintained, `landlock` is a development release without ABI 4 to 7, the others bring a runtime.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct

TYPE_CHECKING = False  # `typing` and `collections` would cost every server's start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final, TypeAlias

_MACHINE: Final = os.uname().machine
_ARCHES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> (column of the table below, AUDIT_ARCH of seccomp)."""

# name, x86_64, aarch64; "-" where the architecture has no such call.
_TABLE: Final = """
read 0 63, write 1 64, close 3 57, fstat 5 80, lseek 8 62, mmap 9 222, mprotect 10 226, munmap 11 215, brk 12
214, rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, ioctl 16 29, pread64 17 67, readv 19
65, writev 20 66, select 23 -, pselect6 270 72, poll 7 -, ppoll 271 73, sched_yield 24 124, mremap 25 216,
madvise 28 233, nanosleep 35 101, getpid 39 172, getppid 110 173, gettid 186 178, clone 56 220, clone3 435
435, exit 60 93, exit_group 231 94, fcntl 72 25, getcwd 79 17, gettimeofday 96 169, getrlimit 97 163,
prlimit64 302 261, sysinfo 99 179, times 100 153, getuid 102 174, getgid 104 176, geteuid 107 175, getegid
108 177, sigaltstack 131 132, futex 202 98, sched_getaffinity 204 123, clock_gettime 228 113, clock_getres
229 114, clock_nanosleep 230 115, epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -, epoll_pwait 281
22, epoll_pwait2 441 441, dup 32 23, set_robust_list 273 99, getrandom 318 278, rseq 334 293, restart_syscall
219 128, socketpair 53 199, sendto 44 206, recvfrom 45 207, shutdown 48 210, getsockopt 55 209, setsockopt 54
208, eventfd2 290 19, getpeername 52 205, getsockname 51 204, getrusage 98 165, prctl 157 167, membarrier 324
283, socket 41 198, connect 42 203, bind 49 200, chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452
452, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54, setxattr 188 5, lsetxattr 189 6, fsetxattr 190
7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16, setxattrat 463 463, sched_setaffinity 203
122, sched_setscheduler 144 119, sched_setparam 142 118, sched_setattr 314 274, setpriority 141 140,
ioprio_set 251 30, ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440
440, process_mrelease 448 448, kcmp 312 272, pidfd_getfd 438 438, mount 165 40, umount2 166 39, pivot_root
155 41, chroot 161 51, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, move_mount 429 429,
open_tree 428 428, mount_setattr 442 442, bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, keyctl
250 219, add_key 248 217, request_key 249 218, unshare 272 97, setns 308 268, kexec_load 246 104,
kexec_file_load 320 294, init_module 175 105, finit_module 313 273, delete_module 176 106, swapon 167 224,
swapoff 168 225, reboot 169 142, sethostname 170 161, setdomainname 171 162, acct 163 89, settimeofday 164
170, clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266, quotactl 179 60, quotactl_fd 443 443,
syslog 103 116, iopl 172 -, ioperm 173 -, vhangup 153 58, name_to_handle_at 303 264, open_by_handle_at 304
265, fanotify_init 300 262, move_pages 279 239, migrate_pages 256 238, shmget 29 194, msgget 68 186, semget
64 190, mq_open 240 180, io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427,
memfd_create 319 279, memfd_secret 447 447, seccomp 317 277, landlock_create_ruleset 444 444,
landlock_add_rule 445 445, landlock_restrict_self 446 446, capset 126 91, stat 4 -, lstat 6 -, newfstatat 262
79, statx 332 291, access 21 -, faccessat 269 48, faccessat2 439 439, readlink 89 -, readlinkat 267 78, kill
62 129, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88
"""


_numbers: dict[str, dict[str, int]] = {machine: {} for machine in _ARCHES}
_libraries: list[ctypes.CDLL] = []


def syscall_numbers(machine: str = _MACHINE) -> dict[str, int]:
    """Name -> number of the system calls used here on `machine`; empty on other machines."""
    if machine not in _ARCHES:
        return {}
    if not _numbers[machine]:
        column = _ARCHES[machine][0]
        rows = (entry.split() for entry in _TABLE.replace("\n", " ").split(","))
        _numbers[machine] = {row[0]: int(row[1 + column]) for row in rows if row[1 + column] != "-"}
    return _numbers[machine]


class Walls:
    """What the kernel can do for an unprivileged process (Landlock ABI 0: nothing), and why not more."""

    def __init__(self, landlock_abi: int, seccomp: bool, reason: str) -> None:
        self.landlock_abi, self.seccomp, self.reason = landlock_abi, seccomp, reason


NO_WALLS: Final = Walls(0, False, "walls are off")


def _libc() -> ctypes.CDLL:
    if not _libraries:  # made once: putting up walls takes hundreds of calls
        _libraries.append(ctypes.CDLL(None, use_errno=True))
    return _libraries[0]


def _syscall(name: str, *arguments: object) -> int:
    return int(_libc().syscall(syscall_numbers()[name], *arguments))


def _prctl(what: str, option: int, *arguments: int) -> int:
    padded = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    result = int(_libc().prctl(option, *padded))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {what}: {os.strerror(code)}")
    return result


def probe() -> Walls:
    """Ask the kernel what it can, without changing this process."""
    system = os.uname().sysname
    if system != "Linux" or _MACHINE not in _ARCHES:
        return Walls(0, False, f"walls need Linux on x86_64 or aarch64, this is {system} on {_MACHINE}")
    abi = max(0, _syscall("landlock_create_ruleset", None, 0, 1))
    action = ctypes.c_uint32(_ERRNO)
    seccomp = _syscall("seccomp", 2, 0, ctypes.byref(action)) == 0
    missing = [] if abi else ["no Landlock (kernel 5.13 or newer with lsm=landlock)"]
    if not seccomp:
        missing.append("no seccomp filters (or an outer sandbox forbids them)")
    return Walls(abi, seccomp, "; ".join(missing))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the *thread* that forked it ends, or has ended already."""
    _prctl("PR_SET_PDEATHSIG", 1, 9)
    if os.getppid() != parent:
        raise ProcessLookupError(errno.ESRCH, f"parent {parent} is gone")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies (PR_SET_CHILD_SUBREAPER)."""
    _prctl("PR_SET_CHILD_SUBREAPER", 36, 1)


def default_signal(number: int) -> None:
    """Give one signal its default action; programs inherit what was ignored."""
    _libc().signal(number, None)


def hide_memory() -> None:
    """Keep others of the same user from reading this process's memory and environment."""
    _prctl("PR_SET_DUMPABLE", 4, 0)


def no_new_privileges() -> None:
    """Make set-user-id programs powerless, for ever. Landlock and seccomp need it."""
    _prctl("PR_SET_NO_NEW_PRIVS", 38, 1)


def drop_capabilities() -> None:
    """Give up every capability, also those that a program run as root would get back at exec."""
    libc = _libc()
    libc.prctl(47, 4, 0, 0, 0)  # the ambient set; these three fail where there is nothing to drop
    for capability in range(64):
        libc.prctl(24, capability, 0, 0, 0)
    libc.prctl(28, 0x2F, 0, 0, 0)  # securebits: uid 0 means nothing any more
    header = struct.pack("Ii", 0x20080522, 0)
    if _syscall("capset", header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def set_limits(**limits: int) -> None:
    """Set soft and hard rlimits by short name (`data=`, `cpu=`, `fsize=`, `nofile=`, `core=`, `as_=`).

    A limit above the hard limit that is already set is lowered to it.
    """
    for name, wanted in limits.items():
        which = getattr(resource, "RLIMIT_" + name.rstrip("_").upper())
        hard = resource.getrlimit(which)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(which, (value, value))


_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FILE_ONLY: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def _handled(abi: int) -> int:
    rights = (1 << 13) - 1
    rights |= _REFER if abi >= 2 else 0
    rights |= _TRUNCATE if abi >= 3 else 0
    return rights | (_IOCTL_DEV if abi >= 5 else 0)


def landlock(
    abi: int,
    *,
    read: Iterable[str] = (),
    write: Iterable[str] = (),
    devices: Iterable[str] = (),
    tcp: bool = False,
) -> None:
    """Restrict this process and its descendants to some paths (ABI 1 to 7).

    Not governed by Landlock, on any kernel so far: `stat`, `chmod`, `chown`, `utime`, `inotify` and
    connecting to Unix sockets by path (`server_filter` takes care of all but stat and inotify).

    Args:
        abi: What `probe()` said.
        read: May be read and executed, and everything below. Paths that do not exist are skipped.
        write: May be read, executed, written, made and removed; no device nodes and sockets.
        devices: Files such as /dev/null that may be read and written.
        tcp: Whether TCP bind and connect stay possible (ABI 4 and newer can forbid them).

    Raises OSError when the kernel refuses.
    """
    handled = _handled(abi)
    net = 3 if abi >= 4 and not tcp else 0
    scoped = 3 if abi >= 6 else 0  # abstract Unix sockets, signals
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    attributes = struct.pack("QQQ", handled, net, scoped)[:size]
    ruleset = _syscall("landlock_create_ruleset", attributes, size, 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    try:
        everything = handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK)
        looking = _EXECUTE | _READ_FILE | _READ_DIR
        device = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
        for rights, paths in ((looking, read), (everything, write), (device, devices)):
            for path in paths:
                _allow(ruleset, rights & handled, path)
        flags = 1 if abi >= 7 else 0  # keep denials out of the audit log
        if _syscall("landlock_restrict_self", ruleset, flags) != 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, rights: int, path: str) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what does not exist for this process cannot be reached by it either
    try:
        if not os.path.isdir(f"/proc/self/fd/{fd}"):
            rights &= _FILE_ONLY
        rule = struct.pack("=Qi", rights, fd)
        if _syscall("landlock_add_rule", ruleset, 1, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock_add_rule", path)
    finally:
        os.close(fd)


_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
Program: TypeAlias = "list[tuple[int, int, int, int]]"
"""Classic BPF: (operation, jump if true, jump if false, constant)."""


def _argument(index: int, word: int = 0) -> Program:
    return [(0x20, 0, 0, 16 + 8 * index + 4 * word)]  # the low word first; both machines are little-endian


def _return(action: int) -> Program:
    return [(0x06, 0, 0, action)]


def _deny(code: int) -> Program:
    return [(0x06, 0, 0, _ERRNO | code)]


def _if_equal(value: int, then: Program) -> Program:
    return [(0x15, 0, len(then), value), *then]


def _if_any_bit(mask: int, then: Program) -> Program:
    return [(0x45, 0, len(then), mask), *then]


def _if_argument(index: int, values: list[int], then: int, otherwise: int, mask: int = 2**32 - 1) -> Program:
    """Ends with `then` when the masked argument is one of `values`, else with `otherwise`."""
    program = [*_argument(index), (0x54, 0, 0, mask)]
    for value in values:
        program += _if_equal(value, _return(then))
    return program + _return(otherwise)


def _on(names: str, body: Program) -> Program:
    """Run `body` (which ends with a return) for these system calls."""
    numbers = syscall_numbers()
    return [line for name in names.split() if name in numbers for line in _if_equal(numbers[name], body)]


def _start() -> Program:
    program = [(0x20, 0, 0, 4), (0x15, 1, 0, _ARCHES[_MACHINE][1]), *_return(_KILL), (0x20, 0, 0, 0)]
    if _MACHINE == "x86_64":  # x32 calls carry bit 30
        program += [(0x35, 0, 1, 0x40000000), *_deny(errno.ENOSYS)]
    return program


def install(program: Program) -> None:
    """Put up a filter, for all threads and for ever.

    Raises OSError when the kernel refuses.
    """
    packed = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    if _syscall("seccomp", 1, 1, header) != 0:  # flag 1: all threads
        raise OSError(ctypes.get_errno(), "seccomp")


_NAMESPACES: Final = 0x7E020000
_NO_PERMISSION: Final = """
ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd mount umount2
pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr bpf perf_event_open
userfaultfd keyctl add_key request_key unshare setns kexec_load kexec_file_load init_module finit_module
delete_module swapon swapoff reboot sethostname setdomainname acct settimeofday clock_settime adjtimex
clock_adjtime quotactl quotactl_fd syslog iopl ioperm vhangup name_to_handle_at open_by_handle_at
fanotify_init move_pages migrate_pages chown fchown lchown fchownat
"""
_NOT_THERE: Final = """
clone3 io_uring_setup io_uring_enter io_uring_register memfd_create memfd_secret shmget msgget semget
mq_open
"""
"""Denied as if the kernel did not have them, so that libraries fall back: clone3's flags cannot be read by
a filter, memfd and System V memory escape the memory limit (and are shared between episodes)."""
_NO_XATTR: Final = "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr setxattrat"


def _chmod(index: int) -> Program:
    # Landlock does not govern chmod, so a server could lock its user out of any of the user's own files.
    # Only modes that keep the owner's rwx and give no write or set-id to others are done; the rest succeed
    # without effect, because git and archivers treat a failing chmod as fatal.
    return _if_argument(index, [0o700], _ALLOW, _ERRNO, mask=0o7722)


def _utimensat() -> Program:
    # Landlock does not govern times either. Those of an open file (no path) are set, others kept silently;
    # but "now" (no times) is how a file is touched: refused, so that the caller goes on to open or make it.
    open_file = [*_argument(1, 1), *_if_equal(0, _return(_ALLOW))]
    now = [*_argument(2, 1), *_if_equal(0, _deny(errno.EACCES))]
    return [*_argument(1), *_if_equal(0, open_file), *_argument(2), *_if_equal(0, now), *_deny(0)]


def server_filter(*, network: bool) -> Program:
    """The deny-list for a process that runs somebody else's server."""
    program = _start() + _on(_NO_PERMISSION, _deny(errno.EPERM)) + _on(_NOT_THERE, _deny(errno.ENOSYS))
    program += _on(_NO_XATTR, _deny(errno.EOPNOTSUPP))
    program += _on("kill", _if_argument(0, [2**32 - 1], _ERRNO | errno.EPERM, _ALLOW))  # everybody
    program += _on("utime utimes futimesat", _deny(0)) + _on("utimensat", _utimensat())
    program += _on("chmod fchmod", _chmod(1)) + _on("fchmodat fchmodat2", _chmod(2))
    families = [2, 10] if network else []  # never AF_UNIX: the sockets of docker, ssh-agent, D-Bus
    program += _on("socket", _if_argument(0, families, _ALLOW, _ERRNO | errno.EAFNOSUPPORT))
    # A datagram pair could be connected again, to any Unix socket that has a path.
    program += _on("socketpair", _if_argument(1, [1], _ALLOW, _ERRNO | errno.EPERM, mask=0xF))
    if not network:
        program += _on("connect bind", _deny(errno.EACCES))
    program += _on("clone", _argument(0) + _if_any_bit(_NAMESPACES, _deny(errno.EPERM)) + _return(_ALLOW))
    # Calls that can change another process of the same user: only on oneself (0).
    myself = "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr"
    program += _on(myself, _if_argument(0, [0], _ALLOW, _ERRNO | errno.EPERM))
    program += _on("setpriority ioprio_set", _if_argument(1, [0], _ALLOW, _ERRNO | errno.EPERM))
    return program + _return(_ALLOW)


_CELL: Final = """
read write close fstat lseek mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread64 readv
writev select pselect6 poll ppoll sched_yield mremap madvise nanosleep getpid getppid gettid exit
exit_group getcwd gettimeofday getrlimit sysinfo times getuid getgid geteuid getegid sigaltstack futex
sched_getaffinity clock_gettime clock_getres clock_nanosleep epoll_create1 epoll_ctl epoll_wait
epoll_pwait epoll_pwait2 dup set_robust_list getrandom rseq restart_syscall sendto recvfrom shutdown
getsockopt setsockopt eventfd2 getpeername getsockname getrusage membarrier
"""


_LOOKING: Final = "stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat"


def cell_filter(*, threads: bool) -> Program:
    """The allow-list for a sealed interpreter that was warmed up before: nothing is opened or executed."""
    program = _start() + _on("clone3", _deny(errno.ENOSYS)) + _on(_CELL, _return(_ALLOW))
    program += _on(_LOOKING, _deny(errno.ENOENT))  # so that `Path.exists()` says no
    escapes = 0x101  # MAP_SHARED and MAP_GROWSDOWN are not counted by RLIMIT_DATA
    program += _on("mmap", _argument(3) + _if_any_bit(escapes, _deny(errno.EPERM)) + _return(_ALLOW))
    fionbio_fioclex = [0x5421, 0x5451]
    program += _on("ioctl", _if_argument(1, fionbio_fioclex, _ALLOW, _ERRNO | errno.ENOTTY))
    commands = [0, 1, 2, 3, 4, 1030]  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
    program += _on("fcntl", _if_argument(1, commands, _ALLOW, _ERRNO | errno.EPERM))
    program += _on("prlimit64", _if_argument(2, [0], _ALLOW, _ERRNO | errno.EPERM))  # reading only
    program += _on("prctl", _if_argument(0, [15], _ALLOW, _ERRNO | errno.EPERM))  # PR_SET_NAME of a thread
    program += _on("socketpair", _if_argument(1, [1], _ALLOW, _ERRNO | errno.EPERM, mask=0xF))
    if threads:
        not_namespaces = _argument(0) + _if_any_bit(_NAMESPACES, _deny(errno.EPERM))
        program += _on("clone", not_namespaces + _if_any_bit(0x10000, _return(_ALLOW)) + _deny(errno.EPERM))
    return program + _deny(errno.EPERM)


def seal_server(
    walls: Walls, *, read: Iterable[str], write: Iterable[str], devices: Iterable[str], network: bool
) -> None:
    """Put up what `walls` has, for a process about to exec a server. Cannot be undone.

    Raises:
        OSError: The kernel refused something that it had promised.
    """
    drop_capabilities()
    no_new_privileges()
    if walls.landlock_abi:
        landlock(walls.landlock_abi, read=read, write=write, devices=devices, tcp=network)
    if walls.seccomp:
        install(server_filter(network=network))
