"""Settings of what partners hand in at the site for our pipeline: `[exchange]`."""

from __future__ import annotations

from collections.abc import Iterator

from msg_node.settings.problem import Problem
from msg_node.settings.tables.exchange import ExchangeSettings
from protofly.address import valid_domain
from protofly.errors import PeerError
from protofly.signatures import KeyRecord, is_usable


def exchange_problems(exchange: ExchangeSettings | None) -> Iterator[Problem]:
    """Check names and keys."""
    seen: set[str] = set()
    for index, one in enumerate(exchange.partner if exchange else ()):
        path = ("exchange", "partner", index)
        try:
            valid_domain(one.domain)
        except PeerError as exc:
            yield (*path, "domain"), f"{one.domain!r} is not a domain name: {exc.detail}"
        if one.domain in seen:
            yield (*path, "domain"), f"a second entry for {one.domain}"
        seen.add(one.domain)
        if not all(is_usable(KeyRecord(alg="ed25519", pub=pub)) for pub in one.keys):
            yield (*path, "keys"), "a key is malformed or weak"
