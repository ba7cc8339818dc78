"""The owner of each address.

An address is allocated by us, lent from a pool, claimed by a runtime, or bound to a session as its runtime address.
It has at most one owner, a session number; parked sessions keep what they own. A block is what was allocated under one
allocation key; keys belong to a runtime, so two runtimes may use the same one. Bound addresses follow from the sessions
and are not stored; all others are rows.

Who owns a sub-resource is found by cutting its key at slashes (`owner_above`). The reverse, what stands below an
address that is released, has to be found without looking at all a session owns: so the few addresses that stand below
something else that could be owned are kept sorted as well (`_deep`). Names that we make never do.

Source: message specification, section 7.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import islice

import msgspec

from msg_node.addresses.core.address_pools import AddressPools
from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.kernel.identifiers import identifier
from msg_node.kernel.runtime_address import PART_MARK
from protofly.address import canonical_key
from protofly.errors import Code, PeerError
from protofly.limits import ADDRESS_LEVELS, ALLOCATION_PER_SESSION, NAMES_CHARS_PER_SESSION, TOMBSTONES


class Origin(Enum):
    """The ways in which an owner gets an address."""

    ALLOCATED = "allocated"
    CLAIMED = "claimed"
    POOL = "pool"


_ALLOCATED, _POOL, _ADDRESSES = (
    Origin.ALLOCATED,
    Origin.POOL,
    Table.ADDRESSES,
)  # members of an Enum are slow to look up
_ANY_NAME = "00000000-0000-4000-8000-000000000000"
_CACHED_BASES = 64


class OwnedRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One owned address as it is stored.

    `url` is the text as it was given out or written by the claimer; `is_guest`: given to a runtime of another domain,
    for as long as it is connected.
    """

    sid: int
    url: str
    origin: Origin
    allocation_key: str = ""
    is_guest: bool = False


class Block(msgspec.Struct, frozen=True, gc=False):
    """One request for addresses. `seed` is fresh randomness for the names."""

    scheme: str
    domain: str
    number: int
    allocation_key: str
    seed: bytes
    is_guest: bool = False


class Arrivals:
    """Addresses for which something waits, and that have got an owner.

    Attributes:
        watched: Keys for which something waits: the tables of those that wait.
    """

    def __init__(self) -> None:
        self.watched: tuple[Container[str], ...] = ()
        self._arrived: list[str] = []

    def note(self, key: str) -> None:
        """An address has got an owner, by allocation or claim."""
        if any(key in keys for keys in self.watched):
            self._arrived.append(key)

    def take(self) -> list[str]:
        """Those that arrived since the last call."""
        arrived, self._arrived = self._arrived, []
        return arrived


class Owners:
    """Owner of every address that has one.

    Args:
        journal: Where changes are collected.
        per_session: Addresses that one session may own.
        pools: Addresses to lend, by scheme.

    Attributes:
        owner: Gives the session that owns a canonical key, None when there is none; one dictionary hit.
        pools: Which addresses are lent, and which are free.
        notified: Called when an address has got an owner or lost it; mostly nobody.
        arrivals: Addresses for which something waits.
        awaits_claims: Who claims an address owns it from `confirm` on: another node of the domain may have it.
        pending: Sessions by addresses that they have claimed until then.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        per_session: int = ALLOCATION_PER_SESSION,
        pools: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._journal = journal
        self.per_session = per_session
        self.pools = AddressPools(pools or {})
        self._sid_of: dict[str, int] = {}
        self.owner: Callable[[str], int | None] = self._sid_of.get
        self._owned: defaultdict[int, dict[str, OwnedRow]] = defaultdict(dict)
        self._chars: defaultdict[int, int] = defaultdict(int)  # of the addresses of a session and their allocation keys
        self._blocks: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
        self._deep: defaultdict[int, list[str]] = defaultdict(list)  # sorted: owned below something that could be
        self._used: OrderedDict[str, None] = OrderedDict()  # names that are not given out again while we remember
        self.notified: list[Callable[[], None]] = []
        self.arrivals = Arrivals()
        self.awaits_claims = False
        self.pending: dict[str, int] = {}

    # Look-ups.

    def owner_above(self, key: str) -> tuple[int, str] | None:
        """Owner and key of the nearest owned address above a sub-resource, cut at slashes.

        None when nothing above is owned.
        """
        for base in ancestors(key):
            sid = self._sid_of.get(base)
            if sid is not None:
                return sid, base
        return None

    def claimant(self, key: str) -> int | None:
        """The session that owns an address, or has claimed it and may be refused yet."""
        owner = self._sid_of.get(key)
        return self.pending.get(key) if owner is None else owner

    def count(self, sid: int) -> int:
        """Number of addresses that a session owns by allocation or claim."""
        return len(self._owned.get(sid, ()))

    def owned(self, sid: int) -> list[OwnedRow]:
        """The addresses that a session owns by allocation or claim, oldest first."""
        return list(self._owned.get(sid, {}).values())

    def block(self, sid: int, allocation_key: str) -> list[str]:
        """Keys that a session was allocated under an allocation key, sorted."""
        return sorted(self._blocks.get((sid, allocation_key), ()))

    # Changes.

    def bind(self, key: str, sid: int) -> None:
        """Give a session its runtime address; an older holder loses it."""
        self._sid_of[key] = sid

    def unbind(self, key: str, sid: int) -> None:
        """Take a runtime address from a session, if it still has it."""
        if self._sid_of.get(key) == sid:
            del self._sid_of[key]

    def allocate(self, sid: int, block: Block) -> list[str]:
        """Make new addresses, or take them from the pool of their scheme, for a session: all of them or none.

        Raises:
            PeerError: QUOTA, POOL_EMPTY.

        Source: message specification, sections 7.1 and 7.5.
        """
        key_of_block = block.allocation_key
        self.check_quota(sid, block.number, chars=block.number * (len(key_of_block) + len(block.domain)))
        is_lent = self.pools.has_scheme(block.scheme)
        if is_lent:
            new, origin = self.pools.lend(block.scheme, block.number), _POOL
        else:
            new, origin = self._new_names(block), _ALLOCATED
        owned = self._owned[sid]
        members = self._blocks[sid, key_of_block] if key_of_block else set[str]()
        for key, url in new.items():
            row = owned[key] = OwnedRow(sid, url, origin, key_of_block, block.is_guest)
            self._sid_of[key] = sid
            members.add(key)
            self._journal.put(_ADDRESSES, key, row)
        self._chars[sid] += len(key_of_block) * len(new) + sum(map(len, new.values()))
        for notify in self.notified:
            notify()
        if is_lent:  # for a new name nothing can have waited
            for key in new:
                self._note_depth(sid, key)
                self.arrivals.note(key)
        return list(new.values())

    def _new_names(self, block: Block) -> dict[str, str]:
        """Key and address of as many as a block asks for, none of them ever given out as far as we remember."""
        base, key_base = _bases(block.scheme, block.domain)
        new: dict[str, str] = {}
        number = 0
        while len(new) < block.number:
            name = identifier(block.seed, number)
            number += 1
            key = key_base + name
            if key not in self._sid_of and key not in self._used:
                new[key] = key if key_base is base else base + name
        return new

    def claim(self, sid: int, url: str, *, is_guest: bool = False) -> bool:
        """Give a session an address that its runtime made itself. False when it has another owner, or is of a pool.

        Raises:
            PeerError: QUOTA.

        Source: message specification, section 7.4.
        """
        key = canonical_key(url)
        owner = self.claimant(key)
        if owner is not None:
            return owner == sid
        if key in self.pools.keys:
            return False
        self.check_quota(sid, 1, chars=len(url))
        row = OwnedRow(sid=sid, url=url, origin=Origin.CLAIMED, is_guest=is_guest)
        self._insert(key, row)
        self._journal.put(Table.ADDRESSES, key, row)
        self.pending[key] = self._sid_of.pop(key)
        if not self.awaits_claims:
            self.confirm([key])
        return True

    def confirm(self, keys: Iterable[str]) -> None:
        """No other node has addresses that sessions have claimed here: they own them from now on."""
        for key in keys:
            sid = self.pending.pop(key, None)
            if sid is not None:
                self._sid_of[key] = sid
                for notify in self.notified:
                    notify()
                self.arrivals.note(key)

    def check_quota(self, sid: int, number: int, *, chars: int = 0) -> None:
        """Refuse when a session would own too much: so many addresses more, of so many characters together.

        Raises:
            PeerError: QUOTA.
        """
        if len(self._owned.get(sid, ())) + number > self.per_session:
            raise PeerError(Code.QUOTA, f"a session may own {self.per_session} addresses")
        if self._chars.get(sid, 0) + chars > NAMES_CHARS_PER_SESSION:
            raise PeerError(Code.QUOTA, f"addresses of a session may have {NAMES_CHARS_PER_SESSION} characters")

    def release_block(self, sids: Iterable[int], allocation_key: str) -> list[str]:
        """Release what any of the sessions (of one runtime) was allocated under a key. Return the released keys."""
        released = [key for sid in sorted(sids) for key in self.block(sid, allocation_key)]
        for key in released:
            self._disown(key)
        return released

    def release(self, sids: Collection[int], key: str) -> list[str] | None:
        """Release one address and what the sessions own below it.

        Returns:
            The released keys; [] when there is nothing to release, None when another session owns the address.

        Source: message specification, section 7.3.
        """
        owner = self.claimant(key)
        if owner is None:
            return []
        if owner not in sids:
            return None
        if key not in self._owned.get(owner, ()):
            return []  # a runtime address goes with its session only
        below = [other for sid in sids for other in beginning_with(key + "/", self._deep.get(sid, ()))]
        for released in (key, *below):
            self._disown(released)
        return [key, *below]

    def release_all(self, sid: int) -> list[str]:
        """Release everything that a session owns by allocation or claim. Return the released keys."""
        released = list(self._owned.get(sid, ()))
        for key in released:
            self._disown(key)
        return released

    def restore(self, rows: Rows, *, sids: Collection[int]) -> None:
        """Take over what was stored; rows of sessions that have ended are deleted.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            row = decode_row(raw, OwnedRow, table=Table.ADDRESSES, key=key)
            if row.sid in sids:
                self._insert(key, row)
            else:
                self._journal.delete(Table.ADDRESSES, key)

    # Inner steps.

    def _insert(self, key: str, row: OwnedRow) -> None:
        sid = row.sid
        self._sid_of[key] = sid
        self.pools.take(key)
        self._owned[sid][key] = row
        self._chars[sid] += _chars_of(row)
        self._note_depth(sid, key)
        if row.allocation_key:
            self._blocks[sid, row.allocation_key].add(key)

    def _note_depth(self, sid: int, key: str) -> None:
        """Remember an address that stands below something else that could be owned; new names never do."""
        if _is_deep(key):
            insort(self._deep[sid], key)

    def _disown(self, key: str) -> None:
        sid = self._sid_of.pop(key) if key in self._sid_of else self.pending.pop(key)
        row = self._owned[sid].pop(key)
        self._chars[sid] -= _chars_of(row)
        if not self._owned[sid]:
            del self._owned[sid], self._chars[sid]
        if sid in self._deep and _is_deep(key):
            deep = self._deep[sid]
            del deep[bisect_left(deep, key)]
            if not deep:
                del self._deep[sid]
        if row.allocation_key:
            block = self._blocks[sid, row.allocation_key]
            block.discard(key)
            if not block:
                del self._blocks[sid, row.allocation_key]
        if key in self.pools.keys:
            self.pools.give_back(key, row.url)
        elif row.origin is _ALLOCATED:
            self._used[key] = None
            if len(self._used) > TOMBSTONES:
                self._used.popitem(last=False)
        self._journal.delete(Table.ADDRESSES, key)
        for notify in self.notified:
            notify()


def _chars_of(row: OwnedRow) -> int:
    return len(row.url) + len(row.allocation_key)


@lru_cache(_CACHED_BASES)
def _bases(scheme: str, domain: str) -> tuple[str, str]:
    """Return the text before the name in a new address, and in its key; the same object if they are equal."""
    base = f"{scheme}://{domain}/"
    key_base = canonical_key(base + _ANY_NAME).removesuffix(_ANY_NAME)
    return base, base if key_base == base else key_base


def _is_deep(key: str) -> bool:
    """True when another address could stand above this one: there is a level below the first."""
    floor = _floor(key)
    return floor >= 0 and key.find("/", floor + 1) >= 0


def beginning_with(prefix: str, ordered: Sequence[str]) -> list[str]:
    """Those of some sorted texts that begin like this, without a look at the others."""
    first = end = bisect_left(ordered, prefix)
    while end < len(ordered) and ordered[end].startswith(prefix):
        end += 1
    return list(ordered[first:end])


def _floor(key: str) -> int:
    """Return the position of the first level of the path, -1 if there is none."""
    scheme_end = key.find("://")
    return key.find("/", scheme_end + 3 if scheme_end >= 0 else 0)


def is_below_any(key: str, bases: Collection[str]) -> bool:
    """True for one of some addresses or a sub-resource of one. A few look-ups, however many addresses there are."""
    return key in bases or any(above in bases for above in ancestors(key))


def ancestors(key: str) -> Iterator[str]:
    """The addresses above a sub-resource, nearest first, never an authority alone.

    `comm://d/o/children/n` -> `…/children`, `comm://d/o`; and `comm://d/o#1` -> `comm://d/o`.

    Only the first `ADDRESS_LEVELS` levels count, since nobody owns anything deeper: a long path costs no more than a
    short one.
    """
    floor = _floor(key)
    if floor < 0:
        return
    cuts = [mark.start() for mark in islice(PART_MARK.finditer(key, floor + 2), ADDRESS_LEVELS)]  # a name comes first
    for cut in reversed(cuts):
        yield key[:cut]
