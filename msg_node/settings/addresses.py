"""Checks and rules from the settings of addresses, subscriptions and routing.

Source: message specification, sections 7 to 9 and 20.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msg_node.addresses.core.missed import Missed
from msg_node.kernel.resources import is_reserved
from msg_node.kernel.rules import Rules
from msg_node.settings.model import Settings
from msg_node.settings.problem import Problem
from msg_node.settings.tables.addresses import PoolSettings
from protofly.address import canonical_key, domain_of, scheme_of
from protofly.errors import PeerError


def address_problems(settings: Settings) -> Iterator[Problem]:
    """Check the fields of `[[allocation.pool]]` against each other."""
    seen_schemes: set[str] = set()
    seen_keys: set[str] = set()
    for index, pool in enumerate(settings.allocation.pool):
        place = ("allocation", "pool", index)
        if is_reserved(pool.scheme) or pool.scheme == "hyperty":
            yield (*place, "scheme"), f"addresses of the scheme {pool.scheme} are not lent"
        if pool.scheme in seen_schemes:
            yield (*place, "scheme"), f"a second pool for {pool.scheme}"
        seen_schemes.add(pool.scheme)
        for text in _wrong_addresses(pool, seen_keys):
            yield (*place, "addresses"), text


def twin_problems(settings: Settings) -> Iterator[Problem]:
    """Check `[twin]`."""
    for index, text in enumerate(settings.twin.objects):
        try:
            key = canonical_key(text.removesuffix("/*"))
            is_ours = domain_of(key) in settings.own_domains
        except PeerError:
            is_ours = False
        if not is_ours:
            yield ("twin", "objects", index), f"{text!r} is no address of our own domain"


def kept_objects(settings: Settings) -> list[str]:
    """Keys of the objects whose attributes the twin keeps."""
    return [
        canonical_key(text.removesuffix("/*")) + ("/*" if text.endswith("/*") else "") for text in settings.twin.objects
    ]


def _wrong_addresses(pool: PoolSettings, seen_keys: set[str]) -> Iterator[str]:
    for url in pool.addresses:
        try:
            key = canonical_key(url)
        except PeerError:
            yield f"{url!r} is not an address"
            continue
        if scheme_of(key) != pool.scheme:
            yield f"{url} is not of the scheme {pool.scheme}"
        elif key in seen_keys:
            yield f"{url} is there twice"
        seen_keys.add(key)


def build_rules(settings: Settings) -> Rules:
    """The switches that the cores read."""
    return Rules(
        learns=settings.routing.learn,
        shares_domain=bool(settings.cluster.listen),
        resolves_users=settings.routing.users,
        echoes=settings.compat.echo,
        reporter_only=settings.routing.reporter_only,
        strict_release=settings.allocation.strict_release,
        require_consent=settings.subscriptions.require_consent,
        keeps_registered=settings.compat.keep_registered,
        sm_error=settings.compat.sm_error,
        guest_addresses=settings.limits.allocation_per_guest_domain,
        expands_schema=settings.subscriptions.expand_schema,
        taps=settings.subscriptions.taps,
        thing_roles=frozenset(settings.delivery.thing_roles),
    )


def build_pools(settings: Settings) -> Mapping[str, Sequence[str]]:
    """Addresses to lend, by scheme."""
    return {pool.scheme: pool.addresses for pool in settings.allocation.pool}


def build_missed(settings: Settings) -> Missed | None:
    """Make the store of changes for observers that are away; None if it is off."""
    chosen = settings.subscriptions
    if not chosen.catch_up_seconds:
        return None
    return Missed(seconds=chosen.catch_up_seconds, messages=chosen.catch_up_messages)
