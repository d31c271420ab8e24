from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from atlas_gym import sandbox
from atlas_gym.errors import SandboxError, UnknownNameError
from atlas_gym.sandbox import available, choose, open_sandbox


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
