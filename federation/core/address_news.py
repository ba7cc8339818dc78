"""What one stub knows of our addresses, and what it has to hear to know those of now.

Source: foreign nodes, section 2; docs/abi.md, "Events".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sandbox.core.exchange import FLAG_SNAPSHOT, Event, GuestEvent

CHUNK_BYTES: Final = 32 << 10
"""Bytes of one event at most, but for the last line."""


class AddressNews:
    """The addresses that a stub has heard of.

    Args:
        most: How many it hears of at most; what is beyond is left out, in the order of the addresses.
        may_see: Whether the policy lets the foreign domain see an address.
    """

    def __init__(self, most: int, may_see: Callable[[str], bool]) -> None:
        self._most = most
        self._may_see = may_see
        self._known: dict[str, None] = {}
        self._hidden: set[str] = set()
        self._has_begun = False
        self.left_out = 0

    def restart(self) -> None:
        """Forget what the stub knows and what was judged: the next news are a snapshot."""
        self._known, self._hidden, self._has_begun = {}, set(), False

    def news(self, addresses: Iterable[str]) -> list[GuestEvent]:
        """The events that make the stub know these addresses, as far as it may; the first ones ever are a snapshot."""
        now = dict.fromkeys(addresses)
        self._hidden.intersection_update(now)
        removed = [address for address in self._known if address not in now]
        for address in removed:
            del self._known[address]
        added: list[str] = []
        self.left_out = 0
        for address in now:
            if address in self._known or address in self._hidden:
                continue
            if not self._may_see(address):
                self._hidden.add(address)
            elif len(self._known) >= self._most:
                self.left_out += 1
            else:
                self._known[address] = None
                added.append(address)
        is_snapshot, self._has_begun = not self._has_begun, True
        events = [GuestEvent(Event.ADDRESSES, 0, chunk) for chunk in _chunks(removed, added)]
        if is_snapshot:
            events = events or [GuestEvent(Event.ADDRESSES, 0, b"")]
            events[0] = events[0]._replace(flags=FLAG_SNAPSHOT)
        return events


def _chunks(removed: Sequence[str], added: Sequence[str]) -> list[bytes]:
    """One line per address, in pieces of whole lines."""
    chunks: list[bytes] = []
    chunk = bytearray()
    for sign, every in (("-", removed), ("+", added)):
        for address in every:
            chunk += f"{sign}{address}\n".encode()
            if len(chunk) >= CHUNK_BYTES:
                chunks.append(bytes(chunk))
                chunk.clear()
    return [*chunks, bytes(chunk)] if chunk else chunks
