"""What a rule lets pass at most: a rate or a volume, for all together or each domain, sender or recipient.

A limit has a name and a text that says all of it, which is the value of the obligation `limit`: so it is part of the
policies, of their revision and of what is replayed. Counts of volumes belong to name, period and whom they count: they
go on when the limit changes, and over restarts.

Strangers choose the addresses that are counted one by one. So each domain has so many of them, and all together have
so many; who comes when no place is left shares one count with the others of that domain. Places without anything in
them are given away then, at most once a second.
Source: trust and hosts, section 5.3, rule 8; message specification, section 15.3.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from policy.core.attributes import ATTRIBUTES
from policy.core.model import Facts
from policy.core.quotas import Counted, Period, Quota, QuotaBucket
from policy.core.rates import BothBuckets, Bucket, RateBucket, RateLimit
from protofly.errors import SettingsError
from protofly.limits import LIMIT_PLACES, LIMIT_PLACES_PER_DOMAIN

By = Literal["all", "domain", "sender", "recipient"]

LIMIT_KEYS: Final = ("by", "messages_per_second", "bytes_per_second", "burst_seconds", "per", "messages", "bytes")
"""Keys of a limit in a policy file, in the order of its text."""
BURST_SECONDS: Final = 2.0

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PREFIX: Final = "limit:"
"""Begins the names of counts; that of an entry is a domain pattern, and has no colon."""
_OTHERS: Final = "*"
"""Who shares a count because there was no place left; no address and no domain."""
_SWEEP_SECONDS: Final = 1.0


class Limit(msgspec.Struct, frozen=True):
    """One limit of a policy file.

    Attributes:
        text: All that it says.
        name: Of the limit in its file.
        by: Whom it counts one by one.
        rate: What may pass in a second, None without one.
        quota: What may pass in a longer time, None without one.
    """

    text: str
    name: str
    by: By
    rate: RateLimit | None
    quota: Quota | None


class _Words(msgspec.Struct, forbid_unknown_fields=True):
    by: By = "domain"
    messages_per_second: float | None = None
    bytes_per_second: float | None = None
    burst_seconds: float | None = None
    per: Period | None = None
    messages: int | None = None
    bytes: int | None = None


def parse_limit(text: str) -> Limit:
    """Read the text of a limit: its name, then `key=value`.

    Raises:
        SettingsError: It makes no sense.
    """
    name, *pairs = text.split(" ")
    if not _NAME.fullmatch(name) or not all("=" in pair for pair in pairs):
        raise SettingsError(f"limit: {text[:64]!r} does not begin with a name: letters, digits and `._-`, at most 64")
    try:
        words = msgspec.convert(dict(pair.split("=", 1) for pair in pairs), _Words, strict=False)
    except (msgspec.ValidationError, ValueError) as exc:
        raise SettingsError(f"limit {name}: {exc}") from exc
    return Limit(text, name, words.by, _rate_of(name, words), _quota_of(name, words))


def _rate_of(name: str, words: _Words) -> RateLimit | None:
    if words.messages_per_second is None and words.bytes_per_second is None:
        if words.burst_seconds is not None:
            raise SettingsError(f"limit {name}: burst_seconds goes with messages_per_second or bytes_per_second")
        if words.per is None:
            raise SettingsError(f"limit {name}: it needs messages_per_second, bytes_per_second, or per")
        return None
    burst = BURST_SECONDS if words.burst_seconds is None else words.burst_seconds
    rate = RateLimit(
        messages_per_second=words.messages_per_second, bytes_per_second=words.bytes_per_second, burst_seconds=burst
    )
    try:
        RateBucket(rate)
    except SettingsError as exc:
        raise SettingsError(f"limit {name}: {exc.detail}") from exc
    return rate


def _quota_of(name: str, words: _Words) -> Quota | None:
    volumes = [volume for volume in (words.messages, words.bytes) if volume is not None]
    if (words.per is None) is not (not volumes):
        raise SettingsError(f"limit {name}: give per together with messages or bytes")
    if any(volume <= 0 for volume in volumes):
        raise SettingsError(
            f"limit {name}: messages and bytes must be more than 0; to let nothing pass, write a rule that denies"
        )
    return None if words.per is None else Quota(per=words.per, messages=words.messages, bytes=words.bytes)


class LimitCount(NamedTuple):
    """The used part of a limit, for one key. `key` is "" for all together, `*` for those who share a count."""

    limit: Limit
    key: str
    counted: Counted | None


class _Place(NamedTuple):
    """The count of one sender, recipient or domain: whom it is charged to, and what is counted."""

    owner: str
    key: str
    rate: RateBucket | None
    volume: QuotaBucket | None
    bucket: Bucket
    name: str

    def is_empty(self, now: float) -> bool:
        """True if a new one would let as much pass."""
        return (self.rate is None or self.rate.is_empty(now)) and (
            self.volume is None or now >= self.volume.counted.until
        )


_WHO: Final[Mapping[By, Callable[[Facts], object]]] = {
    "all": lambda _facts: "",
    "domain": lambda facts: facts.link_domain or facts.from_domain,
    "sender": lambda facts: ATTRIBUTES["msgFrom"].read(facts) or facts.message.from_,
    "recipient": lambda facts: ATTRIBUTES["msgTo"].read(facts) or facts.message.to,
}


class Limits:
    """Counts for all limits.

    Args:
        counted: Volumes by name, kept over restarts by somebody else.
        on_given_away: Called when places were given to others: buckets have to be asked for again.
    """

    def __init__(self, counted: dict[str, Counted], on_given_away: Callable[[], None]) -> None:
        self._counted = counted
        self._on_given_away = on_given_away
        self._places: dict[str, tuple[Limit, dict[str, _Place]]] = {}
        self._of_owner: Counter[tuple[str, str]] = Counter()
        self._taken = 0
        self._swept = 0.0

    def bucket(self, limit: Limit, facts: Facts) -> Bucket:
        """The bucket that one message has to pass."""
        found = self._places.get(limit.text)
        if found is None:
            found = self._places[limit.text] = limit, {}
        places = found[1]
        key = str(_WHO[limit.by](facts))
        place = places.get(key)
        return (place or self._new_place(limit, places, key, facts)).bucket

    def keep_only(self, limits: set[Limit]) -> None:
        """Other policies are in force: what no limit of theirs counts is forgotten, volumes aside."""
        texts = {limit.text for limit in limits}
        for text in [text for text in self._places if text not in texts]:
            limit, places = self._places.pop(text)
            for place in places.values():
                self._release(limit, place)

    def __iter__(self) -> Iterator[LimitCount]:
        for _, (limit, places) in sorted(self._places.items()):
            for place in places.values():
                yield LimitCount(limit, place.key, None if place.volume is None else place.volume.counted)

    def _new_place(self, limit: Limit, places: dict[str, _Place], key: str, facts: Facts) -> _Place:
        owner = facts.link_domain
        if not self._has_place(limit, owner):
            self._sweep(facts.now)
        if limit.by != "all" and not self._has_place(limit, owner):
            is_known = self._of_owner[limit.name, owner] > 0
            key, owner = f"{_OTHERS} {owner}" if is_known else _OTHERS, ""
            if (place := places.get(key)) is not None:
                return place
        place = places[key] = self._made(limit, key, owner)
        self._of_owner[limit.name, owner] += 1
        self._taken += 1
        return place

    def _has_place(self, limit: Limit, owner: str) -> bool:
        """Our own runtimes are no strangers: together they may have half of all places."""
        most = LIMIT_PLACES_PER_DOMAIN if owner else LIMIT_PLACES // 2
        return self._taken < LIMIT_PLACES and self._of_owner[limit.name, owner] < most

    def _made(self, limit: Limit, key: str, owner: str) -> _Place:
        name = count_name(limit, key)
        rate = None if limit.rate is None else RateBucket(limit.rate)
        volume = None
        if limit.quota is not None:
            volume = QuotaBucket(limit.quota, self._counted.setdefault(name, Counted()))
        both = [one for one in (rate, volume) if one is not None]
        return _Place(owner, key, rate, volume, both[0] if len(both) == 1 else BothBuckets(*both), name)

    def _sweep(self, now: float) -> None:
        """Give empty places away, and forget volumes whose period is over."""
        if 0.0 <= now - self._swept < _SWEEP_SECONDS:
            return
        self._swept = now
        before = self._taken
        for limit, places in self._places.values():
            for key in [key for key, place in places.items() if place.is_empty(now)]:
                self._release(limit, places.pop(key))
        held = {place.name for _, places in self._places.values() for place in places.values()}
        for name in [name for name, one in self._counted.items() if _has_ended(name, one, now) and name not in held]:
            del self._counted[name]
        if self._taken != before:
            self._on_given_away()

    def _release(self, limit: Limit, place: _Place) -> None:
        self._taken -= 1
        self._of_owner[limit.name, place.owner] -= 1


def count_name(limit: Limit, key: str) -> str:
    """The name under which a volume is kept over restarts; addresses are hashed, they may name people."""
    if limit.by in ("sender", "recipient") and not key.startswith(_OTHERS):
        key = hashlib.sha256(key.encode()).hexdigest()[:24]
    per = "" if limit.quota is None else limit.quota.per
    return f"{_PREFIX}{limit.name} {key} {per}"


def is_of_limit(name: str) -> bool:
    """True if a count is that of a limit of a rule, and not of an entry for a domain."""
    return name.startswith(_PREFIX)


def kept_counts(counted: Mapping[str, Counted], now: float) -> dict[str, Counted]:
    """Select the stored counts for a start: without ended periods, and the largest ones first."""
    of_limits = [name for name in counted if is_of_limit(name)]
    going_on = [name for name in of_limits if not _has_ended(name, counted[name], now)]
    going_on.sort(key=lambda name: counted[name].bytes, reverse=True)
    left_out = set(of_limits) - set(going_on[:LIMIT_PLACES])
    return {name: one for name, one in counted.items() if name not in left_out}


def _has_ended(name: str, counted: Counted, now: float) -> bool:
    return is_of_limit(name) and counted.until <= now
