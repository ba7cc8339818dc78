"""Keeps a stub of the operator that asks for it informed about the addresses of our domain that its domain may see.

A snapshot when the stub has become live, then changes, gathered for a moment. A stub that its own domain publishes
hears nothing of this, whatever its manifest asks for: each partner could list our users.
Source: docs/abi.md, "Events".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import trio

from federation.core.address_news import AddressNews
from federation.stubs.hosted_stub import HostedStub
from policy.core.engine import Facts
from policy.core.gate import Gate
from protofly.address import domain_of
from protofly.documents import TrustLevel
from protofly.errors import PeerError
from protofly.limits import STUB_ADDRESSES
from protofly.message import Message
from protofly.stub import VerifiedStub
from sandbox.core.exchange import GuestEvent

logger = logging.getLogger("federation")

_CHOSEN_LEVELS: Final = frozenset({TrustLevel.OPERATOR, TrustLevel.UNSIGNED})
_ADDRESSES: Final = "addresses"
"""The word by which a manifest asks for the news."""
GATHER_SECONDS: Final = 0.1
_PROBES: Final = ("create", "read", "subscribe")
"""An address may be seen if the gate `in` lets one of these requests pass."""


def hears_addresses(stub: VerifiedStub) -> bool:
    """True for a stub that asks for our addresses and was chosen by the operator, who answers for what it does."""
    return stub.level in _CHOSEN_LEVELS and _ADDRESSES in stub.manifest.events


class OurAddresses(Protocol):
    """The addresses of our domain."""

    def now(self, domain: str) -> Iterable[str]:
        """All that runtimes of ours have now; of those at other nodes, what these let a foreign domain see."""

    def follow(self, domain: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Have `notify` called after each change, on behalf of a foreign domain; returns what ends that."""


class SeenAddresses:
    """Changes of our addresses for one foreign domain, limited to those that it may see.

    Args:
        domain: The foreign domain.
        gate: Says which of our addresses its users may write to, read or observe.
    """

    def __init__(self, domain: str, gate: Gate) -> None:
        self._domain = domain
        self._gate = gate
        self._news = AddressNews(STUB_ADDRESSES, self._may_see)
        self._revision = ""

    def restart(self) -> None:
        """Nothing is known there: the next news are a snapshot."""
        self._news.restart()

    def news(self, addresses: Iterable[str]) -> list[GuestEvent]:
        """Compare these addresses, which are all there are now, with those shown: return what to show."""
        revision = self._gate.policies.revision
        if revision != self._revision:  # other rules: everything is judged anew
            self._revision = revision
            self._news.restart()
        events = self._news.news(addresses)
        if self._news.left_out:
            logger.warning(
                "the stub of %s hears of %d addresses of ours only; %d more are left out",
                self._domain,
                STUB_ADDRESSES,
                self._news.left_out,
                extra={"domain": self._domain},
            )
        return events

    def _may_see(self, address: str) -> bool:
        try:
            ours = domain_of(address)
        except PeerError:
            return False
        now, link_class = time.time(), self._gate.class_of(self._domain)
        for type_ in _PROBES:
            probe = Message(b"1", type_, f"hyperty://{self._domain}/any", address, b"", b"{}")
            facts = Facts("in", probe, self._domain, ours, self._domain, 0, 0, now, link_class=link_class)
            if self._gate.explain(facts).verdict.permitted:
                return True
        return False


class AddressFeed:
    """The news for the stub of one domain.

    Args:
        domain: The foreign domain.
        gate: Says which of our addresses its users may write to, read or observe.
        addresses: Ours.
    """

    def __init__(self, domain: str, gate: Gate, addresses: OurAddresses) -> None:
        self._domain = domain
        self._addresses = addresses
        self._seen = SeenAddresses(domain, gate)
        self._moved = trio.Event()

    def begin(self) -> None:
        """The stub has become live: it hears a snapshot next."""
        self._seen.restart()
        self._moved.set()

    async def run(self, stub: HostedStub) -> None:
        """Inform a stub until cancelled."""
        stop = self._addresses.follow(self._domain, self._note)
        try:
            while True:
                await self._moved.wait()
                self._moved = trio.Event()
                if stub.is_live:
                    await self._inform(stub)
                await trio.sleep(GATHER_SECONDS)
        finally:
            stop()

    def _note(self) -> None:
        self._moved.set()

    async def _inform(self, stub: HostedStub) -> None:
        for event in self._seen.news(self._addresses.now(self._domain)):
            await stub.running.wait_for_room()
            if not stub.is_live:
                return  # a snapshot follows when it is live again
            stub.running.emit(event)
