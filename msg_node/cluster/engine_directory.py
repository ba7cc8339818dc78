"""The directory in the engine that nodes of one domain share.

Each change is one transaction that names the epoch under which the node holds its name: who has lost it claims nothing
any more. Claims that end are announced. When an announcement may have been missed, everything that was looked up counts
no more. Claims that come while one is under way are made together: after the death of a node, thousands of sessions
come back at once. See docs/adr/0028.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import psycopg
import trio
from psycopg.rows import TupleRow

from msg_node.cluster.directory import NO_CLAIMS, NONE_DEAD, Claim
from msg_node.cluster.engine_notices import EngineNotices
from msg_node.storage.engine import Engine
from msg_node.storage.engine_keys import digests, in_order, portions
from msg_node.storage.engine_line import LONG_SECONDS, patience_seconds
from protofly.errors import Code, HostError

CHANNEL: Final = "trapezoid_claim"
CLAIMED_AT_ONCE: Final = 2_000
CLAIM_ATTEMPTS: Final = 10
"""A claim that always ends between two looks is given up."""
PAYLOAD_BYTES: Final = 7_000
"""Longest key that fits into a notification; after a longer one everything is looked up anew."""
_HOLD: Final = "SELECT trapezoid_hold(%s, %s)"
CLAIM: Final = """INSERT INTO trapezoid_claim (digest, key, node)
    SELECT sha256(key), key, %s FROM unnest(%b::bytea[]) AS wanted (key) ORDER BY 1
    ON CONFLICT (digest) DO NOTHING"""
_REPLACE: Final = """UPDATE trapezoid_claim AS held SET node = %s, epoch = nextval('trapezoid_claim_epoch')
    FROM unnest(%b::bytea[], %b::text[], %b::bigint[]) AS old (digest, node, epoch)
    WHERE held.digest = old.digest AND held.node || '' = old.node AND held.epoch = old.epoch RETURNING held.key"""
_FIND: Final = "SELECT key, node, epoch FROM trapezoid_claim WHERE digest = ANY(%b::bytea[])"
_RELEASE: Final = "DELETE FROM trapezoid_claim WHERE node || '' = %s AND digest = ANY(%b::bytea[]) RETURNING key"
"""By digests, and by no index of nodes (`node || ''`): see `msg_node.storage.engine_keys`."""
_OURS: Final = "SELECT key FROM trapezoid_claim WHERE node = %s"
_LOCK: Final = "SELECT 1 FROM trapezoid_claim WHERE digest = ANY(%b::bytea[]) ORDER BY digest FOR UPDATE"
"""The same order at each node: otherwise two that want the same claims could wait for each other."""
_EPOCHS: Final = """SELECT name, epoch FROM trapezoid_node WHERE name = ANY(%s::text[]) AND is_held
    ORDER BY name FOR KEY SHARE"""
"""None of them begins again before our transaction has ended: who takes a name locks it for update."""
_NOTIFY: Final = "SELECT pg_notify('trapezoid_claim', payload) FROM unnest(%s::text[]) AS ended (payload)"


class _Wanted:
    """Claims that somebody waits for, see `Directory.claim`; `is_done` when there is a result or an error."""

    def __init__(
        self, keys: Collection[str], replaced: Mapping[str, Claim], led_by: str, dead: Mapping[str, int]
    ) -> None:
        self.keys = keys
        self.replaced = replaced
        self.led_by = led_by
        self.dead = dead
        self.is_done = False
        self.owners: dict[str, Claim] = {}
        self.error: HostError | None = None


class EngineDirectory:
    """The claims of one domain in its engine; see `Directory`.

    Args:
        engine: For claims; this directory alone uses it.
        notices: Where claims that end are announced.
        node: Our name.
        epoch: Under which we hold it.
    """

    def __init__(self, engine: Engine, notices: EngineNotices, node: str, epoch: int) -> None:
        self._engine = engine
        self._held = (node, epoch)
        self._limiter = trio.CapacityLimiter(1)
        self._wanted: list[_Wanted] = []
        self._claiming = trio.Lock()
        self.on_ended: Callable[[Collection[str] | None], None] = _ignore
        notices.follow(CHANNEL, self._heard)

    async def claim(
        self,
        keys: Collection[str],
        replaced: Mapping[str, Claim] = NO_CLAIMS,
        *,
        led_by: str = "",
        dead: Mapping[str, int] = NONE_DEAD,
    ) -> dict[str, Claim]:
        """See `Directory`."""
        wanted = _Wanted(keys, replaced, led_by, dead)
        self._wanted.append(wanted)
        try:
            async with self._claiming:
                while not wanted.is_done:
                    await self._claim_together()
        finally:
            if wanted in self._wanted:
                self._wanted.remove(wanted)  # nobody waits for it any more
        if wanted.error is not None:
            raise wanted.error
        is_led = led_by == "" or wanted.owners[led_by].node == self._held[0]
        return {key: wanted.owners[key] for key in (keys if is_led else [led_by])}

    async def _claim_together(self) -> None:
        """Make all claims that are wanted by now, as far as they agree about what they replace, and who is dead."""
        together, keys = list[_Wanted](), 0
        replaced, dead = dict[str, Claim](), dict[str, int]()
        while self._wanted and (not together or keys < CLAIMED_AT_ONCE):
            wanted = self._wanted[0]
            if not (_agree(wanted.replaced, replaced) and _agree(wanted.dead, dead)):
                break
            together.append(self._wanted.pop(0))
            keys += len(wanted.keys)
            replaced |= wanted.replaced
            dead |= wanted.dead
        owners: dict[str, Claim] = {}
        error: HostError | None = None
        try:
            with trio.CancelScope(shield=True):  # others wait for it, too
                owners = await trio.to_thread.run_sync(self._claim, together, replaced, dead, limiter=self._limiter)
        except HostError as exc:
            error = exc
        for wanted in together:
            wanted.owners, wanted.error = owners, error
            wanted.is_done = True

    async def find(self, keys: Collection[str]) -> dict[str, Claim]:
        """See `Directory`. Who has waited for long enough leaves it: nothing is changed by it."""
        return await trio.to_thread.run_sync(self._find, keys, limiter=self._limiter, abandon_on_cancel=True)

    async def release(self, keys: Collection[str]) -> None:
        """See `Directory`."""
        await trio.to_thread.run_sync(self._release, keys, limiter=self._limiter)

    async def restart(self, keys: Collection[str]) -> dict[str, Claim]:
        """See `Directory`."""
        return await trio.to_thread.run_sync(self._restart, keys, limiter=self._limiter)

    async def close(self) -> None:
        """Close the connection, when nothing is asked any more."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._engine.close, limiter=self._limiter)

    def _heard(self, keys: Collection[str] | None) -> None:
        self.on_ended(None if keys is None or "" in keys else keys)

    # In threads.

    def _claim(
        self, together: Sequence[_Wanted], replaced: Mapping[str, Claim], dead: Mapping[str, int]
    ) -> dict[str, Claim]:
        with self._engine.transaction(patience_seconds(sum(len(wanted.keys) for wanted in together))) as connection:
            connection.execute(_HOLD, self._held)
            if dead:
                living = connection.execute(_EPOCHS, (list(dead),)).fetchall()
                again = {node for node, epoch in living if epoch != dead[node]}
                replaced = {key: claim for key, claim in replaced.items() if claim.node not in again}
            _lock(connection, in_order(replaced))
            alone = {key for wanted in together for key in ([wanted.led_by] if wanted.led_by else wanted.keys)}
            owners = self._take(connection, alone, replaced)
            ours = {key for key in alone if owners[key].node == self._held[0]}
            led = {key for wanted in together if wanted.led_by in ours for key in wanted.keys}
            return owners | self._take(connection, led - alone, replaced)

    def _take(
        self, connection: psycopg.Connection[TupleRow], keys: Collection[str], replaced: Mapping[str, Claim]
    ) -> dict[str, Claim]:
        """Claim what is free, or held by what is replaced. Raises HostError: STATE_UNAVAILABLE."""
        wanted, old = in_order(keys), in_order(replaced.keys() & set(keys))
        for some in portions(old):
            nodes, epochs = zip(*(replaced[key.decode()] for key in some), strict=True)
            values = (self._held[0], digests(some), list(nodes), list(epochs))
            _announce(connection, connection.execute(_REPLACE, values, prepare=False).fetchall())
        for _ in range(CLAIM_ATTEMPTS if wanted else 0):  # who kept us from it may release it before we look who it is
            for some in portions(wanted):
                connection.execute(CLAIM, (self._held[0], list(some)))
            owners = _find(connection, wanted)
            if owners.keys() >= set(keys):
                return owners
        if wanted:
            raise HostError(Code.STATE_UNAVAILABLE, "other nodes claim and release the same addresses all the time")
        return {}

    def _find(self, keys: Collection[str]) -> dict[str, Claim]:
        with self._engine.transaction() as connection:
            return _find(connection, in_order(keys))

    def _release(self, keys: Collection[str]) -> None:
        with self._engine.transaction(patience_seconds(len(keys))) as connection:
            connection.execute(_HOLD, self._held)
            self._end(connection, in_order(keys))

    def _restart(self, keys: Collection[str]) -> dict[str, Claim]:
        with self._engine.transaction(LONG_SECONDS) as connection:
            connection.execute(_HOLD, self._held)
            connection.execute("SET LOCAL statement_timeout = 0")  # a million claims take longer than a usual statement
            ours = {key.decode() for (key,) in connection.execute(_OURS, (self._held[0],)).fetchall()}
            self._end(connection, in_order(ours.difference(keys)))
        wanted = _Wanted(keys, NO_CLAIMS, "", NONE_DEAD)
        return self._claim([wanted], NO_CLAIMS, NONE_DEAD) if keys else {}

    def _end(self, connection: psycopg.Connection[TupleRow], keys: list[bytes]) -> None:
        """End those of our claims, and announce it."""
        _lock(connection, keys)
        for some in portions(keys):
            values = (self._held[0], digests(some))
            _announce(connection, connection.execute(_RELEASE, values, prepare=False).fetchall())


def _agree(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """True if what both have is the same."""
    return not any(other.get(key, value) != value for key, value in one.items())


def _find(connection: psycopg.Connection[TupleRow], keys: list[bytes]) -> dict[str, Claim]:
    found = [connection.execute(_FIND, (digests(some),), prepare=False) for some in portions(keys)]
    return {key.decode(): Claim(node, epoch) for one in found for key, node, epoch in one.fetchall()}


def _lock(connection: psycopg.Connection[TupleRow], keys: Sequence[bytes]) -> None:
    """Lock claims that will change, before any is made, in the order that all nodes keep."""
    for some in portions(keys) if len(keys) > 1 else ():
        connection.execute(_LOCK, (digests(some),), prepare=False)


def _announce(connection: psycopg.Connection[TupleRow], rows: list[TupleRow]) -> None:
    """Announce that the claims of keys have ended: with the transaction, and only if it is committed."""
    payloads = {_payload(key) for (key,) in rows}
    if payloads:
        connection.execute(_NOTIFY, (sorted(payloads),))


def _payload(key: bytes) -> str:
    """A key as the text of a notification, "" for one that cannot be one."""
    return key.decode() if len(key) <= PAYLOAD_BYTES and b"\0" not in key else ""


def _ignore(_: Collection[str] | None) -> None:
    """Nobody remembers anything yet."""
