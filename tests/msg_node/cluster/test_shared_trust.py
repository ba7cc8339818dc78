"""Trust marks of two nodes over a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

from catalogue_client.core.state import TrustState
from catalogue_client.trust_store import TrustStore
from msg_node.cluster.engine_notices import EngineNotices
from msg_node.cluster.shared_trust import SharedTrust
from msg_node.storage.engine import Engine
from msg_node.storage.engine_documents import TRUST, EngineDocuments
from msg_node.storage.engine_options import EngineOptions
from msg_node.storage.engine_rows import SHARED_CHANNEL, SharedRows
from protofly.documents import TrustLevel
from tests.support.postgres import Postgres, held_rows

FIRST = TrustState(
    domain="b.example", level=TrustLevel.WEB, root=b"1", root_version=1, fingerprints=["f"], live_serial=5
)
FORGED = msgspec.structs.replace(FIRST, fingerprints=["x"], live_serial=99)


class Member:
    """One node: its marks, and what shares them."""

    def __init__(self, folder: Path, options: EngineOptions, name: str) -> None:
        held_rows(options, name).close()
        self.store = TrustStore(folder / f"{name}.sqlite", secret=name.encode() * 16)
        documents = EngineDocuments(Engine(options), name, 1, TRUST)
        self._rows = SharedRows(Engine(options))
        self.shared = SharedTrust(self.store, documents, self._rows.read)
        self.notices = EngineNotices(Engine(options))
        self.notices.follow(SHARED_CHANNEL, self.shared.heard)

    def close(self) -> None:
        self.store.close()
        self._rows.close()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.shared.run)
            await nursery.start(self.notices.run)
            task_status.started()

    async def until(self, condition: Callable[[TrustState | None], bool]) -> TrustState:
        with trio.fail_after(30):
            while not condition(state := self.store.load("b.example")):  # noqa: ASYNC110  another thread decides
                await trio.sleep(0.01)
        assert state is not None
        return state


async def test_a_first_use_and_newer_serials_count_at_all_nodes_and_other_keys_at_none(
    tmp_path: Path, postgres: Postgres
) -> None:
    options = postgres.options(postgres.new_database())
    one, two = (Member(tmp_path, options, name) for name in ("n1", "n2"))
    async with trio.open_nursery() as nursery:
        await nursery.start(one.run)
        await nursery.start(two.run)
        await one.store.save(FIRST)
        assert await two.until(lambda state: state is not None) == FIRST

        newer = msgspec.structs.replace(FIRST, live_serial=7)
        await two.store.save(newer)
        assert await one.until(lambda state: state is not None and state.live_serial == 7) == newer

        # A node that was deceived, or whose operator decided otherwise, changes nothing at the others.
        await two.store.save(FORGED)
        await two.store.save(msgspec.structs.replace(FIRST, domain="c.example"))
        with trio.fail_after(30):
            while one.store.load("c.example") is None:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert one.store.load("b.example") == newer

        # A node that begins later learns it from the engine before it asks anybody.
        late = Member(tmp_path, options, "n3")
        await nursery.start(late.run)
        assert late.store.load("c.example") is not None
        assert late.store.load("b.example") == newer
        nursery.cancel_scope.cancel()
    for member in (one, two, late):
        member.close()


async def test_what_an_operator_decided_is_not_undone_by_the_engine_and_counts_for_nodes_that_come_later(
    tmp_path: Path, postgres: Postgres
) -> None:
    options = postgres.options(postgres.new_database())
    one, two = (Member(tmp_path, options, name) for name in ("n1", "n2"))
    other = msgspec.structs.replace(FIRST, domain="c.example")
    async with trio.open_nursery() as nursery:
        await nursery.start(one.run)
        await nursery.start(two.run)
        await one.store.save(FIRST)
        await two.until(lambda state: state is not None)

        await two.store.forget("b.example")
        await one.store.save(other)
        with trio.fail_after(30):
            while two.store.load("c.example") is None:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert two.store.load("b.example") is None, "the engine still has it"

        await two.store.retrust("b.example", "x")
        await two.store.save(msgspec.structs.replace(FORGED, level=TrustLevel.PINNED))  # the root of these keys came
        await two.store.save(msgspec.structs.replace(other, live_serial=6))
        with trio.fail_after(30):
            while (state := one.store.load("c.example")) is None or state.live_serial != 6:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert one.store.load("b.example") == FIRST, "operators decide at each node"

        late = Member(tmp_path, options, "n3")
        await nursery.start(late.run)
        learned = late.store.load("b.example")
        assert learned is not None
        assert learned.fingerprints == ["x"]
        nursery.cancel_scope.cancel()
    for member in (one, two, late):
        member.close()
