"""The names of nodes in the engine, and the conditional writes that take, renew and leave them. Blocking."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from msg_node.cluster.core.lease import LEASE_SECONDS, NameRow
from msg_node.cluster.core.published import Published
from msg_node.kernel.node_figures import NodeFigures
from msg_node.storage.engine import Engine

_TAKE_NEW: Final = """INSERT INTO trapezoid_node (name, epoch, instance, facts) VALUES (%s, 1, %s, %s)
    ON CONFLICT (name) DO NOTHING RETURNING epoch"""
_TAKE_OVER: Final = """WITH seen AS (
        SELECT name FROM trapezoid_node WHERE name = %s AND epoch = %s AND beat = %s AND is_held = %s FOR UPDATE
    ) UPDATE trapezoid_node AS node
    SET epoch = epoch + 1, beat = 0, is_held = true, instance = %s, facts = %s, renewed_at = clock_timestamp()
    FROM seen WHERE node.name = seen.name RETURNING epoch"""
"""Locked for update first: that waits for transactions of state that hold the name in key share mode."""
_RENEW: Final = """UPDATE trapezoid_node SET beat = beat + 1, facts = %s, renewed_at = clock_timestamp()
    WHERE name = %s AND epoch = %s AND is_held RETURNING epoch"""
_LEAVE: Final = """UPDATE trapezoid_node SET is_held = false, renewed_at = clock_timestamp()
    WHERE name = %s AND epoch = %s RETURNING epoch"""
_REMOVE: Final = """DELETE FROM trapezoid_node WHERE name = %s AND NOT is_held
    AND NOT EXISTS (SELECT 1 FROM trapezoid_row WHERE node = name) RETURNING epoch"""
_LIST: Final = """SELECT name, epoch, is_held, extract(epoch FROM clock_timestamp() - renewed_at)::float8, facts
    FROM trapezoid_node ORDER BY name"""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a node that are written with its lease, for the others of its domain.

    Attributes:
        version: Of the program.
        endpoint: Where runtimes and links reach it.
        host: The machine it runs on, for people.
        root: Fingerprint of the domain's keys that it serves, "" when it publishes nothing.
        policy: Revision of its policies, "" without any.
        limits: Digest of its limits.
        bus: Where other nodes reach it, "" when it is none of several.
        published: What it adds to the `live` document.
        figures: Of the moment when it said so.
    """

    version: str = ""
    endpoint: str = ""
    host: str = ""
    root: str = ""
    policy: str = ""
    limits: str = ""
    bus: str = ""
    published: Published = Published()
    figures: NodeFigures = NodeFigures()


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One name of the domain.

    Attributes:
        name: Of the node.
        epoch: Of its holder; claims of an older one have ended.
        is_held: A process holds it, unless it has died.
        age_seconds: Since it was renewed or left, by the engine's clock.
        facts: What its holder said last.
    """

    name: str
    epoch: int
    is_held: bool
    age_seconds: float
    facts: NodeFacts

    @property
    def is_running(self) -> bool:
        """True if its lease was renewed lately, as far as the engine's clock says: for people, and for checks."""
        return self.is_held and self.age_seconds < LEASE_SECONDS


class Names:
    """The names, over one connection of their own; one thread uses them at a time.

    Every method raises EngineError.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def place(self) -> str:
        """The engine, for people."""
        return self._engine.place

    def read(self, name: str) -> NameRow | None:
        """Read the row of one name from the engine."""
        row = self._one("SELECT epoch, beat, is_held, instance FROM trapezoid_node WHERE name = %s", (name,))
        return None if row is None else NameRow(*row)

    def take(self, name: str, seen: NameRow | None, instance: str, facts: NodeFacts) -> int | None:
        """Take a name on the condition that it is as it was seen. Returns our epoch, None when it is not."""
        text = msgspec.json.encode(facts)
        if seen is None:
            row = self._one(_TAKE_NEW, (name, instance, text))
        else:
            row = self._one(_TAKE_OVER, (name, seen.epoch, seen.beat, seen.is_held, instance, text))
        return None if row is None else int(row[0])

    def renew(self, name: str, epoch: int, facts: NodeFacts) -> bool:
        """Renew a lease; False when the epoch has ended."""
        return self._one(_RENEW, (msgspec.json.encode(facts), name, epoch)) is not None

    def leave(self, name: str, epoch: int) -> None:
        """Let a name go, so that nobody waits for it; nothing happens when the epoch has ended."""
        self._one(_LEAVE, (name, epoch))

    def members(self) -> list[Member]:
        """All names that were ever taken and not removed."""
        with self._engine.transaction() as connection:
            rows = connection.execute(_LIST).fetchall()
        return [
            Member(name=name, epoch=epoch, is_held=is_held, age_seconds=age, facts=_facts(facts))
            for name, epoch, is_held, age, facts in rows
        ]

    def rows(self) -> dict[str, tuple[NameRow, NodeFacts]]:
        """The row of each name in the engine, with what its holder last said."""
        with self._engine.transaction() as connection:
            rows = connection.execute(
                "SELECT name, epoch, beat, is_held, instance, facts FROM trapezoid_node"
            ).fetchall()
        return {name: (NameRow(*row), _facts(facts)) for name, *row, facts in rows}

    def remove(self, name: str) -> bool:
        """Forget a name that no process holds and that owns no rows; False when there is none such."""
        return self._one(_REMOVE, (name,)) is not None

    def close(self) -> None:
        """Close the connection."""
        self._engine.close()

    def _one(self, query: str, values: tuple[object, ...]) -> tuple[Any, ...] | None:
        with self._engine.transaction() as connection:
            return connection.execute(query, values).fetchone()


def _facts(text: bytes) -> NodeFacts:
    """Those of another version may have other members."""
    try:
        return msgspec.json.decode(text, type=NodeFacts)
    except msgspec.MsgspecError:
        return NodeFacts()
