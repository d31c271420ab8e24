"""Environment variables and directories: the only home of both, and of secrets.

Does not know what is stored in any of the directories.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from atlas_gym.errors import StorageError

_PACKAGE = Path(__file__).resolve().parent


def cache_dir() -> Path:
    """Server environments and tool texts (`ATLAS_CACHE`, else the user's cache directory)."""
    return Path(os.environ.get("ATLAS_CACHE") or platformdirs.user_cache_dir("atlas-gym"))


def run_dir() -> Path:
    """Parent of every episode's directory (`ATLAS_RUN`, else a per-user one in the system's temp)."""
    default = Path(tempfile.gettempdir()) / f"atlas-gym-{os.getuid()}"
    return Path(os.environ.get("ATLAS_RUN") or default)


def data_dir() -> Path:
    """Public suites for tests and benchmarks (`ATLAS_DATA`); may be absent."""
    return Path(os.environ.get("ATLAS_DATA") or "../shared/data")


def shipped(name: str) -> Path:
    """The shipped folder `servers` or `tasks`: inside the wheel, or beside the package in a checkout."""
    inside = _PACKAGE / "_data" / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def base_image(language: str) -> str:
    """The image that images of servers in this language start from (`ATLAS_BASE_PYTHON`, `ATLAS_BASE_NODE`).

    "" when none is set.
    """
    return os.environ.get(f"ATLAS_BASE_{language.upper()}", "")


def docker_host() -> str:
    """Address of the Docker engine (`DOCKER_HOST`); "" when none is set."""
    return os.environ.get("DOCKER_HOST", "")


def docker_variables() -> dict[str, str]:
    """What else Docker's own tools read: `DOCKER_TLS_VERIFY`, `DOCKER_CERT_PATH`, `DOCKER_CONFIG`."""
    return {key: value for key, value in os.environ.items() if key.startswith("DOCKER_")}


def secret(name: str) -> str | None:
    """The value of an environment variable that holds a key or token. Never log it."""
    return os.environ.get(name)


@contextmanager
def storage(what: str) -> Iterator[None]:
    """Turn a full disk or an unwritable directory into an error that says so.

    Raises:
        StorageError: With `what` and the directory settings that can be changed.
    """
    try:
        yield
    except OSError as exc:
        where = f" ({exc.filename})" if exc.filename else ""
        raise StorageError(
            f"{what}: {exc.strerror or exc}{where}. Free some space or give another path; ATLAS_CACHE is "
            "where server environments go, ATLAS_RUN where episodes do."
        ) from exc
