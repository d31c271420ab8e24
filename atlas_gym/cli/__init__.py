"""The command line, `atlas-gym ...`: the only place that prints. Owns words and layout, no logic."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `atlas-gym` program."""
    from atlas_gym.cli.app import app

    app()
