"""Git repositories: making one from a setup, and reading one that an agent may have spoiled.

Both use the `git` program with no user or system configuration. Reading copies refs and objects
only, so that no hook, filter, alternate or configuration of the agent's can run. Does not know checks.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atlas_gym.errors import StorageError, TaskError
from atlas_gym.task import setup as model
from atlas_gym.task.evidence import Unavailable, Unreadable

_SECONDS: Final = 60.0
_CPU_SECONDS: Final = 10
_MAX_MEMORY: Final = 512 * 1024 * 1024
_SAFE_CONFIG: Final = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
_MAX_BLOB: Final = 4 * 1024 * 1024
_MAX_COMMITS: Final = 10_000


def _git(arguments: Sequence[str], *, stdin: bytes = b"", cwd: Path | None = None) -> bytes:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_CEILING_DIRECTORIES": "/",
    }
    try:
        process = subprocess.Popen(
            ["git", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment,
        )
    except FileNotFoundError as exc:
        raise Unavailable(
            "The program 'git' is not on PATH. Install it (Debian: apt-get install git)."
        ) from exc
    with process:
        # A repository that costs git too much work or memory is its maker's fault; a slow machine is not.
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MAX_MEMORY, _MAX_MEMORY))
        try:
            out, said = process.communicate(stdin, timeout=_SECONDS)
        except BaseException as exc:
            process.kill()
            if not isinstance(exc, subprocess.TimeoutExpired):
                raise
            raise Unavailable(f"git {arguments[0]} did not end within {_SECONDS:.0f} s") from exc
    if process.returncode:
        message = said.decode("utf-8", "replace").strip().splitlines()
        raise Unreadable(message[-1] if message else f"git {arguments[0]} ended with {process.returncode}")
    return out


def build(item: model.Repository, target: Path) -> None:
    """Make the repository and its work tree: the same item gives the same hashes and the same bytes.

    Raises:
        TaskError: Git is missing, or refuses a name of the setup.
    """
    target.mkdir(parents=True, exist_ok=True)
    git_dir = target / ".git"
    at = [f"--git-dir={git_dir}", f"--work-tree={target}"]
    identity = item.commits[0]
    try:
        _git(["init", "--quiet", "--template=", f"--initial-branch={item.checkout}", str(target)])
        # Without a reflog: it would hold the time of the layout.
        _git(
            [*at, "-c", "core.logAllRefUpdates=false", "fast-import", "--quiet", "--force"],
            stdin=_stream(item),
        )
        # The server commits under this name wherever it runs, without anybody's own configuration.
        config = (
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
            "\tlogallrefupdates = true\n[gc]\n\tauto = 0\n"
            f"[user]\n\tname = {identity.author}\n\temail = {identity.email}\n"
        )
        (git_dir / "config").write_text(config, "utf-8")
        _git([*at, "read-tree", f"refs/heads/{item.checkout}"])
        _git([*at, "checkout-index", "--all", "--force"], cwd=target)
    except (Unreadable, Unavailable) as exc:
        if os.strerror(errno.ENOSPC) in str(exc):
            raise StorageError(
                f"The setup's repository {item.path!r} cannot be written: {exc}. Free some space, or set "
                "ATLAS_RUN (episodes) to a directory with more."
            ) from exc
        raise TaskError(f"The setup's repository {item.path!r} cannot be made: {exc}") from exc
    for path, text in item.changes.items():
        changed = target / model.relative(path)
        changed.parent.mkdir(parents=True, exist_ok=True)
        changed.write_text(text, "utf-8")


def _stream(item: model.Repository) -> bytes:
    """The whole history as input of `git fast-import`."""
    out: list[bytes] = []
    started: set[str] = set()
    for number, commit in enumerate(item.commits):
        who = f"{commit.author} <{commit.email}> {model.EPOCH + 3600 * number} +0000"
        message = commit.message.encode()
        out.append(f"commit refs/heads/{commit.branch}\nauthor {who}\ncommitter {who}\n".encode())
        out.append(b"data %d\n%b\n" % (len(message), message))
        if commit.branch not in started and commit.start:
            out.append(f"from refs/heads/{commit.start}\n".encode())
        started.add(commit.branch)
        for path, text in commit.files.items():
            if text is None:
                out.append(f"D {model.relative(path)}\n".encode())
            else:
                blob = text.encode()
                out.append(
                    f"M 100644 inline {model.relative(path)}\ndata {len(blob)}\n".encode() + blob + b"\n"
                )
        out.append(b"\n")
    for tag, branch in sorted(item.tags.items()):
        out.append(f"reset refs/tags/{tag}\nfrom refs/heads/{branch}\n\n".encode())
    return b"".join(out)


@dataclass(frozen=True)
class History:
    """Reads one private, bare, unconfigured copy."""

    git_dir: Path

    def branches(self) -> dict[str, str]:
        """Branch name -> hash of its tip."""
        text = self._run("for-each-ref", "--format=%(objectname) %(refname:strip=2)", "refs/heads")
        return {name: tip for tip, name in (line.split(" ", 1) for line in text.splitlines())}

    def current(self) -> str:
        """The branch that HEAD names, or "" when it is detached."""
        head = (self.git_dir / "HEAD").read_text("utf-8", "replace").strip()
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""

    def commits(self, tip: str) -> list[str]:
        """Hashes from the tip back."""
        return self._run("rev-list", f"--max-count={_MAX_COMMITS}", tip, "--").split()

    def message(self, tip: str) -> str:
        """The whole message of a commit."""
        raw = self._run("cat-file", "commit", tip)
        return raw.partition("\n\n")[2].strip()

    def paths(self, tip: str) -> list[str]:
        """Every file of a commit's tree."""
        return [p for p in self._run("ls-tree", "-r", "-z", "--name-only", tip).split("\0") if p]

    def text(self, tip: str, path: str) -> str | None:
        """The content of a file in a commit's tree, or None when it is not there.

        Raises:
            Unreadable: It is larger than 4 MiB.
        """
        try:
            size = int(self._run("cat-file", "-s", f"{tip}:{path}"))
        except Unreadable:
            return None
        if size > _MAX_BLOB:
            raise Unreadable(f"{path}: larger than {_MAX_BLOB} bytes")
        return self._run("cat-file", "blob", f"{tip}:{path}")

    def _run(self, *arguments: str) -> str:
        return _git([f"--git-dir={self.git_dir}", *arguments]).decode("utf-8", "replace")


@contextmanager
def history(work_tree: Path) -> Iterator[History]:
    """A private copy of a repository's refs and objects, safe to read with git.

    Raises:
        Unreadable: There is no plain `.git` directory.
        Unavailable: Git is missing (when the history is read).
        OSError: The copy could not be made (a full disk).
    """
    source = work_tree / ".git"
    if source.is_symlink() or not source.is_dir() or not (source / "HEAD").is_file():
        raise Unreadable(f"there is no git repository at {work_tree.name!r}")
    # Inside of what is a copy already: `gc` collects that, should this process be killed meanwhile.
    with tempfile.TemporaryDirectory(prefix="atlas-check-", dir=work_tree) as folder:
        git_dir = Path(folder)
        (git_dir / "config").write_text(_SAFE_CONFIG, "utf-8")
        for name in ("HEAD", "packed-refs"):
            if (source / name).is_file() and not (source / name).is_symlink():
                shutil.copyfile(source / name, git_dir / name)
        for name in ("refs", "objects"):
            _copy_plain(source / name, git_dir / name)
        yield History(git_dir)


def _copy_plain(source: Path, target: Path, depth: int = 12) -> None:
    """Copy plain files only; links, sockets and `info` (alternates) stay behind."""
    target.mkdir()
    if source.is_symlink() or not source.is_dir():
        return
    for entry in os.scandir(source):
        if entry.is_dir(follow_symlinks=False) and entry.name != "info" and depth:
            _copy_plain(Path(entry.path), target / entry.name, depth - 1)
        elif entry.is_file(follow_symlinks=False):
            shutil.copyfile(entry.path, target / entry.name)
