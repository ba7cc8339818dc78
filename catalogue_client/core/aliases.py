"""Decides if one domain is an alias of another: both have to say so, with the same root keys.

What a root names as an alias is a claim. It holds when the alias's own documents, found and verified under its own
name, name the main domain as well and carry the same root key set. Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from catalogue_client.core.state import TrustState
from catalogue_client.core.trust import current_root
from protofly.documents import Root, TrustLevel, key_set_fingerprint


class Believed(Protocol):
    """A domain with the root that is believed of it."""

    @property
    def domain(self) -> str:
        """The name under which the root was found."""

    @property
    def level(self) -> TrustLevel:
        """Trust level of the first root: that of the anchor that its history met."""

    @property
    def root(self) -> Root:
        """The current root."""


def why_no_alias(alias: Believed, main: Believed) -> str:
    """Check that two domains name each other as aliases with the same root keys; returns the reason if not, else "".

    Args:
        alias: Verified documents of the alias, found under its own name.
        main: Verified documents of the domain that claims it.
    """
    if alias.domain not in main.root.aliases:
        return f"the root of {main.domain} does not name it"
    if main.domain not in alias.root.aliases:
        return f"its own root does not name {main.domain}"
    if key_set_fingerprint(alias.root) != key_set_fingerprint(main.root):
        return f"its root keys are not those of {main.domain}"
    if alias.level.strength < main.level.strength:
        return f"its documents are of level {alias.level.value}, those of {main.domain} of level {main.level.value}"
    return ""


@dataclass(frozen=True, slots=True)
class _Stored:
    domain: str
    level: TrustLevel
    root: Root


def stored_aliases(main: TrustState, load: Callable[[str], TrustState | None]) -> Iterator[str]:
    """Yield the names that are aliases of a domain by what is stored of both.

    Args:
        main: What is stored of the domain.
        load: Gives what is stored of another one; None if nothing is.

    Raises:
        PeerError: What is stored of one of them cannot be read.
    """
    believed = _stored(main)
    if believed is None:
        return
    for name in believed.root.aliases:
        found = load(name)
        alias = None if found is None else _stored(found)
        if alias is not None and not why_no_alias(alias, believed):
            yield name


def _stored(state: TrustState) -> _Stored | None:
    return _Stored(state.domain, state.level, current_root(state)) if state.root_version else None
