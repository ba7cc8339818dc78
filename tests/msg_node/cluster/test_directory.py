"""What every directory does: in memory, and in a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from msgspec import Raw
from trio.testing import MockClock

from msg_node.cluster.core.lease import LEASE_SECONDS, MARGIN_SECONDS
from msg_node.cluster.directory import FIND_SECONDS, NO_CLAIMS, Claim, Directory, MemoryDirectory, found_soon
from msg_node.cluster.engine_directory import CLAIM, EngineDirectory, _Wanted
from msg_node.cluster.engine_notices import EngineNotices
from msg_node.kernel.changes import Table
from msg_node.storage.engine import Engine
from msg_node.storage.engine_errors import FencedError
from msg_node.storage.engine_options import EngineOptions
from protofly.errors import Code, HostError
from tests.support.postgres import Postgres, held_rows, paused, running_postgres

Pair = tuple[Directory, Directory]


class Ended:
    """Notes what a directory reports."""

    def __init__(self, directory: Directory) -> None:
        self.keys: list[str] = []
        self.times_all = 0
        self._pulse = trio.Event()
        directory.on_ended = self.note

    def note(self, keys: Collection[str] | None) -> None:
        if keys is None:
            self.times_all += 1
        else:
            self.keys += keys
        pulse, self._pulse = self._pulse, trio.Event()
        pulse.set()

    async def until(self, key: str) -> None:
        await self.until_true(lambda: key in self.keys)

    async def until_true(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(30):
            while not condition():
                await self._pulse.wait()


def engine_directory(
    options: EngineOptions, node: str, epoch: int = 1, notices: EngineNotices | None = None
) -> EngineDirectory:
    held_rows(options, node, epoch).close()
    return EngineDirectory(Engine(options), notices or EngineNotices(Engine(options)), node, epoch)


@pytest.fixture(params=["memory", "engine"])
async def pair(request: pytest.FixtureRequest, nursery: trio.Nursery) -> AsyncIterator[Pair]:
    """The directories of n1 and n2."""
    if request.param == "memory":
        others: list[MemoryDirectory] = []
        yield MemoryDirectory("n1", others), MemoryDirectory("n2", others)
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    options = postgres.options(postgres.new_database())
    notices = [EngineNotices(Engine(options)) for _ in range(2)]
    one, other = engine_directory(options, "n1", 1, notices[0]), engine_directory(options, "n2", 1, notices[1])
    async with trio.open_nursery() as listening:
        for directory, of_node in zip((one, other), notices, strict=True):
            ended = Ended(directory)
            await listening.start(of_node.run)
            await ended.until_true(lambda ended=ended: ended.times_all > 0)  # type: ignore[misc]  # it listens
        yield one, other
        listening.cancel_scope.cancel()
    for directory in (one, other):
        await directory.close()


async def test_an_address_has_the_owner_that_claimed_it_first(pair: Pair) -> None:
    one, other = pair
    first = await one.claim(["a", "b"])
    assert {key: claim.node for key, claim in first.items()} == {"a": "n1", "b": "n1"}
    assert await other.claim(["b", "c"]) == {"b": first["b"], "c": (await one.find(["c"]))["c"]}
    assert {key: claim.node for key, claim in (await other.find(["a", "b", "c", "d"])).items()} == {
        "a": "n1", "b": "n1", "c": "n2",
    }  # fmt: skip
    assert await one.claim(["a"]) == {"a": first["a"]}


async def test_an_address_changes_its_owner_only_for_who_names_the_claim_that_it_replaces(pair: Pair) -> None:
    one, other = pair
    held = (await one.claim(["a"]))["a"]
    assert (await other.claim(["a"], {"a": Claim("n1", held.epoch + 100)}))["a"] == held
    assert (await other.claim(["a"], {"a": Claim("n9", held.epoch)}))["a"] == held
    replaced = (await other.claim(["a"], {"a": held}))["a"]
    assert replaced.node == "n2"
    assert replaced.epoch > held.epoch
    assert (await one.claim(["a"], {"a": held}))["a"] == replaced


async def test_where_the_leading_address_is_another_s_no_other_one_is_claimed(pair: Pair) -> None:
    one, other = pair
    held = await one.claim(["led", "held", "leader"])
    leader = (await other.claim(["leader"], held))["leader"]
    assert await one.claim(["free", "leader", "held"], led_by="leader") == {"leader": leader}
    assert await other.find(["free"]) == {}

    # Two nodes want all that a third one had: who gets the leading one gets everything.
    assert await one.claim(["led", "leader"], {"leader": held["leader"]}, led_by="leader") == {"leader": leader}
    owners = await other.claim(["led", "held", "leader", "free"], held, led_by="leader")
    assert {claim.node for claim in owners.values()} == {"n2"}


async def test_released_addresses_are_free_and_those_of_others_stay(pair: Pair) -> None:
    one, other = pair
    held = await one.claim(["a", "b"])
    await other.release(["a"])
    assert await other.find(["a", "b"]) == held
    await one.release(["a"])
    again = (await other.claim(["a"]))["a"]
    assert again.node == "n2"
    assert again.epoch > held["a"].epoch, "a claim that was looked up before is never right again by chance"


async def test_a_node_that_restarts_keeps_what_it_restored_and_releases_the_rest(pair: Pair) -> None:
    one, other = pair
    await one.claim(["a", "b", "c"])
    await other.claim(["d"])
    owners = await one.restart(["b", "d"])
    assert {key: claim.node for key, claim in owners.items()} == {"b": "n1", "d": "n2"}
    assert (await other.find(["a", "b", "c", "d"])).keys() == {"b", "d"}


async def test_nodes_are_notified_of_claims_that_end(pair: Pair) -> None:
    one, other = pair
    ended = Ended(other)
    held = await one.claim(["gone", "moved", "kept"])
    await one.release(["gone"])
    await ended.until("gone")
    await other.claim(["moved"], {"moved": held["moved"]})
    await ended.until("moved")
    assert "kept" not in ended.keys


@pytest.mark.parametrize("key", ["comm://a.example/" + "x" * 3000, "name with \0 and \n", "ключ"])
async def test_any_key_can_be_claimed_and_announced(pair: Pair, key: str) -> None:
    one, other = pair
    assert (await one.claim([key]))[key].node == "n1"
    assert (await other.claim([key]))[key].node == "n1"
    await one.release([key])
    assert await other.find([key]) == {}


async def test_many_nodes_that_claim_one_address_at_once_see_one_owner(pair: Pair) -> None:
    owners: list[Claim] = []

    async def claim(directory: Directory) -> None:
        owners.append((await directory.claim(["contested"]))["contested"])

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            for directory in pair:
                nursery.start_soon(claim, directory)
    assert len(set(owners)) == 1


class ReleasedInBetween:
    """A connection of a node that claims: another node releases the addresses before it is looked who has them."""

    def __init__(self, connection: Any, other: EngineDirectory, times: list[None]) -> None:
        self._connection, self._other, self._times = connection, other, times

    def execute(self, statement: str, arguments: Any = None, **options: Any) -> Any:
        result = self._connection.execute(statement, arguments, **options)
        if statement == CLAIM and self._times:
            self._times.pop()
            self._other._release(["a", "b"])
        return result


@pytest.mark.parametrize("times", [0, 1])
async def test_addresses_that_are_released_while_they_are_claimed_have_an_owner_all_the_same(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    options = postgres.options(postgres.new_database())
    one, other = engine_directory(options, "n1"), engine_directory(options, "n2")
    await one.claim(["a", "b"])
    transaction, left = other._engine.transaction, [None] * times

    @contextmanager
    def disturbed(patience: float) -> Iterator[Any]:
        with transaction(patience) as connection:
            yield ReleasedInBetween(connection, one, left)

    monkeypatch.setattr(other._engine, "transaction", disturbed)
    owners = await other.claim(["a", "b", "c"])
    assert {key: claim.node for key, claim in owners.items()} == {
        "a": "n2" if times else "n1", "b": "n2" if times else "n1", "c": "n2",
    }  # fmt: skip
    for directory in (one, other):
        await directory.close()


async def test_a_process_that_lost_its_name_claims_nothing_any_more(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    stale = engine_directory(options, "n1")
    held_rows(options, "n1", 2).close()
    with pytest.raises(FencedError):
        await stale.claim(["a"])
    with pytest.raises(FencedError):
        await stale.release(["a"])
    stale._engine.close()


async def test_claims_that_come_while_one_is_under_way_are_made_together(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    one, other = engine_directory(options, "n1"), engine_directory(options, "n2")
    held = await other.claim(["taken", "dead"])
    owners: dict[int, dict[str, Claim]] = {}
    before = await one.find(["taken"])
    assert before.keys() == {"taken"}
    rounds: list[int] = []
    claim_in_thread = one._claim

    def counted(
        together: Sequence[_Wanted], replaced: Mapping[str, Claim], dead: Mapping[str, int]
    ) -> dict[str, Claim]:
        rounds.append(len(together))
        return claim_in_thread(together, replaced, dead)

    one._claim = counted  # type: ignore[method-assign]

    async def claim(number: int) -> None:
        replaced = {"dead": held["dead"]} if number % 2 else NO_CLAIMS
        owners[number] = await one.claim([f"own-{number}", "taken", "dead"], replaced)

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as given_up:
            given_up.cancel()
            await one.claim(["given up"])
        for number in range(100):
            nursery.start_soon(claim, number)
    for number, found in owners.items():
        assert {key: claim.node for key, claim in found.items()} == {
            f"own-{number}": "n1", "taken": "n2", "dead": "n1",
        }  # fmt: skip
    assert len(rounds) <= 3, rounds
    assert await other.find(["given up"]) == {}
    for directory in (one, other):
        await directory.close()


@pytest.mark.parametrize("is_held", [True, False])
async def test_claims_of_a_node_that_has_begun_again_are_not_replaced_by_who_believes_it_dead(
    postgres: Postgres, is_held: bool
) -> None:
    options = postgres.options(postgres.new_database())
    one, other = engine_directory(options, "n1"), engine_directory(options, "n2")
    held = await one.claim(["a", "b"])
    assert {claim.node for claim in (await other.claim(["a"], held, dead={"n1": 1})).values()} == {"n2"}
    held_rows(options, "n1", 2).close()
    engine = Engine(options)
    with engine.transaction() as connection:  # or only another one has ended what was left of it
        connection.execute("UPDATE trapezoid_node SET is_held = %s WHERE name = 'n1'", (is_held,))
    engine.close()
    owners = await other.claim(["b", "c"], held, led_by="b", dead={"n1": 1})
    assert {key: claim.node for key, claim in owners.items()} == ({"b": "n1"} if is_held else {"b": "n2", "c": "n2"})
    for directory in (one, other):
        await directory.close()


async def test_a_claim_that_replaces_a_later_claim_is_not_made_with_one_that_replaces_an_earlier(
    postgres: Postgres,
) -> None:
    options = postgres.options(postgres.new_database())
    one, other = engine_directory(options, "n1"), engine_directory(options, "n2")
    held = (await other.claim(["a"]))["a"]
    found: list[Claim] = []

    async def claim(replaced: Claim) -> None:
        found.append((await one.claim(["a"], {"a": replaced}))["a"])

    async with trio.open_nursery() as nursery:
        for replaced in (Claim("n2", held.epoch + 1), held, Claim("n3", 1)):
            nursery.start_soon(claim, replaced)
    assert [claim.node for claim in found].count("n1") >= 1
    assert (await other.find(["a"]))["a"].node == "n1"
    for directory in (one, other):
        await directory.close()


GROWN = (
    "INSERT INTO trapezoid_claim (digest, key, node) SELECT sha256(key), key, 'n1' FROM {some}",
    "INSERT INTO trapezoid_row (node, kind, digest, key, row)"
    " SELECT 'n1', 'addresses', sha256(key), key, '' FROM {some}",
)
SOME = "(SELECT convert_to('x' || number, 'UTF8') AS key FROM generate_series({}, {}) AS number) AS grown"
READ = "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables WHERE relname LIKE 'trapezoid%'"


@pytest.mark.parametrize("known", [0, 6])
async def test_what_was_first_asked_of_small_tables_reads_no_more_when_they_have_grown(
    postgres: Postgres, known: int
) -> None:
    database = postgres.new_database()
    options = postgres.options(database)
    directory, rows = engine_directory(options, "n1"), held_rows(options, "n1")

    async def use(*keys: str) -> None:
        await directory.claim(keys)
        rows.commit({Table.ADDRESSES: dict.fromkeys(keys, Raw(b"{}"))})
        await directory.find(keys)
        rows.commit({Table.ADDRESSES: dict.fromkeys(keys)})
        await directory.release(keys)

    await use("first")
    for table in ("trapezoid_claim", "trapezoid_row"):
        postgres.run(f"ALTER TABLE {table} SET (autovacuum_enabled = false)", database=database)
    if known:  # else the engine knows nothing of the tables, and takes them for larger than they are
        postgres.run(*(text.format(some=SOME.format(1, known)) for text in GROWN), "VACUUM ANALYZE", database=database)
    for number in range(20):  # by then the engine would keep its plans
        await use(f"a{number}")
    grown = [text.format(some=SOME.format(100, 20_000)) for text in GROWN]
    postgres.run(*grown, "SELECT pg_stat_reset()", database=database)
    for number in range(5):
        await use(f"b{number}", f"c{number}")
    await directory.close()
    rows.close()
    [(read,)] = postgres.rows(READ, database)
    assert 0 < read < 1_000


async def test_claims_that_a_silent_engine_leaves_unanswered_fail_and_hold_once_it_is_back() -> None:
    """Also those that came meanwhile; who claims again gets what was claimed, and nobody else has it."""
    with running_postgres() as server:
        options = server.options(server.new_database())
        one, other = engine_directory(options, "n1"), engine_directory(options, "n2")
        before = await one.claim(["before"])
        errors: list[HostError] = []

        async def claim(key: str) -> None:
            try:
                await one.claim([key])
            except HostError as exc:
                errors.append(exc)

        with paused(server):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(claim, "a")
                nursery.start_soon(claim, "b")
        assert [error.code for error in errors] == [Code.STATE_UNAVAILABLE] * 2
        owners = await one.claim(["a", "b", "before"])
        assert {claim.node for claim in owners.values()} == {"n1"}
        assert owners["before"] == before["before"]
        assert await other.claim(["a", "b", "before"]) == owners
        for directory in (one, other):
            await directory.close()


async def test_who_looks_an_address_up_at_a_silent_engine_waits_no_longer_than_it_wants_to() -> None:
    with running_postgres() as server:
        one = engine_directory(server.options(server.new_database()), "n1")
        owners = await one.claim(["a"])
        server.pause()
        try:
            with trio.move_on_after(0.05) as patience:
                await one.find(["a"])
            assert patience.cancelled_caught
        finally:
            server.go_on()
        assert await one.find(["a"]) == owners
        await one.close()


class Silent(MemoryDirectory):
    """A directory that never answers."""

    async def find(self, keys: Collection[str]) -> dict[str, Claim]:  # noqa: ARG002
        await trio.sleep_forever()
        raise AssertionError


async def test_who_must_answer_soon_does_not_wait_for_a_silent_directory_longer_than_a_node_until_it_is_fenced(
    autojump_clock: MockClock,
) -> None:
    began = autojump_clock.current_time()
    with pytest.raises(HostError) as refused:
        await found_soon(Silent("n1"), ["comm://a.example/1"])
    assert refused.value.code is Code.STATE_UNAVAILABLE
    assert autojump_clock.current_time() - began == FIND_SECONDS < LEASE_SECONDS - MARGIN_SECONDS
    with_one = MemoryDirectory("n1")
    await with_one.claim(["comm://a.example/1"])
    assert list(await found_soon(with_one, ["comm://a.example/1"])) == ["comm://a.example/1"]
