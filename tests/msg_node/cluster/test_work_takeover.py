"""Who goes on with the parked work of a node that has died: one other node, and only if it has died."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from msgspec import Raw

from msg_node.cluster.core.lease import NameRow
from msg_node.cluster.membership import Membership
from msg_node.cluster.names import Names
from msg_node.cluster.work_takeover import WorkTakeover
from msg_node.kernel.changes import Table
from msg_node.requests.core.inbox import InboxRow
from msg_node.storage.engine import Engine
from msg_node.storage.engine_errors import FencedError
from msg_node.storage.engine_options import EngineOptions
from msg_node.storage.engine_rows import EngineRows, SharedRows
from msg_node.storage.state_file import Rows
from tests.support.postgres import Postgres, held_rows

REPORT = InboxRow(number=7, owner="o", request_id="d", queue="q", body=Raw(b"{}"), at=1.0, runtime_key="r")
WORK: Rows = {Table.INBOX: {"7": REPORT}}

Makers = Callable[[str], WorkTakeover]


@pytest.fixture
def node_named(options: EngineOptions) -> Iterator[Makers]:
    """Makes nodes that take over, by their names."""
    with ExitStack() as stack:

        def make(name: str) -> WorkTakeover:
            held_rows(options, name).close()
            one = WorkTakeover(Engine(options), Membership(Names(Engine(options)), name), name, 1)
            stack.callback(one.close)
            return one

        yield make


def row_of(options: EngineOptions, name: str) -> NameRow:
    names = Names(Engine(options))
    row, _ = names.rows()[name]
    names.close()
    return row


@pytest.fixture
def options(postgres: Postgres) -> EngineOptions:
    return postgres.options(postgres.new_database())


@pytest.fixture
def dead(options: EngineOptions) -> Iterator[EngineRows]:
    """A node with work, which stands for a process that is slow."""
    rows = held_rows(options, "n0")
    rows.commit(WORK)
    yield rows
    rows.close()


def given(options: EngineOptions) -> list[str]:
    shared = SharedRows(Engine(options))
    keys = sorted(shared.read(Table.GIVEN_INBOX.value))
    shared.close()
    return keys


def test_of_two_heirs_one_gets_everything_and_the_slow_process_writes_nothing_more(
    options: EngineOptions, dead: EngineRows, node_named: Makers
) -> None:
    seen, nodes = row_of(options, "n0"), [node_named(name) for name in ("n1", "n2")]
    assert [one.take_over("n0", seen) for one in nodes] == [True, False]
    assert given(options) == ["n1 n0 1 7"]
    with pytest.raises(FencedError):
        dead.commit(WORK)
    again = held_rows(options, "n0", 3)
    assert again.load()[Table.INBOX] == {}
    again.close()


def test_nothing_is_taken_over_from_a_node_that_has_renewed_its_lease_meanwhile(
    options: EngineOptions, dead: EngineRows, node_named: Makers
) -> None:
    seen, names = row_of(options, "n0"), Names(Engine(options))
    assert names.renew("n0", 1, names.members()[0].facts)
    names.close()
    assert not node_named("n1").take_over("n0", seen)
    assert given(options) == []
    dead.commit(WORK)


@pytest.mark.usefixtures("dead")
def test_what_was_given_to_an_heir_that_dies_before_it_took_it_goes_to_the_next_one(
    options: EngineOptions, node_named: Makers
) -> None:
    assert node_named("n1").take_over("n0", row_of(options, "n0"))
    assert node_named("n2").take_over("n1", row_of(options, "n1"))
    assert given(options) == ["n2 n0 1 7"]
    assert not node_named("n2").take_over("n1", row_of(options, "n1")), "there is nothing left"


@pytest.mark.usefixtures("dead")
def test_a_node_that_has_lost_its_own_name_takes_over_nothing(options: EngineOptions, node_named: Makers) -> None:
    late = node_named("n1")
    held_rows(options, "n1", 2).close()
    with pytest.raises(FencedError):
        late.take_over("n0", row_of(options, "n0"))


async def test_a_dead_process_whose_epoch_was_ended_stores_nothing_and_one_that_renewed_since_goes_on(
    options: EngineOptions, node_named: Makers, dead: EngineRows
) -> None:
    seen = row_of(options, "n0")
    other = node_named("n1")
    assert not await other.end("n0", replace(seen, beat=seen.beat + 1))
    dead.commit(WORK)
    assert await other.end("n0", seen)
    assert not await other.end("n0", seen)
    with pytest.raises(FencedError):
        dead.commit(WORK)
