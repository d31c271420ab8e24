"""A pool starts servers in turn, keeps a bad one from harming others, and ends its leases."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atlas_gym.errors import StartError, WireError
from atlas_gym.runtime.breaker import Policy
from atlas_gym.runtime.gate import Refused
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.lease import Lease
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.manifest import Limits
from atlas_gym.runtime.memory import MemoryLink, MemoryRuntime, MemoryStream
from atlas_gym.runtime.owner import start_time
from atlas_gym.runtime.pool import Pool
from atlas_gym.runtime.pressure import MIB, Machine
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace

Install = Callable[..., Installation]
pytestmark = pytest.mark.asyncio


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Gauge:
    """A machine whose servers hold what the test says."""

    def __init__(self, limit: int = 100_000, each: int = 100) -> None:
        self.limit = limit * MIB
        self.free = limit * MIB
        self.each = each * MIB
        self.looked = asyncio.Event()

    def machine(self) -> Machine:
        return Machine(self.limit, self.free)

    def trees(self, roots: Mapping[str, int]) -> dict[str, int]:
        return dict.fromkeys(roots, self.each)


async def echo(stream: MemoryStream) -> None:
    while data := await stream.receive():
        await stream.send(data)


async def silent(stream: MemoryStream) -> None:
    while await stream.receive():
        pass


async def dies(stream: MemoryStream) -> None:
    await stream.receive()
    raise ImportError("no module named cheese")


async def leaves(stream: MemoryStream) -> None:
    """Greets, answers once more, and crashes."""
    for _ in range(3):
        await stream.send(await stream.receive())
    raise ValueError("out of cheese")


class Slow:
    """A server whose first words come when the test lets them."""

    def __init__(self) -> None:
        self.started = 0
        self.go = asyncio.Event()
        self.arrived = asyncio.Event()

    async def __call__(self, stream: MemoryStream) -> None:
        self.started += 1
        self.arrived.set()
        await self.go.wait()
        await echo(stream)


class Fickle:
    """A server that is what the test says it is now."""

    def __init__(self, now: Callable[[MemoryStream], Awaitable[None]]) -> None:
        self.now = now

    async def __call__(self, stream: MemoryStream) -> None:
        await self.now(stream)


async def greet(link: Link) -> None:
    """What a handshake looks like from outside."""
    await link.send(b"hello")
    assert await link.receive()
    await link.send(b"go on")


async def settle() -> None:
    """Let everything happen that can happen without anybody's doing."""
    for _ in range(50):
        await asyncio.sleep(0)


class House:
    """A pool, and workspaces that end with the test."""

    def __init__(self, install: Install) -> None:
        self.install = install
        self.pools: list[Pool] = []
        self.workspaces: list[Workspace] = []

    def pool(self, servers: Mapping[str, Any], **how: Any) -> Pool:
        self.pools.append(Pool(MemoryRuntime(servers), **how))
        return self.pools[-1]

    def workspace(self) -> Workspace:
        self.workspaces.append(Workspace.create())
        return self.workspaces[-1]

    def start(
        self, pool: Pool, name: str, workspace: Workspace | None = None, **limits: float
    ) -> asyncio.Task[Lease]:
        installation = self.install(["x"], name=name, limits=Limits(**limits))  # type: ignore[arg-type]
        return asyncio.create_task(pool.start(installation, workspace or self.workspace()))

    def prepare(self, pool: Pool, name: str, workspace: Workspace | None = None) -> asyncio.Task[Link]:
        started = pool.background.start(self.install(["x"], name=name), workspace or self.workspace())
        return asyncio.ensure_future(started)

    async def fail(self, pool: Pool, name: str, workspace: Workspace | None = None) -> None:
        lease = await self.start(pool, name, workspace)
        await lease.send(b"hello")
        assert await lease.receive() == b""
        await lease.aclose()


@pytest_asyncio.fixture
async def house(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    made = House(install)
    yield made
    for pool in made.pools:
        await pool.aclose()
        assert pool.episodes() == ()
        assert pool.snapshot()["leases"] == pool.snapshot()["idle"] == 0
    for workspace in made.workspaces:
        workspace.close()


def server(pool: Pool, name: str) -> Any:
    return pool.snapshot()["servers"][name]


async def test_a_lease_is_the_link_and_is_counted(house: House) -> None:
    clock = Clock()
    pool = house.pool({"good": echo}, clock=clock)
    workspace = house.workspace()
    lease = await house.start(pool, "good", workspace)
    clock.now += 2.0
    await greet(lease)
    assert (pool.name, lease.name, lease.walls, lease.how, lease.own_paths) == (
        *("memory", "good", "memory", "memory"),
        False,
    )
    assert (lease.exit_status, lease.stderr_tail(), lease.command) == (None, "", lease.link.command)
    assert pool.episodes() == (workspace.root.name,)
    counted = server(pool, "good")
    assert counted["starts"] == {"memory": 1}
    assert counted["start_seconds"] == {"count": 1, "p50": 2.0, "p95": 2.0, "max": 2.0}
    assert (counted["live"], counted["peak"], counted["failures"], counted["crashes"]) == (1, 1, 0, 0)
    await lease.aclose()
    await lease.aclose()
    counted = server(pool, "good")
    assert (counted["live"], counted["peak"], counted["failures"], counted["crashes"]) == (0, 1, 0, 0)
    assert pool.episodes() == ()


async def test_the_end_of_an_episode_ends_its_leases_and_its_starts(house: House) -> None:
    slow = Slow()
    pool = house.pool({"good": echo, "slow": slow}, starting=1)
    mine, other = house.workspace(), house.workspace()
    kept = await house.start(pool, "good", other)
    await greet(kept)
    forgotten = await house.start(pool, "good", mine)
    await greet(forgotten)
    holds = await house.start(pool, "slow", other)
    waits = house.start(pool, "good", mine)
    await settle()
    assert not waits.done()
    await pool.end(mine.root.name)
    with pytest.raises(Refused, match="ended before its server 'good' had started"):
        await waits
    assert forgotten.exit_status == -15
    assert (kept.exit_status, holds.exit_status) == (None, None)
    assert pool.episodes() == (other.root.name,)
    await pool.end(mine.root.name)
    await pool.end("ep-never-was")


async def test_starts_are_bounded_and_go_in_order(house: House) -> None:
    slow = Slow()
    pool = house.pool({"good": echo, "slow": slow}, starting=2)
    await greet(await house.start(pool, "good"))
    await greet_all(slow, pool, house)


async def greet_all(slow: Slow, pool: Pool, house: House) -> None:
    tasks = [house.start(pool, "slow") for _ in range(5)]
    await settle()
    assert slow.started == 1  # unknown: half of the places
    assert server(pool, "slow")["waiting"] == 4
    slow.go.set()
    order: list[int] = []
    for index, task in enumerate(tasks):
        lease = await task
        order += [i for i, t in enumerate(tasks) if t.done() and i not in order]
        assert order[: index + 1] == list(range(index + 1))
        await greet(lease)
    assert server(pool, "slow")["peak"] == 5


@pytest.mark.parametrize(("starting", "let_in"), [(2, [0]), (3, [0, 2])])
async def test_a_silent_server_does_not_keep_those_that_work_from_starting(
    house: House, starting: int, let_in: list[int]
) -> None:
    pool = house.pool({"good": echo, "silent": silent, "mute": silent}, starting=starting)
    await greet(await house.start(pool, "good"))
    stuck = [house.start(pool, name) for name in ("silent", "silent", "mute", "mute", "silent")]
    await settle()
    assert [index for index, task in enumerate(stuck) if task.done()] == let_in
    for _ in range(3):
        await greet(await house.start(pool, "good"))
    for task in stuck:
        task.cancel()
    await asyncio.wait(stuck)


async def test_a_place_is_held_from_the_start_to_the_first_words(house: House) -> None:
    slow = Slow()
    pool = house.pool({"good": echo, "slow": slow}, starting=1)
    first = await house.start(pool, "slow")
    second = house.start(pool, "good")
    await settle()
    assert not second.done()
    slow.go.set()
    await first.send(b"hello")
    assert await first.receive() == b"hello"
    await greet(await second)


async def test_waiting_does_not_count_as_starting(house: House) -> None:
    clock = Clock()
    slow = Slow()
    pool = house.pool({"good": echo, "slow": slow}, starting=1, clock=clock)
    await house.start(pool, "slow", start_seconds=500.0)
    second = house.start(pool, "good", start_seconds=10.0)
    await settle()
    clock.now += 100.0
    slow.go.set()
    await pool.end(pool.episodes()[0])
    lease = await second
    assert lease.began == 1100.0
    await lease.aclose()  # its client went away before its time was over: nothing is known about it
    assert (server(pool, "good")["failures"], server(pool, "good")["wait_seconds"]["max"]) == (0, 100.0)


async def test_preparations_only_get_what_episodes_leave(house: House) -> None:
    slow = Slow()
    slow.go.set()
    pool = house.pool({"slow": slow, "good": echo}, starting=2)
    await greet(await house.start(pool, "good"))
    await greet(await house.start(pool, "slow"))
    slow.go.clear()
    first = await house.start(pool, "slow")
    prepared = [house.prepare(pool, "slow"), house.prepare(pool, "good")]
    await settle()
    assert [task.done() for task in prepared] == [True, False]
    second = await house.start(pool, "slow")  # takes the last place of an episode, whatever is prepared
    third = house.start(pool, "good")
    await settle()
    assert [third.done(), prepared[1].done()] == [False, False]
    slow.go.set()
    await greet(first)
    await greet(second)
    await greet(await third)
    await greet(await prepared[1])
    assert (pool.snapshot()["leases"], pool.snapshot()["idle"]) == (5, 2)


async def test_what_was_prepared_can_be_adopted(house: House) -> None:
    pool = house.pool({"good": echo})
    workspace = house.workspace()
    await greet(await house.prepare(pool, "good", workspace))
    assert pool.episodes() == ()
    pool.adopt(workspace.root.name)
    pool.adopt("ep-never-was")
    assert pool.episodes() == (workspace.root.name,)
    assert server(pool, "good")["starts"] == {"memory": 1, "spare": 1}
    assert (pool.snapshot()["leases"], pool.snapshot()["idle"]) == (1, 0)


async def test_the_breaker_refuses_at_once_with_the_last_reason(house: House) -> None:
    clock = Clock()
    pool = house.pool({"bad": dies, "good": echo}, breaker=Policy(failures=2, pause=5.0), clock=clock)
    await house.fail(pool, "bad")
    await house.fail(pool, "bad")
    clock.now += 1.5
    with pytest.raises(Refused, match=r"'bad' is not started: 2 starts in a row failed.* in 3\.5 s.*cheese"):
        await house.start(pool, "bad")
    assert server(pool, "bad")["breaker"] == "open"
    assert (server(pool, "bad")["failures"], server(pool, "bad")["refused"]) == (2, 1)
    await greet(await house.start(pool, "good"))


async def test_half_open_lets_one_try_and_the_others_wait_for_it(house: House) -> None:
    clock = Clock()
    slow = Slow()
    fickle = Fickle(dies)
    pool = house.pool({"bad": fickle}, breaker=Policy(failures=1, pause=5.0), clock=clock)
    await house.fail(pool, "bad")
    clock.now += 5.0
    fickle.now = slow
    trial = await house.start(pool, "bad")
    others = [house.start(pool, "bad") for _ in range(3)]
    await settle()
    assert (slow.started, server(pool, "bad")["breaker"]) == (1, "half-open")
    slow.go.set()
    await greet(trial)
    for other in others:
        await greet(await other)
    assert server(pool, "bad")["breaker"] == "closed"


async def test_a_failed_trial_refuses_those_who_waited(house: House) -> None:
    clock = Clock()
    pool = house.pool({"bad": dies}, breaker=Policy(failures=1, pause=5.0), clock=clock)
    await house.fail(pool, "bad")
    clock.now += 5.0
    trial = await house.start(pool, "bad")
    other = house.start(pool, "bad")
    await settle()
    assert not other.done()
    await trial.send(b"hello")
    assert await trial.receive() == b""
    with pytest.raises(Refused, match=r"allowed in 10\.0 s"):
        await other


async def test_an_abandoned_trial_is_the_next_ones(house: House) -> None:
    clock = Clock()
    fickle = Fickle(dies)
    pool = house.pool({"bad": fickle}, breaker=Policy(failures=1, pause=5.0), clock=clock)
    await house.fail(pool, "bad")
    clock.now += 5.0
    fickle.now = silent
    trial = await house.start(pool, "bad")
    next_one = house.start(pool, "bad")
    await settle()
    assert not next_one.done()
    await trial.aclose()
    await next_one
    assert server(pool, "bad")["failures"] == 1


async def test_a_server_that_does_not_answer_in_time_has_failed(house: House) -> None:
    clock = Clock()
    pool = house.pool({"mute": silent}, breaker=Policy(failures=1), clock=clock)
    lease = await house.start(pool, "mute", start_seconds=7.0)
    clock.now += 7.0
    await lease.aclose()
    assert (server(pool, "mute")["timeouts"], server(pool, "mute")["failures"]) == (1, 1)
    with pytest.raises(Refused, match="it did not answer within 7 s"):
        await house.start(pool, "mute")


async def test_a_refused_handshake_is_a_failed_start(house: House) -> None:
    pool = house.pool({"good": echo}, breaker=Policy(failures=1))
    lease = await house.start(pool, "good")
    await lease.send(b"hello")
    await lease.receive()
    await lease.aclose()
    with pytest.raises(Refused, match="the handshake was refused"):
        await house.start(pool, "good")


async def test_a_banner_is_no_answer(house: House) -> None:
    async def banner(stream: MemoryStream) -> None:
        await stream.send(b"Welcome to the server!")
        await silent(stream)

    clock = Clock()
    pool = house.pool({"loud": banner}, breaker=Policy(failures=1), clock=clock)
    for sent_first in (False, True):
        lease = await house.start(pool, "loud", start_seconds=7.0)
        if sent_first:
            await lease.send(b"hello")
            await lease.receive()
        else:
            await lease.receive()
            await lease.send(b"hello")
        clock.now += 7.0
        await lease.aclose()
        with pytest.raises(Refused, match="it did not answer within 7 s"):
            await house.start(pool, "loud")
        clock.now += 5.0


async def test_a_runtime_that_cannot_start_it_has_failed_too(house: House) -> None:
    pool = house.pool({}, breaker=Policy(failures=1))
    with pytest.raises(StartError, match="in-process server 'nobody'") as failed:
        await house.start(pool, "nobody")
    assert not isinstance(failed.value, Refused)
    with pytest.raises(Refused, match="in-process server 'nobody'"):
        await house.start(pool, "nobody")
    assert (server(pool, "nobody")["live"], pool.episodes()) == (0, ())


async def test_a_crash_in_an_episode_is_counted_and_opens_nothing(house: House) -> None:
    pool = house.pool({"weak": leaves}, breaker=Policy(failures=1))
    for _ in range(3):
        lease = await house.start(pool, "weak")
        await greet(lease)
        while await lease.receive():
            await lease.send(b"more")
        await lease.aclose()
    counted = server(pool, "weak")
    assert (counted["crashes"], counted["failures"], counted["breaker"]) == (3, 0, "closed")


async def test_an_agent_cannot_close_a_server_to_the_others(house: House) -> None:
    tool = Fickle(echo)
    pool = house.pool({"tool": tool, "shell": echo}, breaker=Policy(failures=1))
    for spoilt in ("tool", "shell"):
        workspace = house.workspace()
        await greet(await house.start(pool, "tool"))
        await greet(await house.start(pool, spoilt, workspace))
        tool.now = dies
        await house.fail(pool, "tool", workspace)
        await house.fail(pool, "tool", workspace)
        assert server(pool, "tool")["breaker"] == "closed"
        tool.now = echo
    tool.now = dies
    await house.fail(pool, "tool")
    assert server(pool, "tool")["breaker"] == "open"


async def test_memory_short_gives_up_spares_first(house: House) -> None:
    gauge = Gauge(each=100)
    pool = house.pool({"good": echo}, gauge=gauge, memory_mb=250, memory_seconds=0.0)
    spare = await house.prepare(pool, "good")
    await greet(spare)
    await greet(await house.start(pool, "good"))
    shed = []

    async def give_up() -> None:
        shed.append(True)
        await spare.aclose()

    pool.on_pressure(give_up)
    await pool._look()
    await greet(await house.start(pool, "good"))
    assert shed == [True]
    await pool._look()
    assert (server(pool, "good")["resident"], server(pool, "good")["largest"]) == (200 * MIB, 100 * MIB)


async def test_memory_short_waits_for_a_lease_to_end(house: House) -> None:
    pool = house.pool({"good": echo}, gauge=Gauge(each=100), memory_mb=250, memory_seconds=1e9)
    leases = [await house.start(pool, "good") for _ in range(2)]
    for lease in leases:
        await greet(lease)
    await pool._look()
    waits = [house.start(pool, "good") for _ in range(2)]
    await settle()
    assert [task.done() for task in waits] == [False, False]
    await leases[0].aclose()
    await greet(await waits[0])
    await settle()
    assert not waits[1].done()
    await pool.end(pool.episodes()[0])
    await greet(await waits[1])


async def test_memory_short_too_long_says_what_holds_it(house: House) -> None:
    pool = house.pool(
        {"good": echo, "big": echo}, gauge=Gauge(each=100), memory_mb=250, memory_seconds=0.0, starting=4
    )
    for name in ("good", "big"):
        await greet(await house.start(pool, name))
    await pool._look()
    waits = [house.start(pool, "good") for _ in range(3)]
    for task in waits:
        with pytest.raises(
            Refused, match=r"hold 200 of at most 250 MiB, held by 1 x '\w+' 100 MiB, 1 x .* \(2 episodes"
        ):
            await task
    assert (server(pool, "good")["breaker"], server(pool, "good")["refused"]) == ("closed", 3)
    with pytest.raises(Refused, match="was not prepared"):
        await house.prepare(pool, "good")


async def test_the_machines_own_memory_counts_and_what_is_on_its_way(house: House) -> None:
    gauge = Gauge(limit=1000, each=100)
    pool = house.pool({"good": echo}, gauge=gauge, memory_seconds=0.0, starting=8)
    gauge.free = 200 * MIB  # 50 stay free, and 64 are expected of a server that nobody has seen
    first, second, third = (house.start(pool, "good") for _ in range(3))
    with pytest.raises(Refused, match=r"machine has 200 of 1000 MiB left, and 50 MiB stay free"):
        await third
    await asyncio.gather(first, second)


async def test_the_first_server_starts_however_small_the_ceiling(house: House) -> None:
    pool = house.pool({"good": echo}, gauge=Gauge(), memory_mb=1, memory_seconds=0.0)
    await greet(await house.start(pool, "good"))
    with pytest.raises(Refused, match="hold"):
        await house.start(pool, "good")


async def test_a_cancelled_start_gives_its_place_back(house: House) -> None:
    slow = Slow()
    pool = house.pool({"slow": slow, "good": echo}, starting=1)
    await house.start(pool, "slow")
    waits = house.start(pool, "good")
    await settle()
    waits.cancel()
    await asyncio.wait([waits])
    assert server(pool, "good")["waiting"] == 0
    await pool.end(pool.episodes()[0])
    await greet(await house.start(pool, "good"))


async def test_a_start_that_is_cancelled_as_it_succeeds_leaves_no_server(house: House) -> None:
    made: list[Link] = []
    go = asyncio.Event()

    class Late(MemoryRuntime):
        async def start(self, installation: Installation, workspace: Workspace) -> MemoryLink:
            await go.wait()
            made.append(link := await super().start(installation, workspace))
            return link

    pool = Pool(Late({"good": echo}))
    house.pools.append(pool)
    starting = house.start(pool, "good")
    await settle()
    go.set()
    await asyncio.sleep(0)
    assert (len(made), starting.done()) == (1, False)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert made[0].exit_status == -15
    assert pool.episodes() == ()


async def test_a_bad_server_on_trial_delays_no_preparation(house: House) -> None:
    clock = Clock()
    pool = house.pool({"bad": dies, "good": echo}, breaker=Policy(failures=1, pause=5.0), clock=clock)
    await house.fail(pool, "bad")
    clock.now += 5.0
    await house.start(pool, "bad")
    waits = house.start(pool, "bad")
    await settle()
    assert not waits.done()
    await greet(await house.prepare(pool, "good"))
    waits.cancel()
    await asyncio.wait([waits])


async def test_close_ends_all_and_starts_may_follow(house: House) -> None:
    pool = house.pool({"good": echo, "mute": silent}, starting=1)
    lease = await house.start(pool, "good")
    await greet(lease)
    await house.start(pool, "mute")
    waits = house.start(pool, "good")
    await settle()
    await pool.aclose()
    with pytest.raises(Refused):
        await waits
    assert lease.exit_status == -15
    await greet(await house.start(pool, "good"))


async def test_a_forked_child_finds_an_empty_pool(house: House) -> None:
    pool = house.pool({"good": echo})
    lease = await house.start(pool, "good")
    await greet(lease)
    assert await lease.receive() == b"go on"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            asyncio.set_event_loop(None)
            asyncio._set_running_loop(None)

            async def look() -> bool:
                await lease.aclose()
                return pool.episodes() == () and pool.snapshot()["servers"] == {}

            status = 0 if asyncio.new_event_loop().run_until_complete(look()) else 2
        finally:
            os._exit(status)
    assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
    assert lease.exit_status is None
    await lease.send(b"still there")
    assert await lease.receive() == b"still there"


@pytest.mark.parametrize("seed", range(12))
async def test_nothing_is_lost_whatever_happens(house: House, seed: int) -> None:
    chance = random.Random(seed)
    clock = Clock()
    slow = Slow()
    servers = {"good": echo, "bad": dies, "mute": silent, "slow": slow, "weak": leaves}
    width = chance.randint(1, 4)
    pool = house.pool(
        servers,
        starting=width,
        breaker=Policy(failures=2),
        clock=clock,
        gauge=Gauge(each=10),
        memory_mb=400,
        memory_seconds=0.0,
    )
    workspaces = [house.workspace() for _ in range(6)]
    tasks: list[asyncio.Future[Any]] = []

    async def use(starting: asyncio.Future[Any], patience: int) -> None:
        try:
            lease = await starting
        except StartError:
            return
        talking = asyncio.ensure_future(talk(lease))
        await asyncio.wait([talking], timeout=0)
        for _ in range(patience):
            await asyncio.sleep(0)
        await lease.aclose()
        await asyncio.wait([talking])

    async def talk(lease: Link) -> None:
        with contextlib.suppress(WireError, AssertionError):
            await greet(lease)
            while await lease.receive():
                await lease.send(b"more")

    for _ in range(120):
        name, workspace = chance.choice(sorted(servers)), chance.choice(workspaces)
        match chance.randrange(8):
            case 0 | 1 | 2:
                starting: asyncio.Future[Any] = house.start(pool, name, workspace)
                tasks.append(asyncio.ensure_future(use(starting, chance.randrange(40))))
            case 3:
                starting = asyncio.ensure_future(house.prepare(pool, name))
                tasks.append(asyncio.ensure_future(use(starting, chance.randrange(40))))
            case 4 if tasks:
                chance.choice(tasks).cancel()
            case 5:
                await pool.end(workspace.root.name)
            case 6:
                clock.now += chance.choice([0.1, 4.0, 70.0])
            case _:
                (slow.go.clear if slow.go.is_set() else slow.go.set)()
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        inside = pool._room().gate.inside
        assert sum(not ticket.background for ticket in inside) <= width
        assert len(inside) <= 2 * width
    slow.go.set()
    for workspace in workspaces:
        await pool.end(workspace.root.name)
    await asyncio.wait(tasks)
    await pool.aclose()
    for counted in pool.snapshot()["servers"].values():
        assert (counted["live"], counted["waiting"]) == (0, 0)
    for name in ("good", "slow"):
        clock.now += 1000.0
        lease = await house.start(pool, name)
        await greet(lease)
        await lease.aclose()


async def test_processes_are_weighed_and_end_with_the_episode(house: House, python: Install) -> None:
    pool = Pool(ProcessRuntime(prefork=False))
    house.pools.append(pool)
    code = "import sys; x = b'x' * (40 << 20); print(sys.stdin.readline(), flush=True); sys.stdin.read()"
    workspace = house.workspace()
    lease = await pool.start(python(code), workspace)
    await lease.send(b"hello\n")
    assert await lease.receive()
    await lease.send(b"go on\n")
    await pool._look()
    counted = server(pool, "probe")
    assert counted["starts"] == {"spawn": 1}
    assert 40 * MIB < counted["resident"] < 120 * MIB
    assert pool.snapshot()["memory"] == counted["resident"]
    await pool.end(workspace.root.name)
    assert start_time(lease.pid) == 0
    await pool._look()
    assert (server(pool, "probe")["resident"], server(pool, "probe")["largest"]) == (0, counted["resident"])


async def test_a_process_that_dies_at_once_is_told_with_its_last_words(house: House, python: Install) -> None:
    pool = Pool(ProcessRuntime(prefork=False), breaker=Policy(failures=1))
    house.pools.append(pool)
    lease = await pool.start(python("import sys; sys.exit('no module named cheese')"), house.workspace())
    assert await lease.receive() == b""
    await lease.aclose()
    with pytest.raises(Refused, match=r"exit status 1.*no module named cheese"):
        await pool.start(python("pass"), house.workspace())
