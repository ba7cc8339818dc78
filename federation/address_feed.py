"""Keeps a stub of the operator that asks for it informed about the addresses of our domain that its domain may see.

A snapshot when the stub has become live, then changes, gathered for a moment. A stub that its own domain publishes
hears nothing of this, whatever its manifest asks for: each partner could list our users.
Source: docs/abi.md, "Events".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import trio

from federation.core.address_news import AddressNews
from federation.hosted_stub import HostedStub
from policy.core.engine import Facts
from policy.core.gate import Gate
from protofly.address import domain_of
from protofly.documents import TrustLevel
from protofly.errors import PeerError
from protofly.limits import STUB_ADDRESSES
from protofly.message import Message
from protofly.stub import VerifiedStub

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

    def __iter__(self) -> Iterator[str]:
        """All that runtimes of ours have now."""

    def on_change(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Have `notify` called after each change; returns what ends that."""


class AddressFeed:
    """The news for the stub of one domain.

    Args:
        domain: The foreign domain.
        gate: Says which of our addresses its users may write to, read or observe.
        addresses: Ours.
    """

    def __init__(self, domain: str, gate: Gate, addresses: OurAddresses) -> None:
        self._domain = domain
        self._gate = gate
        self._addresses = addresses
        self._news = AddressNews(STUB_ADDRESSES, self._may_see)
        self._revision = ""
        self._moved = trio.Event()

    def begin(self) -> None:
        """The stub has become live: it hears a snapshot next."""
        self._news.restart()
        self._moved.set()

    async def run(self, stub: HostedStub) -> None:
        """Inform a stub until cancelled."""
        stop = self._addresses.on_change(self._note)
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
        revision = self._gate.policies.revision
        if revision != self._revision:  # other rules: everything is judged anew
            self._revision = revision
            self._news.restart()
        events = self._news.news(self._addresses)
        if self._news.left_out:
            logger.warning(
                "the stub of %s hears of %d addresses of ours only; %d more are left out",
                self._domain,
                STUB_ADDRESSES,
                self._news.left_out,
                extra={"domain": self._domain},
            )
        for event in events:
            await stub.running.wait_for_room()
            if not stub.is_live:
                return  # a snapshot follows when it is live again
            stub.running.emit(event)

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
