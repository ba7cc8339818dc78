"""What is known about foreign domains: where they are, that they are not, or that we leave them alone for a while.

Three tables with bounds of their own: places whose documents were accepted, places that nobody has proved yet (every
name has one: its own port 443), and failures of names without a place. A flood of random names therefore cannot push
out good ones. A domain with a place keeps its back-off beside it.

    find ──▶ Known (fresh)     Blocked (negative or back-off, with the seconds left)     None (ask)

Times are seconds since the epoch. Source: trust and hosts, section 2.5.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from catalogue_client.core.location import Location
from federation.core import backoff
from federation.core.backoff import Backoff
from federation.core.discovery_errors import Failure
from federation.core.resolution import Resolved
from protofly import limits
from protofly.errors import Code

_UNREACHABLE: Final = frozenset({Code.CONNECT_FAILED, Code.DNS_FAILED, Code.NO_SUCH_DOMAIN})


@dataclass(frozen=True, slots=True)
class Known:
    """A place to go to. `is_refresh_due`: ask again in the background."""

    location: Location
    is_refresh_due: bool


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nobody is asked now: why, how long still, and whether the domain itself said no (negative) or the line failed."""

    failure: Failure
    retry_after_seconds: float
    is_negative: bool


@dataclass(slots=True)
class _Block:
    """The last failure of a domain; it stays after its time is over, so that failures in a row are counted."""

    failure: Failure
    backoff: Backoff
    is_negative: bool

    def at(self, now: float) -> Blocked | None:
        if self.backoff.is_over(now):
            return None
        return Blocked(self.failure, self.backoff.retry_at - now, self.is_negative)


@dataclass(slots=True)
class _Place:
    """The place of a domain. `valid_at`: when its documents were last accepted, 0 for never."""

    locations: tuple[Location, ...]
    refresh_at: float
    expires_at: float
    valid_at: float
    index: int = 0
    block: _Block | None = None


@dataclass(slots=True)
class DiscoveryCache:
    """Bounded memory of a resolver. Each table forgets what was used least recently."""

    max_domains: int = limits.DISCOVERY_DOMAINS
    max_negative_domains: int = limits.DISCOVERY_NEGATIVE_DOMAINS
    _proved: OrderedDict[str, _Place] = field(default_factory=OrderedDict)
    _unproved: OrderedDict[str, _Place] = field(default_factory=OrderedDict)
    _blocks: OrderedDict[str, _Block] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._proved) + len(self._unproved)

    @property
    def negative_count(self) -> int:
        """Domains remembered for their failures only."""
        return len(self._blocks)

    def find(self, domain: str, *, now: float) -> Known | Blocked | None:
        """Return the entry of a domain, None without one that is still good."""
        place = self._place(domain)
        block = place.block if place else self._blocks.get(domain)
        blocked = block.at(now) if block else None
        if blocked is not None:
            return blocked
        if place is None or now >= place.expires_at:
            return None
        self._table(place).move_to_end(domain)
        return Known(place.locations[place.index], now >= place.refresh_at)

    def was_recently_valid(self, domain: str, *, now: float) -> bool:
        """True when the domain's documents were accepted within the last two hours: an error is then an accident."""
        place = self._place(domain)
        return place is not None and place.valid_at > 0.0 and now - place.valid_at < limits.RECENTLY_VALID_SECONDS

    def store(self, domain: str, resolved: Resolved, *, now: float) -> Location:
        """Remember where a domain is; the location to try first."""
        old = self._remove(domain)
        place = _Place(
            resolved.locations,
            refresh_at=backoff.refresh_at(now, resolved.life_seconds),
            expires_at=now + resolved.life_seconds,
            valid_at=old.valid_at if old else 0.0,
            block=old.block if old else self._blocks.pop(domain, None),
        )
        self._put(domain, place)
        return place.locations[0]

    def stale(self, domain: str, *, now: float) -> Location | None:
        """A place that is out of date, to be used because name servers do not answer; believed for two minutes more.

        The documents found there carry their own expiry, so this can delay a move but not bring back old trust.
        """
        place = self._place(domain)
        if place is None:
            return None
        place.expires_at = max(place.expires_at, now + limits.RECENTLY_VALID_RETRY_SECONDS)
        return place.locations[place.index]

    def failed(self, failure: Failure, *, now: float, draw: float, is_waiting: bool = True) -> float:
        """Remember a failure; seconds until the next attempt is allowed.

        A target that cannot be reached costs no pause when another is in reserve: the next attempt goes there.
        """
        place = self._place(failure.domain)
        if place is not None and failure.code in _UNREACHABLE:
            place.index = (place.index + 1) % len(place.locations)
            if place.index:
                return 0.0
        old = place.block if place else self._blocks.get(failure.domain)
        failures = old.backoff if old else Backoff()
        if failure.is_temporary:
            state = failures.after_failure(now=now, draw=draw, is_waiting=is_waiting)
        else:
            recently = self.was_recently_valid(failure.domain, now=now)
            life = backoff.negative_life_seconds(failure.life_seconds, was_recently_valid=recently, draw=draw)
            state = Backoff(failures.failures + 1, now + life)
        self._block(failure.domain, _Block(failure, state, is_negative=not failure.is_temporary))
        return state.retry_at - now

    def succeeded(self, domain: str, *, now: float) -> None:
        """The domain's documents were accepted: forget its failures."""
        self._blocks.pop(domain, None)
        place = self._remove(domain)
        if place is not None:
            place.valid_at = now
            place.block = None
            self._put(domain, place)

    def forget_failures(self) -> int:
        """Forget all failures, as the operator asks; returns how many domains had one. Places stay."""
        failed = [place for table in (self._proved, self._unproved) for place in table.values() if place.block]
        count = len(failed) + len(self._blocks)
        for place in failed:
            place.block = None
        self._blocks.clear()
        return count

    def _block(self, domain: str, block: _Block) -> None:
        place = self._place(domain)
        if place is not None:
            place.block = block
            return
        self._blocks[domain] = block
        self._blocks.move_to_end(domain)
        while len(self._blocks) > self.max_negative_domains:
            self._blocks.popitem(last=False)

    def _place(self, domain: str) -> _Place | None:
        return self._proved.get(domain) or self._unproved.get(domain)

    def _table(self, place: _Place) -> OrderedDict[str, _Place]:
        return self._proved if place.valid_at else self._unproved

    def _put(self, domain: str, place: _Place) -> None:
        """Last in its table, which does not have the domain."""
        table = self._table(place)
        table[domain] = place
        most = self.max_domains if place.valid_at else self.max_negative_domains
        while len(table) > most:
            table.popitem(last=False)

    def _remove(self, domain: str) -> _Place | None:
        return self._proved.pop(domain, None) or self._unproved.pop(domain, None)
