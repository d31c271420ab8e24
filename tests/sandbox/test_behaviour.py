"""What every kind of sandbox does, in one suite; what monty cannot is a table in conftest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from atlas_gym.errors import ConfigError, SandboxError
from atlas_gym.sandbox import KINDS, CellLimits, CellResult, HostError, Sandbox, available, open_sandbox

PRELUDE = {"cpython": '__all__ = ["ask"]\ndef ask(op, **payload):\n    return host_call(op, payload)\n'}
PRELUDE["monty"] = "def ask(op, **payload):\n    return host_call(op, payload)\n"


class FakeHost:
    """Answers the operations of this suite and remembers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.reached = asyncio.Event()

    async def __call__(self, op: str, payload: dict[str, Any]) -> Any:
        self.asked.append((op, payload))
        self.reached.set()
        match op:
            case "echo":
                return payload
            case "refuse":
                raise HostError("not today")
            case "never":
                await asyncio.Event().wait()
            case "later":
                later = asyncio.Event()
                asyncio.get_running_loop().call_later(payload["seconds"], later.set)
                await later.wait()
            case "big":
                return "x" * payload["size"]
            case "bug":
                raise LookupError("a bug of the host")
        return None


@pytest.fixture(params=[pytest.param(k, marks=pytest.mark.docker) if k == "container" else k for k in KINDS])
def kind(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if available(name):
        pytest.skip(available(name))
    return name


def run(kind: str, *cells: str, host: FakeHost | None = None, **limits: Any) -> list[CellResult]:
    """The results of some cells in a new sandbox."""

    async def main() -> list[CellResult]:
        sandbox = await start(kind, host or FakeHost(), **limits)
        try:
            return [await sandbox.run(cell) for cell in cells]
        finally:
            await sandbox.close()

    return asyncio.run(main())


async def start(kind: str, host: FakeHost, **limits: Any) -> Sandbox:
    prelude = PRELUDE["monty" if kind == "monty" else "cpython"]
    return await open_sandbox(kind, call=host, prelude=prelude, limits=CellLimits(**limits))


def with_sandbox(kind: str, work: Callable[[Sandbox, FakeHost], Awaitable[None]], **limits: Any) -> None:
    async def main() -> None:
        host = FakeHost()
        sandbox = await start(kind, host, **limits)
        try:
            await work(sandbox, host)
        finally:
            await sandbox.close()

    asyncio.run(main())


def test_variables_stay_and_the_last_expression_is_the_value(kind: str) -> None:
    first, second, third = run(kind, "x = [1]\nx + [2]", "x.append('é')\nprint('hi')", "x; x")
    assert (first.status, first.value, first.stdout) == ("ok", "[1, 2]", "")
    assert (second.value, second.stdout) == (None, "hi\n")
    assert third.value == "[1, 'é']"


def test_an_object_of_a_cell_shows_its_own_repr(kind: str) -> None:
    code = "class A:\n    def __repr__(self):\n        return 'an A'\n[A(), {'k': A()}]"
    assert run(kind, code)[0].value == "[an A, {'k': an A}]"


def test_an_error_keeps_what_was_printed_and_the_variables(kind: str) -> None:
    first, second = run(kind, "y = 5\nprint('before')\ny / 0", "y")
    assert (first.status, first.error_type, first.stdout) == ("error", "ZeroDivisionError", "before\n")
    assert second.value == "5"


def test_a_traceback_starts_at_the_cell_and_stays_in_cells(kind: str) -> None:
    error = run(kind, "def f():\n    return ask('refuse')\n", "f()")[1].error
    assert error.startswith('Traceback (most recent call last):\n  File "<cell 2>", line 1')
    assert 'File "<cell 1>", line 2, in f' in error
    assert error.count("File ") == 2
    assert error.endswith("not today")


def test_a_long_traceback_is_shortened(kind: str) -> None:
    (result,) = run(kind, "def f(n):\n    return f(n + 1)\nf(0)")
    assert result.error_type == "RecursionError"
    assert len(result.error) < 2_000


def test_a_syntax_error_names_its_line(kind: str) -> None:
    (result,) = run(kind, "a = 1\nb = (")
    assert result.error_type == "SyntaxError"
    assert "line 2" in result.error


def test_calls_reach_the_host_and_values_come_back(kind: str) -> None:
    host = FakeHost()
    (result,) = run(kind, "ask('echo', a=[1, None, 'ü', {'b': 2.5}], c=True)", host=host)
    assert result.value == "{'a': [1, None, 'ü', {'b': 2.5}], 'c': True}"
    assert host.asked == [("echo", {"a": [1, None, "ü", {"b": 2.5}], "c": True})]


def test_a_refused_call_can_be_caught(kind: str) -> None:
    (result,) = run(kind, "try:\n    ask('refuse')\nexcept Exception as e:\n    print('caught', e)")
    assert (result.status, result.stdout) == ("ok", "caught not today\n")


def test_arguments_must_be_json(kind: str) -> None:
    host = FakeHost()
    (result,) = run(kind, "ask('echo', a={1, 2})", host=host)
    assert result.error_type == "TypeError"
    assert "JSON" in result.error
    assert not host.asked


def test_arguments_and_results_have_a_size(kind: str) -> None:
    host = FakeHost()
    first, second, third = run(
        kind,
        "ask('echo', a='x' * 5000)",
        "ask('big', size=5000)",
        "ask('big', size=3)",
        host=host,
        frame_bytes=4000,
    )
    assert first.status == second.status == "error"
    assert "4000" in first.error
    assert "4000" in second.error
    assert third.value == "'xxx'"
    assert [op for op, _ in host.asked] == ["big", "big"]


def test_calls_in_a_cell_are_counted(kind: str) -> None:
    host = FakeHost()
    first, second = run(kind, "for i in range(9):\n    ask('echo')", "ask('echo')", host=host, calls=4)
    assert first.status == "error"
    assert "More than 4 calls" in first.error
    assert second.status == "ok"
    assert len(host.asked) == 5


def test_output_value_and_error_are_cut_and_say_so(kind: str) -> None:
    printed, value, error = run(
        kind, "print('a' * 700)", "'b' * 700", "raise ValueError('c' * 700)", output_chars=300
    )
    assert printed.stdout.startswith("a" * 300 + "\n[output cut: ")
    assert value.value is not None
    assert "[value cut: " in value.value
    assert "[error cut: " in error.error
    assert [r.truncated for r in (printed, value, error)] == [True] * 3


def test_a_cell_that_computes_too_long_is_stopped_and_its_variables_are_lost(kind: str) -> None:
    first, second, third = run(
        kind,
        "x = 1",
        "while True:\n  try:\n    while True:\n      pass\n  except BaseException:\n    pass",
        "x",
        seconds=0.3,
    )
    assert first.status == "ok"
    assert (second.status, second.error_type) == ("timeout", "")
    assert "0.3 s" in second.error
    assert (third.status, third.error_type, third.restarted) == ("error", "NameError", True)
    assert "lost" in third.stdout.splitlines()[0]


def test_the_cell_clock_stands_still_while_the_host_works(kind: str) -> None:
    (result,) = run(kind, "ask('later', seconds=0.6)\n7", seconds=0.3)
    assert (result.status, result.value) == ("ok", "7")


def test_the_total_clock_does_not_stand_still(kind: str) -> None:
    first, second = run(kind, "ask('never')", "8", total_seconds=0.5)
    assert first.status == "timeout"
    assert "0.5 s" in first.error
    assert (second.value, second.restarted) == ("8", True)


def test_too_much_memory_ends_the_cell_and_not_the_sandbox(kind: str) -> None:
    first, second, third = run(
        kind, "x = 'a' * 10**9", "l = []\nwhile True:\n    l.append('x' * 10**6)", "l = None\n5"
    )
    assert first.error_type == "MemoryError"
    assert second.status in ("error", "died")
    assert third.value == "5"


def test_exit_ends_only_the_cell(kind: str) -> None:
    _, second, third = run(kind, "x = 3", "exit()", "x")
    assert (second.status, second.error_type) == ("error", "SystemExit")
    assert (third.value, third.restarted) == ("3", False)


def test_sys_exit_ends_only_the_cell(kind: str) -> None:
    second, third = run(kind, "import sys\nx = 3\nsys.exit(7)", "x")
    assert (second.status, second.error_type) == ("error", "SystemExit")
    assert third.value == "3"


def test_input_says_that_nobody_types(kind: str) -> None:
    (result,) = run(kind, "input('name? ')")
    assert result.error_type == "EOFError"
    assert "nobody types" in result.error


def test_top_level_await(kind: str) -> None:
    code = "import asyncio\nasync def f(x):\n    return x + 1\nawait asyncio.gather(f(1), f(2))"
    assert run(kind, code)[0].value == "[2, 3]"


def test_a_task_awaited_in_the_last_expression(kind: str) -> None:
    code = "import asyncio\nasync def f():\n    return 4\nt = asyncio.create_task(f())\nawait t"
    assert run(kind, code)[0].value == "4"


def test_equal_cells_give_equal_output_in_another_sandbox(kind: str) -> None:
    code = "import random\nprint(random.random(), {'a', 'b', 'c', 'd', 'e'})\nprint(str(f))\nf"
    cells = ("def f():\n    pass", code)
    first, second = run(kind, *cells, seed=5)[1], run(kind, *cells, seed=5)[1]
    assert first == second
    assert first.status == "ok"
    assert run(kind, *cells, seed=6)[1] != first


def test_text_that_is_no_unicode_is_made_so(kind: str) -> None:
    (result,) = run(kind, "print('\\ud800 \\x00 ok')\n'\\udfff'")
    result.stdout.encode()
    (result.value or "").encode()
    assert result.status == "ok"


def test_source_that_is_no_python_is_an_error(kind: str) -> None:
    for code in ("\x00", "(" * 5_000, "é = ", "x = '\ud800'", ""):
        result, after = run(kind, code, "1 + 1")
        assert result.status in ("ok", "error", "died"), code[:10]
        assert after.value == "2"


def test_the_environment_is_not_there(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "hunter2")
    (result,) = run(kind, "import os\nprint(dict(os.environ))")
    assert "hunter2" not in result.stdout
    assert "HOST_SECRET" not in result.stdout


def test_files_cannot_be_read(kind: str) -> None:
    if kind == "local":
        pytest.skip("local has no walls")
    (result,) = run(kind, "open('/etc/passwd').read()")
    assert result.error_type == "PermissionError"


def test_a_cancelled_cell_leaves_a_usable_sandbox(kind: str) -> None:
    async def work(sandbox: Sandbox, host: FakeHost) -> None:
        cell = asyncio.ensure_future(sandbox.run("x = 1\nask('never')"))
        await host.reached.wait()
        cell.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cell
        after = await sandbox.run("5")
        assert (after.value, after.restarted) == ("5", True)

    with_sandbox(kind, work, total_seconds=0.8)


def test_a_bug_of_the_host_is_raised_and_the_sandbox_goes_on(kind: str) -> None:
    async def work(sandbox: Sandbox, host: FakeHost) -> None:
        with pytest.raises(LookupError, match="a bug of the host"):
            await sandbox.run("ask('bug')")
        assert (await sandbox.run("5")).value == "5"

    with_sandbox(kind, work)


def test_one_cell_at_a_time(kind: str) -> None:
    async def work(sandbox: Sandbox, host: FakeHost) -> None:
        first = asyncio.ensure_future(sandbox.run("ask('never')"))
        await host.reached.wait()
        with pytest.raises(SandboxError, match="still running"):
            await sandbox.run("1")
        assert (await first).status == "timeout"

    with_sandbox(kind, work, total_seconds=0.5)


def test_a_closed_sandbox_says_so(kind: str) -> None:
    async def work(sandbox: Sandbox, host: FakeHost) -> None:
        await sandbox.close()
        await sandbox.close()
        with pytest.raises(SandboxError, match="closed"):
            await sandbox.run("1")

    with_sandbox(kind, work)


def test_a_sandbox_can_be_closed_while_a_cell_runs(kind: str) -> None:
    async def work(sandbox: Sandbox, host: FakeHost) -> None:
        cell = asyncio.ensure_future(sandbox.run("ask('echo')\nwhile True: pass"))
        await host.reached.wait()
        await sandbox.close()
        assert (await cell).status != "ok"

    with_sandbox(kind, work, seconds=1)


def test_a_prelude_that_fails_is_said_at_the_start(kind: str) -> None:
    with pytest.raises(SandboxError, match="division"):
        asyncio.run(open_sandbox(kind, call=FakeHost(), prelude="1 / 0"))


def test_sandboxes_do_not_see_each_other(kind: str) -> None:
    async def main() -> None:
        first, second = await start(kind, FakeHost()), await start(kind, FakeHost())
        await first.run("import json\njson.mine = 1\nx = 1")
        assert (await second.run("x")).error_type == "NameError"
        assert (await second.run("import json\nhasattr(json, 'mine')")).value == "False"
        await first.close()
        await second.close()

    asyncio.run(main())


def test_limits_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"CellLimits.seconds is 0"):
        CellLimits(seconds=0)
