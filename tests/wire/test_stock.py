"""Spares: each handed out once, for what it was prepared for, never more than the bound, none left behind."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from atlas_gym.errors import ConfigError, StartError, TaskError
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.memory import MemoryRuntime, MemoryStream
from atlas_gym.runtime.pool import Pool
from atlas_gym.runtime.pressure import MIB, Machine
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.wire.fake import demo
from atlas_gym.wire.session import Session
from atlas_gym.wire.stock import Key, Prepared, Stock, may_wait

SCRIPT = Path(__file__).with_name("misbehaving.py")
Bound = Literal["import", "start", "call"]


def manifest(name: str, bound: Bound = "call", **more: Any) -> Manifest:
    return Manifest(
        name=name,
        description="A server of a test.",
        registry="user",
        command=more.pop("command", ("x",)),
        state="memory",
        state_bound=bound,
        **more,
    )


MANIFESTS = {
    "call": manifest("call"),
    "other": manifest("other"),
    "start": manifest("start", "start"),
    "import": manifest("import", "import"),
    "never": manifest("never", respawn="it keeps the time of its start"),
    "broken": manifest("broken"),
}


async def crash(stream: MemoryStream) -> None:
    await stream.receive()
    raise RuntimeError("no cheese")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Each:
    """A machine on which every server holds the same."""

    def __init__(self, mib: int) -> None:
        self._size = mib * MIB

    def machine(self) -> Machine:
        return Machine()

    def trees(self, roots: Mapping[str, int]) -> dict[str, int]:
        return dict.fromkeys(roots, self._size)


@dataclass
class Shop:
    """A stock over a pool of in-process servers, and everything that was ever made for it."""

    bound: int = 4
    at_once: int = 2
    clock: Clock = field(default_factory=Clock)
    made: list[Workspace] = field(default_factory=list)
    opened: list[Session] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    hold: asyncio.Event | None = None
    """Where set: servers start when it is."""
    holding: int = 0
    both: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when two servers are held."""
    gauge: Each | None = None
    """Where set: what servers hold, of 250 MiB."""
    gate: threading.Event | None = None
    """Where set: workspaces are made when it is."""

    def __post_init__(self) -> None:
        good = demo().serve
        servers = {name: crash if name == "broken" else good for name in MANIFESTS}
        room = {} if self.gauge is None else {"gauge": self.gauge, "memory_mb": 250, "memory_seconds": 0.0}
        self.pool = Pool(MemoryRuntime(servers), **room)  # type: ignore[arg-type]
        self.stock = Stock(
            self.open,
            MANIFESTS.__getitem__,
            bound=self.bound,
            at_once=self.at_once,
            taken=self.taken,
            stats=self.pool.spares,
            clock=self.clock,
        )
        self.pool.on_pressure(self.stock.shed)

    def taken(self, name: str) -> None:
        self.adopted.append(name)
        self.pool.adopt(name)

    async def open(self, name: str, workspace: Workspace) -> Session:
        if self.hold is not None:
            self.holding += 1
            if self.holding == 2:
                self.both.set()
            await self.hold.wait()
        installation = Installation(Server(MANIFESTS[name], None), Path("/nonexistent"), ("x",), ())
        link = await self.pool.background.start(installation, workspace)
        session = await Session.open(link, name=name, seconds=20.0)
        self.opened.append(session)
        return session

    def make(self, setup: str = "") -> Callable[[], Workspace]:
        def make() -> Workspace:
            if self.gate is not None:
                self.gate.wait()
            workspace = Workspace.create("spare")
            if setup:
                (workspace.files / "setup").write_text(setup)
            self.made.append(workspace)
            return workspace

        return make

    def want(self, setup: str, servers: str, count: int = 1, *, refill: bool = False) -> frozenset[str]:
        return self.stock.want(Key(setup), servers.split(), count, self.make(setup), refill=refill)

    def take(self, setup: str, servers: str) -> Prepared | None:
        return self.stock.take(Key(setup), servers.split())

    @property
    def there(self) -> list[Workspace]:
        """Workspaces that are on disk."""
        return [workspace for workspace in self.made if workspace.root.exists()]

    @property
    def alive(self) -> list[Session]:
        return [session for session in self.opened if not session.over]


@pytest_asyncio.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    made = Shop()
    yield made
    await made.stock.close()
    await made.pool.aclose()
    for workspace in made.made:
        workspace.close()


@pytest.mark.parametrize(
    ("name", "empty", "laid_out"),
    [
        ("call", True, True),
        ("start", False, True),
        ("import", False, True),
        ("never", False, False),
    ],
)
def test_who_may_wait(name: str, empty: bool, laid_out: bool) -> None:
    assert may_wait(MANIFESTS[name], Key()) is empty
    assert may_wait(MANIFESTS[name], Key("a")) is laid_out


def test_a_server_that_runs_elsewhere_is_no_spare() -> None:
    there = manifest("there", command=(), url="https://mcp.example.com/mcp")
    assert not may_wait(there, Key("a"))


@pytest.mark.asyncio
async def test_a_spare_is_there_at_once_and_works(shop: Shop) -> None:
    assert shop.want("a", "call start never", 1) == {"call", "start"}
    await shop.stock.settled()
    assert shop.stock.stats.ready == {"a: call, start": 1}
    spare = shop.take("a", "call start never")
    assert spare is not None
    assert (spare.workspace.files / "setup").read_text() == "a"
    assert sorted(spare.sessions) == ["call", "start"]
    reply = await spare.sessions["start"].call("add", {"a": 2, "b": 3}, seconds=20.0)
    assert (reply.value, spare.sessions["start"].calls) == (5, 1)
    assert shop.adopted == [spare.workspace.root.name]
    assert shop.pool.snapshot()["servers"]["call"]["starts"] == {"memory": 1, "spare": 1}
    assert shop.take("a", "call start") is None
    assert (shop.stock.stats.hits, shop.stock.stats.misses, shop.stock.stats.ready) == (1, 1, {})
    await spare.close()
    assert (shop.there, shop.alive) == ([], [])


@pytest.mark.asyncio
async def test_what_is_taken_is_replaced_where_that_is_wanted(shop: Shop) -> None:
    shop.want("a", "start", 1, refill=True)
    seen = set()
    for _ in range(3):
        await shop.stock.settled()
        spare = shop.take("a", "start")
        assert spare is not None
        seen.add(spare.workspace.root)
        await spare.close()
    assert len(seen) == 3
    await shop.stock.settled()
    assert len(shop.there) == 1


@pytest.mark.asyncio
async def test_only_what_fits_is_handed_out(shop: Shop) -> None:
    shop.want("a", "start", 1)
    shop.want("", "call other", 1)
    await shop.stock.settled()
    assert shop.take("b", "start") is None
    assert shop.take("a", "call") is None  # no other server than those allowed
    both = shop.take("a", "start call other never")
    assert both is not None
    assert (both.key, sorted(both.sessions)) == (Key(), ["call", "other"])
    one = shop.take("a", "start call other never")
    assert one is not None
    assert (one.key, sorted(one.sessions)) == (Key("a"), ["start"])
    await both.close()
    await one.close()


@pytest.mark.asyncio
async def test_nothing_is_prepared_that_no_episode_may_have(shop: Shop) -> None:
    assert shop.want("", "start import never", 3) == frozenset()
    await shop.stock.settled()
    assert shop.made == []
    assert shop.want("a", "never", 1) == frozenset()
    await shop.stock.settled()
    spare = shop.take("a", "never")  # without a server, but laid out
    assert spare is not None
    assert spare.sessions == {}
    await spare.close()


@pytest.mark.asyncio
async def test_the_bound_gives_up_what_was_used_longest_ago(shop: Shop) -> None:
    shop.want("a", "start", 2)
    shop.want("b", "start", 1)
    await shop.stock.settled()
    shop.want("a", "start", 2)
    shop.want("c", "start", 2)
    await shop.stock.settled()
    assert shop.stock.stats.ready == {"a: start": 2, "c: start": 2}
    shop.want("d", "start", 9)
    await shop.stock.settled()
    assert shop.stock.stats.ready == {"d: start": 4}
    assert len(shop.there) == 4
    assert shop.stock.stats.dropped == 5


@pytest.mark.asyncio
async def test_wanting_none_gives_them_up(shop: Shop) -> None:
    shop.want("a", "start", 2, refill=True)
    await shop.stock.settled()
    shop.want("a", "start", 0)
    await shop.stock.settled()
    assert (shop.there, shop.alive, shop.stock.stats.ready) == ([], [], {})


@pytest.mark.asyncio
async def test_a_dead_spare_is_replaced(shop: Shop) -> None:
    shop.want("a", "start", 1)
    await shop.stock.settled()
    await shop.opened[0].close()
    assert shop.take("a", "start") is None
    await shop.stock.settled()
    spare = shop.take("a", "start")
    assert spare is not None
    assert spare.sessions["start"] is shop.opened[1]
    await spare.close()


@pytest.mark.asyncio
async def test_a_server_that_does_not_start_is_not_tried_in_a_loop(shop: Shop) -> None:
    shop.want("a", "broken call", 2)
    await shop.stock.settled()
    tried = shop.stock.stats.failures
    assert 1 <= tried <= shop.at_once
    for _ in range(3):
        assert shop.take("a", "broken call") is None
        shop.want("b", "broken", 1)
        await shop.stock.settled()
    assert shop.stock.stats.failures == tried
    shop.want("c", "call", 1)  # the others go on
    await shop.stock.settled()
    assert shop.stock.stats.ready == {"c: call": 1}
    shop.clock.now += 5.0
    assert shop.take("b", "broken") is None
    await shop.stock.settled()
    assert shop.stock.stats.failures == tried + 1
    assert len(shop.there) == 1


@pytest.mark.asyncio
async def test_a_workspace_that_cannot_be_made_is_given_up(shop: Shop) -> None:
    made = []

    def make() -> Workspace:
        made.append(True)
        raise TaskError("bad SQL")

    shop.stock.want(Key("a"), ["start"], 3, make)
    await shop.stock.settled()
    assert 1 <= len(made) <= shop.at_once
    assert shop.stock.take(Key("a"), ["start"]) is None
    await shop.stock.settled()
    assert shop.stock.stats.failures == len(made)


@pytest.mark.asyncio
async def test_few_are_prepared_at_the_same_time_and_taking_waits_for_none(shop: Shop) -> None:
    shop.hold = asyncio.Event()
    shop.want("a", "start", 4)
    await shop.both.wait()
    assert shop.take("a", "start") is None
    assert len(shop.made) == 2
    shop.hold.set()
    await shop.stock.settled()
    assert shop.stock.stats.ready == {"a: start": 4}


@pytest.mark.asyncio
async def test_what_is_given_up_while_it_is_prepared_counts_to_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    shop = Shop(bound=2, at_once=3, hold=asyncio.Event())
    assert shop.hold is not None
    shop.want("a", "start", 1)
    shop.want("b", "start", 2)
    await shop.both.wait()
    assert len(shop.made) == 2
    shop.hold.set()
    await shop.stock.settled()
    assert shop.stock.stats.ready == {"b: start": 2}
    assert (len(shop.made), len(shop.there)) == (3, 2)
    await shop.stock.close()
    await shop.pool.aclose()


@pytest.mark.asyncio
async def test_close_leaves_nothing_even_of_what_is_being_made(shop: Shop) -> None:
    shop.want("a", "start", 1)
    await shop.stock.settled()
    shop.gate = threading.Event()
    shop.want("b", "start", 1)
    await asyncio.sleep(0)
    closing = asyncio.create_task(shop.stock.close())
    await asyncio.sleep(0)
    shop.gate.set()
    await closing
    assert (shop.there, shop.alive, shop.stock.stats.ready) == ([], [], {})
    assert shop.pool.snapshot()["idle"] == 0
    shop.want("a", "start", 1)
    await shop.stock.settled()
    assert shop.take("a", "start") is not None


@pytest.mark.asyncio
async def test_close_while_servers_start(shop: Shop) -> None:
    shop.hold = asyncio.Event()
    shop.want("a", "start call", 2)
    await shop.both.wait()
    await shop.stock.close()
    assert (shop.there, shop.alive, shop.stock.stats.ready) == ([], [], {})


@pytest.mark.asyncio
async def test_giving_up_waits_for_nothing_that_is_wanted_meanwhile(shop: Shop) -> None:
    shop.gate = threading.Event()
    shop.want("a", "start", 1)
    await asyncio.sleep(0)
    shedding = asyncio.create_task(shop.stock.shed())
    await asyncio.sleep(0)
    shop.hold = asyncio.Event()
    shop.want("b", "start", 1)
    shop.gate.set()
    await shedding
    assert shop.take("b", "start") is None
    shop.hold.set()
    await shop.stock.settled()
    assert shop.stock.stats.ready == {"b: start": 1}


@pytest.mark.asyncio
async def test_spares_make_room_for_an_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    shop = Shop(gauge=Each(100))
    shop.want("a", "start", 2, refill=True)
    await shop.stock.settled()
    await shop.pool._look()
    assert shop.stock.stats.ready == {"a: start": 2}
    workspace = Workspace.create()
    links = []
    for name in ("call", "other"):
        installation = Installation(Server(MANIFESTS[name], None), Path("/nonexistent"), ("x",), ())
        links.append(await shop.pool.start(installation, workspace))
        await shop.stock.settled()
        assert (shop.there, shop.stock.stats.ready, shop.stock.stats.dropped) == ([], {}, 2)
        await shop.pool._look()
    shop.want("a", "start", 2)  # as long as there is no room, nothing is prepared, and not tried in a loop
    await shop.stock.settled()
    assert (shop.there, shop.stock.stats.ready) == ([], {})
    assert 1 <= shop.stock.stats.failures <= 2
    for link in links:
        await link.aclose()
    await shop.stock.close()
    await shop.pool.aclose()
    workspace.close()


@pytest.mark.asyncio
async def test_a_forked_child_has_none(shop: Shop) -> None:
    shop.want("a", "start", 1)
    await shop.stock.settled()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            asyncio._set_running_loop(None)

            async def look() -> bool:
                nothing = shop.take("a", "start") is None
                await shop.stock.close()
                return nothing

            status = 0 if asyncio.new_event_loop().run_until_complete(look()) else 2
        finally:
            os._exit(status)
    assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
    spare = shop.take("a", "start")
    assert spare is not None
    assert (await spare.sessions["start"].call("echo", {"text": "here"}, seconds=20.0)).text == "here"
    await spare.close()


@pytest.mark.parametrize("wrong", [{"bound": -1}, {"at_once": 0}])
def test_wrong_numbers(wrong: dict[str, int]) -> None:
    async def never(name: str, workspace: Workspace) -> Session:
        raise StartError("never")

    with pytest.raises(ConfigError, match="A stock needs"):
        Stock(never, MANIFESTS.__getitem__, **wrong)  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_real_processes_are_spares_and_end_with_the_stock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descendants: Callable[[], set[int]]
) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    before = descendants()
    pool = Pool(ProcessRuntime(prefork=False))
    command = (sys.executable, "-I", str(SCRIPT), "plain")
    plain = manifest("plain", command=command)
    installation = Installation(Server(plain, None), Path("/nonexistent"), command, (Path("/"),))

    async def open_session(name: str, workspace: Workspace) -> Session:
        link = await pool.background.start(installation, workspace)
        return await Session.open(link, name=name, seconds=20.0)

    stock = Stock(open_session, lambda _name: plain, taken=pool.adopt, stats=pool.spares)
    stock.want(Key(), ["plain"], 2, lambda: Workspace.create("spare"), refill=True)
    await stock.settled()
    spare = stock.take(Key("any"), ["plain"])
    assert spare is not None
    (spare.workspace.files / "late").write_text("laid out after its server had started")
    assert (await spare.sessions["plain"].call("ok", {}, seconds=20.0)).text == "fine"
    await spare.close()
    await stock.settled()
    assert pool.snapshot()["spares"]["ready"] == {"any episode: plain": 2}
    await stock.close()
    await pool.aclose()
    assert descendants() == before
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["stats"]


class Trade(RuleBasedStateMachine):
    """Anything, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.place = tempfile.TemporaryDirectory(prefix="atlas-stock-")
        self.before = os.environ.get("ATLAS_RUN")
        os.environ["ATLAS_RUN"] = self.place.name
        self.taken: list[Prepared] = []
        self.names: list[str] = []
        self.shop = Shop(bound=3)

    def do(self, work: Callable[[], Awaitable[Any] | None]) -> None:
        async def run() -> None:
            waiting = work()
            if waiting is not None:
                await waiting

        self.runner.run(run())

    setups = st.sampled_from(["", "a", "b"])
    servers = st.sets(st.sampled_from(sorted(MANIFESTS))).map(" ".join)

    @rule(setup=setups, servers=servers, count=st.integers(0, 5), refill=st.booleans())
    def want(self, setup: str, servers: str, count: int, refill: bool) -> None:
        def work() -> None:
            self.shop.want(setup, servers, count, refill=refill)

        self.do(work)

    @rule(setup=setups, servers=servers)
    def take(self, setup: str, servers: str) -> None:
        def work() -> None:
            spare = self.shop.take(setup, servers)
            if spare is None:
                return
            assert spare.key.setup in (setup, "")
            assert spare.sessions.keys() <= set(servers.split()) - {"never", "broken"}
            laid_out = spare.workspace.files / "setup"
            assert (laid_out.read_text() if laid_out.exists() else "") == spare.key.setup
            assert spare.key.setup or not spare.sessions.keys() & {"start", "import"}
            assert not any(s.over or s.calls for s in spare.sessions.values())
            self.names.append(spare.workspace.root.name)
            self.taken.append(spare)

        self.do(work)

    @rule()
    def settle(self) -> None:
        self.do(self.shop.stock.settled)
        mine = {spare.workspace.root.name for spare in self.taken}
        assert len([w for w in self.shop.there if w.root.name not in mine]) <= 3

    @rule()
    def turn(self) -> None:
        self.do(lambda: asyncio.sleep(0))

    @rule(which=st.integers(0, 30))
    def kill(self, which: int) -> None:
        alive = self.shop.alive
        if alive:
            self.do(alive[which % len(alive)].close)

    @rule()
    def end_one(self) -> None:
        if self.taken:
            self.do(self.taken.pop(0).close)

    @rule()
    def wait(self) -> None:
        self.shop.clock.now += 3.0

    @rule()
    def shed(self) -> None:
        self.do(self.shop.stock.shed)

    @invariant()
    def bounded(self) -> None:
        stock = self.shop.stock
        assert len(self.names) == len(set(self.names)) == stock.stats.hits
        assert sum(stock.stats.ready.values()) <= 3
        assert self.names == self.shop.adopted

    def teardown(self) -> None:
        try:
            self.do(self.shop.stock.close)
            mine = {spare.workspace.root.name for spare in self.taken}
            assert {workspace.root.name for workspace in self.shop.there} == mine
            kept = [s for spare in self.taken for s in spare.sessions.values() if not s.over]
            assert set(map(id, self.shop.alive)) == set(map(id, kept))
            for spare in self.taken:
                self.do(spare.close)
            assert (self.shop.there, self.shop.alive) == ([], [])
            assert self.shop.pool.snapshot()["idle"] == self.shop.pool.snapshot()["leases"] == 0
            self.do(self.shop.pool.aclose)
        finally:
            self.runner.close()
            self.place.cleanup()
            if self.before is None:
                os.environ.pop("ATLAS_RUN", None)
            else:
                os.environ["ATLAS_RUN"] = self.before


TestTrade = Trade.TestCase
TestTrade.settings = hypothesis_settings(max_examples=30, stateful_step_count=25, deadline=None)
