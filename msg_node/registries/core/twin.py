"""The digital twin: descriptions of things, and the latest value of each of their events and properties.

A thing is `thing://<domain>/<agent>/<thing>`; its agent is the session that owns `thing://<domain>/<agent>`. Values are
kept for things that have a description, and for the attributes of objects that the operator names. Descriptions are
durable when they are acknowledged; values are written behind, the latest of each, whenever `store_values` is called.
Both are bounded. `now` is seconds since the Unix epoch. Source: message specification, sections 19 and 19.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.kernel.runtime_address import agent_of
from msg_node.registries.core.twin_room import TwinRoom
from protofly.address import is_below, parse
from protofly.errors import Code, PeerError
from protofly.limits import (
    TWIN_BYTES,
    TWIN_DESCRIPTION_BYTES,
    TWIN_THINGS,
    TWIN_THINGS_PER_AGENT,
    TWIN_VALUE_BYTES,
    TWIN_VALUES_PER_THING,
)

_KINDS = ("events", "properties")
_NO_TYPES = frozenset[str]()


class _Typed(msgspec.Struct):
    """The part of a description that a look-up by type needs."""

    type_: object = msgspec.field(default=None, name="@type")


_decode_typed = msgspec.json.Decoder(_Typed).decode


class ThingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One description as it is stored.

    `version` counts its changes, from 1; `runtime` is the key of the runtime that described the thing first.
    """

    url: str
    description: msgspec.Raw
    version: int
    modified_at: float
    runtime: str = ""


class ValueRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value as it is stored: JSON text, who sent it, when it came, and when it is from by the sender's words."""

    value: msgspec.Raw
    source: str
    received_at: float
    timestamp: str = ""


class Slot(NamedTuple):
    """The place of a value: the key of a thing or object, and `events/<name>`, `properties/<name>` or an attribute."""

    key: str
    name: str


def slot_of(key: str) -> Slot | None:
    """The slot that a canonical key names: `<thing>/events/<name>` or `<thing>/properties/<name>`; else None."""
    if not key.startswith("thing://"):
        return None
    _, authority, path = parse(key)
    levels = path[1:].split("/")
    if len(levels) != 4 or levels[2] not in _KINDS or not all(levels):
        return None
    return Slot(f"thing://{authority}/{levels[0]}/{levels[1]}", f"{levels[2]}/{levels[3]}")


def is_thing(key: str) -> bool:
    """True if a canonical key is `thing://<domain>/<agent>/<thing>`."""
    if not key.startswith("thing://"):
        return False
    levels = parse(key).path[1:].split("/")
    return len(levels) == 2 and all(levels)


class Twin:
    """All descriptions and values.

    Args:
        objects: Base addresses (canonical keys) of objects whose attributes are kept too; `/*` at the end of one means
            everything below it.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        objects: Collection[str] = (),
        max_things: int = TWIN_THINGS,
        max_bytes: int = TWIN_BYTES,
    ) -> None:
        self._journal = journal
        self._objects = tuple(objects)
        self._max_things = max_things
        self._things: dict[str, ThingRow] = {}
        self._by_agent: dict[str, dict[str, None]] = {}
        self._types: dict[str, frozenset[str]] = {}  # of each thing, so that no look-up reads all descriptions
        self._room = TwinRoom(max_bytes)
        self._values: dict[str, dict[str, ValueRow]] = {}
        self._unstored: set[Slot] = set()
        self.refused_values = 0
        """Values that were too large, or for which there was no room."""
        self.watches = bool(objects)
        """True if there is anything whose values are kept: asked for every message."""

    def statistics(self) -> dict[str, int]:
        """Count what is kept, and values that were too large or had no room."""
        return {
            "things": len(self._things),
            "watched": len(self._values),
            "size_bytes": self._room.size_bytes,
            "values_refused": self.refused_values,
        }

    # Descriptions.

    def describe(self, url: str, key: str, description: bytes, *, now: float, runtime: str = "") -> ThingRow:
        """Take the description of a thing, a JSON object; the caller has checked who owns its agent.

        What is new counts for `runtime`, which may fill a part of the twin only.

        The same description again changes nothing.

        Raises:
            PeerError: BAD_BODY when it is no thing, TOO_LARGE, QUOTA.
        """
        if not is_thing(key):
            raise PeerError(Code.BAD_BODY, "a thing is thing://<domain>/<agent>/<thing>")
        if len(description) > TWIN_DESCRIPTION_BYTES:
            raise PeerError(Code.TOO_LARGE, f"a description has at most {TWIN_DESCRIPTION_BYTES} bytes")
        before = self._things.get(key)
        if before is not None and bytes(before.description) == description:
            return before
        agent = agent_of(key)
        if before is None and (
            len(self._things) >= self._max_things or len(self._by_agent.get(agent, ())) >= TWIN_THINGS_PER_AGENT
        ):
            raise PeerError(Code.QUOTA, "too many things")
        runtime = runtime if before is None else before.runtime
        if before is None:
            self._room.check_thing(runtime)
        growth = len(description) - (0 if before is None else len(bytes(before.description)))
        if not self._room.has_room(runtime, growth):
            raise PeerError(Code.QUOTA, "the twin is full, or the part of it that one runtime may fill")
        version = 1 if before is None else before.version + 1
        row = ThingRow(url=url, description=msgspec.Raw(description), version=version, modified_at=now, runtime=runtime)
        self._insert(key, row)
        self._journal.put(Table.TWIN_THINGS, key, row)
        return row

    def adopt(self, key: str, row: ThingRow) -> bool:
        """Take a thing over from another node, unless a newer one is here or there is no room; it is not stored yet."""
        before = self._things.get(key)
        if before is not None and before.modified_at >= row.modified_at:
            return False
        growth = len(bytes(row.description)) - (0 if before is None else len(bytes(before.description)))
        if (before is None and len(self._things) >= self._max_things) or not self._room.has_room("", growth):
            return False
        self._insert(key, msgspec.structs.replace(row, description=row.description.copy()))
        return True

    def remove(self, key: str) -> bool:
        """Forget a thing with its values; whether there was one."""
        row = self._things.pop(key, None)
        if row is None:
            return False
        self._room.count(row.runtime, -len(bytes(row.description)), things=-1)
        agent = agent_of(key)
        del self._by_agent[agent][key], self._types[key]
        if not self._by_agent[agent]:
            del self._by_agent[agent]
        self.watches = bool(self._things or self._objects)
        self._journal.delete(Table.TWIN_THINGS, key)
        self._forget_values(key, row.runtime)
        return True

    def find(self, key: str) -> ThingRow | None:
        """The description of a thing."""
        return self._things.get(key)

    def things(self, agent: str = "") -> Iterator[tuple[str, ThingRow]]:
        """All things by key, or those of one agent, in the order in which they came."""
        for key in list(self._by_agent.get(agent, ()) if agent else self._things):
            yield key, self._things[key]

    def types_of(self, key: str) -> frozenset[str]:
        """Types of a thing by its description: the texts in `@type`."""
        return self._types.get(key, _NO_TYPES)

    def size_of(self, key: str, *, has_values: bool) -> int:
        """Bytes of the description of a thing, with or without those of its values."""
        row = self._things.get(key)
        values = self._values.get(key, {}) if has_values else {}
        return sum(len(bytes(one.value)) for one in values.values()) + (len(bytes(row.description)) if row else 0)

    # Values.

    def follow(self, objects: Collection[str]) -> None:
        """Keep the attributes of these objects from now on, besides those of things; forget those of others."""
        self._objects = tuple(objects)
        self.watches = bool(self._things or self._objects)
        for key in [one for one in self._values if not self.keeps(one)]:
            self._forget_values(key, "")

    def keeps(self, key: str) -> bool:
        """True if values of a thing or object are kept."""
        return key in self._things or any(_covers(pattern, key) for pattern in self._objects)

    def keep(self, slot: Slot, value: bytes, source: str, *, now: float, timestamp: str = "") -> bool:
        """A thing or object that `keeps` says yes to has a new value, JSON text; whether it was taken."""
        values = self._values.setdefault(slot.key, {})
        before = values.get(slot.name)
        growth = len(value) - (0 if before is None else len(bytes(before.value)))
        is_full = before is None and len(values) >= TWIN_VALUES_PER_THING
        runtime = self._runtime_of(slot.key)
        if is_full or len(value) > TWIN_VALUE_BYTES or not self._room.has_room(runtime, growth):
            self.refused_values += 1
            if not values:
                del self._values[slot.key]
            return False
        values[slot.name] = ValueRow(value=msgspec.Raw(value), source=source, received_at=now, timestamp=timestamp)
        self._room.count(runtime, growth)
        self._unstored.add(slot)
        return True

    def values(self, key: str) -> dict[str, ValueRow]:
        """The latest values of a thing or object, by name."""
        return dict(self._values.get(key, {}))

    def sources(self) -> Iterator[tuple[str, str, str]]:
        """Thing or object, name and source of each value; nothing changes meanwhile."""
        return ((key, name, one.source) for key, values in self._values.items() for name, one in values.items())

    def forget_value(self, key: str, name: str) -> None:
        """Forget the latest value of that name, if there is one."""
        values = self._values.get(key, {})
        row = values.pop(name, None)
        if row is None:
            return
        if not values:
            del self._values[key]
        self._room.count(self._runtime_of(key), -len(bytes(row.value)))
        self._journal.delete(Table.TWIN_VALUES, _row_key(Slot(key, name)))

    def store_values(self) -> None:
        """Write down the values that came since the last time."""
        unstored, self._unstored = self._unstored, set()
        for slot in unstored:
            row = self._values.get(slot.key, {}).get(slot.name)
            if row is not None:
                self._journal.put(Table.TWIN_VALUES, _row_key(slot), row)

    def _forget_values(self, key: str, runtime: str) -> None:
        for name, row in self._values.pop(key, {}).items():
            self._room.count(runtime, -len(bytes(row.value)))
            self._journal.delete(Table.TWIN_VALUES, _row_key(Slot(key, name)))

    # Restart.

    def restore(self, things: Rows, values: Rows) -> None:
        """Take over what was stored. Values of what is not kept any more are deleted.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in things.items():
            row = decode_row(raw, ThingRow, table=Table.TWIN_THINGS, key=key)
            self._insert(key, msgspec.structs.replace(row, description=row.description.copy()))
        for row_key, raw in values.items():
            value = decode_row(raw, ValueRow, table=Table.TWIN_VALUES, key=row_key)
            key, _, name = row_key.partition(" ")
            if self.keeps(key):
                self._values.setdefault(key, {})[name] = msgspec.structs.replace(value, value=value.value.copy())
                self._room.count(self._runtime_of(key), len(bytes(value.value)))
            else:
                self._journal.delete(Table.TWIN_VALUES, row_key)

    def _insert(self, key: str, row: ThingRow) -> None:
        before = self._things.get(key)
        if before is not None:
            self._room.count(before.runtime, -len(bytes(before.description)), things=-1)
        self._room.count(row.runtime, len(bytes(row.description)), things=1)
        self._things[key] = row
        self._types[key] = _types_in(row.description)
        self._by_agent.setdefault(agent_of(key), {})[key] = None
        self.watches = True

    def _runtime_of(self, key: str) -> str:
        row = self._things.get(key)
        return "" if row is None else row.runtime


def _types_in(description: msgspec.Raw) -> frozenset[str]:
    try:
        type_ = _decode_typed(description).type_
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NO_TYPES
    return frozenset(one for one in (type_ if isinstance(type_, list) else (type_,)) if isinstance(one, str))


def _covers(pattern: str, key: str) -> bool:
    return is_below(key, pattern[:-2]) if pattern.endswith("/*") else key == pattern


def _row_key(slot: Slot) -> str:
    return f"{slot.key} {slot.name}"
