"""For which aliases of a peer its documents speak: looked up under each alias's own name, and held against the peer's.

Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Protocol

import trio

from catalogue_client.core.aliases import why_no_alias
from catalogue_client.core.state import DomainTrust
from federation.core.alias_rules import AliasRules
from federation.log_allowance import LogAllowance
from protofly.errors import HostError
from protofly.limits import ALIAS_SECONDS, ALIASES_PER_PEER

logger = logging.getLogger("federation")

LOG_LINES_PER_MINUTE = 60
"""Of all peers together: what they claim is as often wrong as they like."""


class AliasTrustOf(Protocol):
    """Gives the verified documents of an alias, by our own discovery."""

    async def __call__(self, alias: str, *, of: str) -> DomainTrust:
        """Documents of `alias`, which `of` claims."""


class Aliases:
    """Says which of the domains that a peer claims are aliases of it.

    Args:
        trust_of: Asked for names that may be aliases, and for no others.
    """

    def __init__(self, rules: AliasRules, trust_of: AliasTrustOf) -> None:
        self.rules = rules
        self._trust_of = trust_of
        self._log_lines = LogAllowance(LOG_LINES_PER_MINUTE)

    async def proved(self, main: DomainTrust, claimed: Iterable[str]) -> frozenset[str]:
        """The names among `claimed` that are listed or proved aliases of `main` now.

        All are looked up at once, and no longer than `ALIAS_SECONDS`: what has not been found by then does not count
        yet. Of many names, only the first `ALIASES_PER_PEER` in order are looked up. Rules that change meanwhile count.
        Never raises.
        """
        listed = self.rules.listed(main.domain)
        names = frozenset(claimed)
        proved = set(names & listed)
        wanted = sorted(name for name in names - listed if self.rules.may_be_alias(name, main.domain))
        if not wanted:
            return frozenset(proved)
        with trio.move_on_after(ALIAS_SECONDS):
            async with trio.open_nursery() as nursery:
                for name in wanted[:ALIASES_PER_PEER]:
                    nursery.start_soon(partial(self._prove, name, main, proved))
        unlisted = listed - self.rules.listed(main.domain)
        return frozenset(name for name in proved if name not in unlisted and self.rules.may_be_alias(name, main.domain))

    async def _prove(self, name: str, main: DomainTrust, proved: set[str]) -> None:
        try:
            why = why_no_alias(await self._trust_of(name, of=main.domain), main)
        except HostError as exc:
            why = f"its documents cannot be had: {exc}"
        if why and self._log_lines.takes("refused"):
            logger.info("%s claims the alias %s, which is none: %s", main.domain, name, why)
        if not why:
            proved.add(name)
