"""The portal: from plain code onto the loop and back, whatever happens to the process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
from multiprocessing.connection import Connection
from typing import Any

import pytest

from atlas_gym.wire.loop import Portal, portal


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def answer_over(pipe: Connection) -> None:
    pipe.send((portal().run(double(21), timeout=10), portal().pid == os.getpid()))


def script(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_run_gives_results_and_exceptions() -> None:
    assert portal().run(double(2)) == 4
    with pytest.raises(ZeroDivisionError):
        portal().run(divide())
    assert portal() is portal()


async def divide() -> float:
    return 1 / 0


def test_submit_does_not_wait_and_many_threads_may_use_it() -> None:
    futures = [portal().submit(double(i)) for i in range(50)]
    assert [f.result(10) for f in futures] == [2 * i for i in range(50)]
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(portal().run(double(1)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2] * 8


def test_a_timeout_cancels_the_coroutine_and_waits_for_its_end() -> None:
    ended = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with pytest.raises(TimeoutError):
        portal().run(forever(), timeout=0.01)
    assert ended == [True]


def test_cancelling_a_submitted_future_cancels_its_coroutine() -> None:
    ended = threading.Event()
    started = threading.Event()

    async def forever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    future = portal().submit(forever())
    assert started.wait(10)
    assert future.cancel()
    assert ended.wait(10)


def test_a_coroutine_that_cancels_itself_says_so() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(concurrent.futures.CancelledError):
        portal().run(cancelled())


def test_a_coroutine_that_is_given_up_before_its_first_step_is_closed() -> None:
    own = Portal()
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        leave.wait(10)

    own.loop.call_soon_threadsafe(hold)
    assert entered.wait(10)
    release = threading.Timer(0.05, leave.set)  # whenever it comes, the outcome is the same
    release.start()
    coro = double(1)
    with pytest.raises(TimeoutError):
        own.run(coro, timeout=0)
    release.join()
    assert inspect.getcoroutinestate(coro) == inspect.CORO_CLOSED
    assert own.run(double(2)) == 4
    own.close()


def test_running_from_the_loops_own_thread_is_an_error_that_says_so() -> None:
    async def nested() -> None:
        portal().run(double(1))

    with pytest.raises(RuntimeError, match="await"):
        portal().run(nested())


def test_a_closed_portal_says_so_and_the_next_one_works() -> None:
    old = Portal()
    old.close()
    old.close()
    with pytest.raises(RuntimeError, match="portal"):
        old.run(double(1))


# Python 3.12 and later warn of every fork beside a thread; that it works here is what the tests show.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_process_gets_its_own_and_the_parents_lives_on(method: str) -> None:
    assert portal().run(double(1)) == 2
    context: Any = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=answer_over, args=(theirs,))
    child.start()
    assert ours.poll(60)
    assert ours.recv() == (42, True)
    child.join(60)
    assert child.exitcode == 0
    assert portal().run(double(2)) == 4
    ours.close()
    theirs.close()


def test_a_fork_from_a_busy_process_neither_hangs_nor_disturbs_the_parent() -> None:
    done = script(
        """
        import asyncio, gc, os, warnings
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        from atlas_gym.wire.loop import portal
        async def tick(): await asyncio.sleep(0.001); return 7
        futures = [portal().submit(tick()) for _ in range(20)]
        pid = os.fork()
        if pid == 0:
            gc.collect()
            assert portal().run(tick(), timeout=20) == 7
            portal().close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert [f.result(20) for f in futures] == [7] * 20
        assert portal().run(tick(), timeout=20) == 7
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_interpreter_ends_cleanly_with_work_on_the_loop() -> None:
    done = script(
        """
        import asyncio
        from atlas_gym.wire.loop import portal
        async def forever():
            try: await asyncio.Event().wait()
            finally: print("ended", flush=True)
        tasks = []
        async def first(): tasks.append(asyncio.create_task(forever())); await asyncio.sleep(0)
        portal().run(first())
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_an_interrupt_cancels_the_coroutine_and_is_raised() -> None:
    done = script(
        """
        import asyncio, os, signal
        from atlas_gym.wire.loop import portal
        async def forever():
            asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
            try: await asyncio.Event().wait()
            finally: print("cancelled", flush=True)
        try: portal().run(forever())
        except KeyboardInterrupt: print("interrupted", flush=True)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "cancelled\ninterrupted\n", "")
