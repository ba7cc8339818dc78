"""What the settings say about other domains: an entry for each peer, with its buckets, and lists of domains.

The most specific name counts. All domains that an entry fits share its rates and quotas: more names are not more rate.
Source: trust and hosts, section 5.3; message specification, section 21, rows 48 to 52.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from policy.core.model import LinkClass
from policy.core.patterns import DomainPattern, parents, parse_domain_pattern
from policy.core.quotas import Quota, Quotas
from policy.core.rates import UNLIMITED, Bucket, RateLimit, TypeRate, make_bucket
from protofly.address import valid_domain
from protofly.errors import PeerError, SettingsError

_REST: Final = DomainPattern("*")

DefaultEffect = Literal["permit", "deny"]


class PeerRule(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one peer: its default and its rates, each direction counted by itself.

    `rates` are those of single types, besides `rate`, which is that of all; `quotas` are volumes of longer times.
    `p2p`: runtimes of both domains may set up connections of their own, which then no gate sees. `link_class`: what is
    known of those who speak there. `may_receive`: labels of data that may go there where consent is required.
    """

    default: DefaultEffect = "permit"
    rate: RateLimit = UNLIMITED
    rates: tuple[TypeRate, ...] = ()
    quotas: tuple[Quota, ...] = ()
    p2p: bool = True
    link_class: LinkClass = "node"
    may_receive: frozenset[str] = frozenset()


class PeerEntry:
    """One entry of the settings with its two buckets.

    All domains that it fits share them: more names are not more rate.
    """

    __slots__ = ("inbound", "name", "outbound", "rule")

    def __init__(self, name: str, rule: PeerRule, quotas: Quotas) -> None:
        self.name = name
        self.rule = rule
        self.inbound = quotas.bucket(name, "in", make_bucket(rule.rate, rule.rates), rule.quotas)
        self.outbound = quotas.bucket(name, "out", make_bucket(rule.rate, rule.rates), rule.quotas)

    def bucket(self, hook: str) -> Bucket | None:
        """The bucket that messages at a hook have to pass, None for none."""
        return self.inbound if hook == "in" else self.outbound if hook == "out" else None


class PeerEntries:
    """The entries of all peers.

    Args:
        peers: Settings by domain or `*.domain`.
        quotas: Where their volumes are counted.

    Raises:
        SettingsError: A name that is no domain pattern or is given twice, or a rate that is not more than 0.
    """

    def __init__(self, peers: Mapping[str, PeerRule], quotas: Quotas) -> None:
        self._quotas = quotas
        self._entries = _checked_entries(peers, quotas)

    def find(self, domain: str) -> PeerEntry:
        """The entry that fits a domain most closely, `UNNAMED` when none does."""
        for pattern in patterns_for(domain):
            if pattern in self._entries:
                return self._entries[pattern]
        return UNNAMED

    def names(self, domain: str) -> bool:
        """True if an entry is for this domain alone."""
        return domain in self._entries and domain != _REST

    def with_others(self, peers: Mapping[str, PeerRule]) -> PeerEntries:
        """Other entries; of those that are the same, rates go on.

        Raises:
            SettingsError: As when entries are made; then nothing has changed.
        """
        found = PeerEntries(peers, Quotas())
        found._quotas, entries = self._quotas, found._entries
        for name, before in self._entries.items():
            if name in entries and entries[name].rule == before.rule:
                entries[name] = before
            else:
                self._quotas.forget(name)
        for name, entry in entries.items():
            if entry is not self._entries.get(name):
                entries[name] = PeerEntry(name, entry.rule, self._quotas)
        return found


class DomainLists:
    """Domains that pass, and that do not, whatever rules and entries say.

    Args:
        allow: If given, only these pass; empty: nobody does.
        deny: These do not, unless `allow` names them more specifically.
        cut_off: Nor do these, whatever `allow` says.

    Raises:
        SettingsError: A name that is no domain pattern.
    """

    def __init__(self, allow: Sequence[str] | None, deny: Sequence[str], cut_off: Iterable[str] = ()) -> None:
        self._allow = None if allow is None else frozenset(map(parse_domain_pattern, allow))
        self._deny = frozenset(map(parse_domain_pattern, deny))
        self._cut_off = frozenset(map(parse_domain_pattern, cut_off))

    def with_lists(self, allow: Sequence[str] | None, deny: Sequence[str]) -> DomainLists:
        """Other lists of the settings. Raises SettingsError."""
        return DomainLists(allow, deny, self._cut_off)

    def with_cut_off(self, patterns: Iterable[str]) -> DomainLists:
        """Other domains that are cut off. Raises SettingsError."""
        found = DomainLists(None, ())
        found._allow, found._deny = self._allow, self._deny
        found._cut_off = frozenset(map(parse_domain_pattern, patterns))
        return found

    def let_pass(self, domain: str) -> bool:
        """The most specific name decides, deny before allow; with an allow list, whom nothing names stays out."""
        if self._cut_off and not self._cut_off.isdisjoint(patterns_for(domain)):
            return False
        for pattern in patterns_for(domain):
            if pattern in self._deny:
                return False
            if self._allow is not None and pattern in self._allow:
                return True
        return self._allow is None


OWN_BUS: Final[Mapping[DefaultEffect, PeerEntry]] = {
    "permit": PeerEntry("", PeerRule(), Quotas()),
    "deny": PeerEntry("", PeerRule(default="deny"), Quotas()),
}
"""Entries for the own bus, by its default decision."""
UNNAMED: Final = PeerEntry("", PeerRule(default="deny"), Quotas())


def patterns_for(domain: str) -> Iterable[str]:
    """Every pattern that fits a domain, the most specific first. What is no domain name fits none, not even `*`."""
    try:
        valid_domain(domain)
    except PeerError:
        return
    yield domain
    for parent in parents(domain):
        yield f"*.{parent}"
    yield _REST


def _checked_entries(peers: Mapping[str, PeerRule], quotas: Quotas) -> dict[str, PeerEntry]:
    entries: dict[str, PeerEntry] = {}
    for name, rule in peers.items():
        pattern = parse_domain_pattern(name)
        if pattern in entries:
            raise SettingsError(f'the peer "{pattern}" has two entries: keep one')
        try:
            entries[pattern] = PeerEntry(pattern, rule, quotas)
        except SettingsError as exc:
            raise SettingsError(f'peer "{pattern}": {exc.detail}') from exc
    return entries
