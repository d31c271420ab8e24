from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from atlas_gym import sandbox
from atlas_gym.errors import SandboxError, UnknownNameError
from atlas_gym.sandbox import available, choose, open_sandbox
from atlas_gym.sandbox import parent as sandbox_parent


def test_unknown_kinds_are_named() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'sealed'"):
        choose("seald")
    with pytest.raises(UnknownNameError):
        available("docker")


@pytest.mark.skipif(bool(available("sealed")), reason="the kernel cannot seal")
def test_auto_seals_where_the_kernel_can() -> None:
    assert choose("auto") == "sealed"


def _without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    def asked(kind: str) -> str:
        return f"no {kind} in this test" if kind in missing else ""

    monkeypatch.setattr(sandbox, "available", asked)


def test_auto_takes_monty_where_the_kernel_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "sealed")
    assert choose("auto") == "monty"


def test_auto_never_takes_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "sealed", "monty")
    assert sandbox.available("container") == ""
    with pytest.raises(SandboxError):
        choose("auto")


def test_without_an_engine_there_is_no_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sandbox_parent, "_current", {})
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert f"{tmp_path}/none.sock is not there" in available("container")
    with pytest.raises(SandboxError, match=r"'container' cannot run here: There is no Docker engine"):
        choose("container")


def test_auto_never_takes_local(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "sealed", "monty")
    with pytest.raises(SandboxError, match=r"no sealed in this test.*no monty in this test.*sandbox='local'"):
        choose("auto")


def test_what_was_asked_for_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "sealed")
    with pytest.raises(SandboxError, match="'sealed' cannot run here: no sealed in this test"):
        choose("sealed")


def test_elsewhere_only_monty_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "darwin" in available("sealed")
    assert "darwin" in available("local")


def test_a_prelude_is_optional() -> None:
    async def call(op: str, payload: dict[str, Any]) -> None:
        return None

    async def main() -> str | None:
        box = await open_sandbox("auto", call=call)
        try:
            return (await box.run("1")).value
        finally:
            await box.close()

    assert asyncio.run(main()) == "1"
