"""Connections that have proved nothing yet, counted by where they come from.

Theory of operation. Strangers decide how many connections they open, so a table of them is bounded twice: so many of
one address, so many in all. If the second bound alone decided, one address could fill the table and all others would be
refused. Here a full table makes room instead: the address with the most entries gives up its oldest one. One with a
single entry loses it only if no address has more than one; then the wider network with the most entries gives (`/48`
of IPv6, `/24` of IPv4), since one attacker has many addresses of one network.

An entry may be marked as waiting for us: its client has done its part, and goes only if everything of its address waits
for us. Entries are kept in the order in which they came, so that no clock is needed.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")
_WIDER_BITS = {4: 24, 6: 48}
_COMPARED_ADDRESSES = 128
"""So many addresses are compared to find the one to displace: a full table costs no more than an empty one."""


class Pending(Generic[T]):
    """One connection in the table.

    Attributes:
        address: What it counts for; see `address_group`.
        holder: What ends it, for the caller.
        waits_for_us: The client has done its part of the handshake, and we have not done ours yet.
    """

    __slots__ = ("address", "holder", "waits_for_us")

    def __init__(self, address: str, holder: T) -> None:
        self.address = address
        self.holder = holder
        self.waits_for_us = False


class PendingTable(Generic[T]):
    """All connections that have proved nothing yet.

    Args:
        most: So many entries in all.
        most_per_address: So many of one address.
        replaces_own: Whether a further connection of an address that has its share displaces the oldest one of the same
            address, or is refused.
    """

    def __init__(self, *, most: int, most_per_address: int, replaces_own: bool = False) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._replaces_own = replaces_own
        self._entries: dict[str, dict[Pending[T], None]] = {}
        self._count = 0
        self._levels: list[dict[str, None]] = [{}]
        self._networks: Counter[str] = Counter()
        self._network_of: dict[str, str] = {}

    def __len__(self) -> int:
        return self._count

    def bound(self, *, most: int, most_per_address: int) -> None:
        """Let other bounds count for connections that come from now on."""
        self._most, self._most_per_address = most, most_per_address

    def count_of(self, address: str) -> int:
        """Count the entries of an address."""
        return len(self._entries.get(address, ()))

    def enter(self, address: str, holder: T) -> tuple[Pending[T] | None, Pending[T] | None]:
        """Take in one connection.

        Returns:
            Its entry, None if it is refused; and the entry that it has displaced, which the caller ends. The displaced
            entry has left the table.
        """
        displaced = None
        if self.count_of(address) >= self._most_per_address:
            displaced = self._replaceable(address) if self._replaces_own else None
            if displaced is None:
                return None, None
        elif self._count >= self._most:
            displaced = self._oldest_of(self._greediest())
        if displaced is not None:
            self.leave(displaced)
        entry = Pending(address, holder)
        entries = self._entries.get(address)
        if entries is None:
            entries = self._entries[address] = {}
            self._network_of[address] = _wider(address)
        entries[entry] = None
        self._count += 1
        self._networks[self._network_of[address]] += 1
        self._levels[len(entries) - 1].pop(address, None)
        if len(entries) == len(self._levels):
            self._levels.append({})
        self._levels[len(entries)][address] = None
        return entry, displaced

    def leave(self, entry: Pending[T]) -> None:
        """A connection has proved what it had to, or has ended. May be called again."""
        entries = self._entries.get(entry.address)
        if entries is None or entry not in entries:
            return
        address, network = entry.address, self._network_of[entry.address]
        del self._levels[len(entries)][address]
        del entries[entry]
        self._count -= 1
        self._networks[network] -= 1
        if not self._networks[network]:
            del self._networks[network]
        if entries:
            self._levels[len(entries)][address] = None
        else:
            del self._entries[address], self._network_of[address]

    def _replaceable(self, address: str) -> Pending[T] | None:
        return next((entry for entry in self._entries[address] if not entry.waits_for_us), None)

    def _oldest_of(self, address: str) -> Pending[T]:
        return self._replaceable(address) or next(iter(self._entries[address]))

    def _greediest(self) -> str:
        """The address with the most entries; of several, one of the network with the most, and there the first."""
        tied = next(level for level in reversed(self._levels) if level)
        return max(islice(tied, _COMPARED_ADDRESSES), key=lambda address: self._networks[self._network_of[address]])


def _wider(address: str) -> str:
    """The network around an address or around the `/64` that stands for many, as text; itself if it is neither."""
    try:
        parsed = ipaddress.ip_network(address)
    except ValueError:
        return address
    bits = _WIDER_BITS[parsed.version]
    return str(parsed.supernet(new_prefix=min(bits, parsed.prefixlen)))
