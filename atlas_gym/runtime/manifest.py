"""What must be known about one MCP server before it is started, read from `server.toml`.

Owns the fields, their checks and the templates in commands and variables. Does not know whether the
server is installed, how it is started, or what MCP is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from atlas_gym.errors import ManifestError, closest

TEMPLATES: Final = ("workspace", "state", "home", "env")
"""Names that may stand in braces in `command` and `env`: the episode's shared directory, the server's
private directory, its private HOME, and its installed environment."""

_TEMPLATE: Final = re.compile(r"\{([A-Za-z_]+)\}")
_PYTHON: Final = re.compile(r"(>=|<=|==|>|<)?3\.\d{1,2}")

Registry: TypeAlias = Literal["pypi", "npm", "user"]
OneLine: TypeAlias = Annotated[str, Field(max_length=200, pattern=r"^[^\r\n]*$")]


class Limits(BaseModel):
    """What one started server may use, and how long it may take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_mb: int = Field(default=1024, ge=16)
    """Memory of one process, in MiB."""
    pids: int = Field(default=128, ge=1)
    """Processes and threads."""
    cpu_seconds: int = Field(default=600, ge=1)
    """CPU time of one process."""
    start_seconds: float = Field(default=60.0, gt=0)
    """Wall time from the start to the end of the handshake."""
    call_seconds: float = Field(default=30.0, gt=0)
    """Wall time of one tool call."""
    file_mb: int = Field(default=256, ge=1)
    """Largest file it may write, in MiB."""
    open_files: int = Field(default=256, ge=16)
    """Open file descriptors."""


class Manifest(BaseModel):
    """One server: what it is, how it is started, and what isolating and repeating it needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    description: OneLine
    """One line in our own words, shown in the agent's index of servers."""
    registry: Registry
    """Where the package comes from; `user` for an entry of the user's mcp.json."""
    package: str = ""
    version: str = ""
    """Exact version."""
    licence: str = ""
    language: Literal["python", "node", "other"] = "other"
    python: str = "3.11"
    """Python request: "3.12", or bounds such as ">=3.11,<3.14"."""
    pins: tuple[str, ...] = ()
    """Extra requirements for the dependency lock, such as "mcp<2"."""
    command: tuple[str, ...] = ()
    """Program and arguments; {workspace}, {state}, {home} and {env} are filled in."""
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    """Variables it starts with (same templates): its settings, and the clock, locale and seed that make
    it repeat. Not in `repr`: a user's mcp.json keeps keys here."""
    env_allow: tuple[str, ...] = ()
    """Names of the user's own variables that it may see."""
    programs: tuple[str, ...] = ()
    """Executables that must be on PATH."""
    debian: tuple[str, ...] = ()
    """Debian packages that bring those programs."""
    tags: tuple[str, ...] = ()
    limits: Limits = Limits()
    state: Literal["none", "workspace", "memory"]
    """Where what it changes is kept. `workspace`: in files, so a crashed one can be replaced."""
    state_bound: Literal["import", "start", "call"]
    """When it fixes its paths, databases and seeds."""
    respawn: OneLine = ""
    """Why it may be neither forked from a warmed parent nor kept as a started spare; "" when it may."""
    network: Literal["none"] | tuple[str, ...] = "none"
    """Hosts that it needs."""
    walls: Literal["required", "optional"] = "optional"
    """`required` for shells and whatever else runs code: then it refuses to start without walls."""
    read_only: tuple[str, ...] = ()
    """Tools that change nothing."""
    nondeterministic: tuple[str, ...] = ()
    """Tools that bring in the clock or randomness: two fresh runs may answer differently. What they wrote
    can show in later reads of the same episode."""
    protocol: Literal["legacy", "auto"] = "legacy"
    """`legacy` starts with `initialize`; `auto` probes for the newer protocol first."""
    url: str = Field(default="", repr=False)
    """Address of a running server; only in a user's mcp.json."""
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    """What it is sent with every request, as written: `${NAME}` is filled in when a session is opened."""

    @field_validator("command", "env")
    @classmethod
    def _templates(cls, value: Any, info: Any) -> Any:
        if info.data.get("registry") == "user":
            return value
        for text in value if isinstance(value, tuple) else value.values():
            for name in _TEMPLATE.findall(text):
                if name not in TEMPLATES:
                    near = closest(name, TEMPLATES)
                    raise ValueError(
                        f"unknown template {{{name}}}" + (f"; did you mean {{{near}}}?" if near else "")
                    )
        return value

    @field_validator("python")
    @classmethod
    def _python_request(cls, value: str) -> str:
        if not all(_PYTHON.fullmatch(part.strip()) for part in value.split(",")):
            raise ValueError('expected a request such as "3.12" or ">=3.11,<3.14"')
        return value

    @model_validator(mode="after")
    def _whole(self) -> Manifest:
        if self.registry == "user":
            if bool(self.command) == bool(self.url):
                raise ValueError("expected either a command or a url")
            return self
        if self.url:
            raise ValueError("url: only an entry of the user's mcp.json may have one")
        for field in ("package", "version", "command"):
            if not getattr(self, field):
                raise ValueError(f"{field}: must not be empty")
        if (self.registry, self.language) not in (("pypi", "python"), ("npm", "node")):
            raise ValueError(f"language: {self.language!r} does not come from registry {self.registry!r}")
        return self

    @property
    def requirement(self) -> str:
        """`package==version`, as traces and reports name it."""
        return f"{self.package}=={self.version}" if self.package else self.name

    def expand(self, text: str, places: Mapping[str, Path | str]) -> str:
        """Fill the templates of one string of `command` or `env`.

        Args:
            text: The string; for a `user` server it is returned unchanged, braces and all.
            places: A directory for each name of `TEMPLATES` that may be filled now; others stay.
        """
        if self.registry == "user":
            return text
        return _TEMPLATE.sub(
            lambda hit: str(places[hit[1]]) if hit[1] in places else hit[0],
            text,
        )


def python_satisfies(request: str, version: tuple[int, int]) -> bool:
    """Whether Python `version` (major, minor) meets a manifest's `python` request."""
    for part in request.split(","):
        hit = re.fullmatch(r"(>=|<=|==|>|<)?(\d+)\.(\d+)", part.strip())
        if hit is None:
            return False
        want = (int(hit[2]), int(hit[3]))
        ok = {
            ">=": version >= want,
            "<=": version <= want,
            ">": version > want,
            "<": version < want,
        }.get(hit[1] or "==", version == want)
        if not ok:
            return False
    return True


def load_manifest(path: Path) -> Manifest:
    """Read one `server.toml`.

    Raises:
        ManifestError: The file cannot be read, is not TOML, or a field is wrong; names file and field.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise ManifestError(f"{path}: cannot be read as TOML: {exc}. Correct the file.") from exc
    return build_manifest(raw, str(path))


def build_manifest(raw: Mapping[str, Any], where: str) -> Manifest:
    """Check plain values into a `Manifest`.

    Args:
        raw: Field names to values, as in a `server.toml`.
        where: File (and entry) that the values come from, for the message.

    Raises:
        ManifestError: Names `where`, the field, what was found and what was expected.
    """
    try:
        return Manifest.model_validate(raw)
    except ValidationError as exc:
        lines = [_problem(error) for error in exc.errors(include_url=False, include_context=False)]
        raise ManifestError(f"{where}: " + "; ".join(lines) + ". Correct it and try again.") from exc


def _problem(error: Any) -> str:
    field = ".".join(str(part) for part in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        known = Limits.model_fields if field.startswith("limits.") else Manifest.model_fields
        near = closest(field.rpartition(".")[2], known)
        return f"field {field!r} is unknown" + (f"; did you mean {near!r}?" if near else "")
    if error["type"] == "missing":
        return f"field {field!r} is missing"
    found = "" if field.split(".")[0] in ("", "env", "headers") else f" (found {str(error['input'])[:80]!r})"
    return f"field {field!r}: {message}{found}" if field else message
