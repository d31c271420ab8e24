"""atlas-gym: real MCP servers as a Gymnasium environment for language-model agents.

    import gymnasium as gym, atlas_gym
    env = gym.make("Atlas-MCP-v0", suite="core", exposure="tools", execution="code")

Importing registers the environment and nothing else: servers, tokenizers and sandboxes load at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import gymnasium as gym

if TYPE_CHECKING:
    from atlas_gym.context.budget import Budget
    from atlas_gym.context.renderer import SampledText
    from atlas_gym.env.atlas_env import AtlasEnv
    from atlas_gym.env.vector import AtlasVectorEnv
    from atlas_gym.errors import AtlasError
    from atlas_gym.rollout.play import play_all
    from atlas_gym.rollout.traces import read_traces, write_traces
    from atlas_gym.spaces import Unicode
    from atlas_gym.task.model import Task
    from atlas_gym.task.suite import load_suite
    from atlas_gym.types import Trajectory

__version__: Final = "0.1.0"

_HOMES: Final = {
    "AtlasEnv": "env.atlas_env",
    "AtlasError": "errors",
    "AtlasVectorEnv": "env.vector",
    "Budget": "context.budget",
    "SampledText": "context.renderer",
    "Task": "task.model",
    "Trajectory": "types",
    "Unicode": "spaces",
    "load_suite": "task.suite",
    "play_all": "rollout.play",
    "read_traces": "rollout.traces",
    "write_traces": "rollout.traces",
}

__all__ = [
    "AtlasEnv",
    "AtlasError",
    "AtlasVectorEnv",
    "Budget",
    "SampledText",
    "Task",
    "Trajectory",
    "Unicode",
    "load_suite",
    "play_all",
    "read_traces",
    "write_traces",
]

gym.register(
    id="Atlas-MCP-v0",
    entry_point="atlas_gym.env.atlas_env:AtlasEnv",
    vector_entry_point="atlas_gym.env.vector:AtlasVectorEnv",
    disable_env_checker=False,
    order_enforce=True,
    nondeterministic=False,
)


def __getattr__(name: str) -> Any:
    """Load a public name at first use (PEP 562): `import atlas_gym` alone stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'atlas_gym' has no attribute {name!r}")
    return getattr(import_module(f"atlas_gym.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
