"""The addresses of a domain of several nodes, for stubs that are shown them.

A stub runs at one node. Its node asks the others for what its domain may see there; each says it as a snapshot, and
then what changes, gathered for a moment. Each judges by its own gate, so no more crosses than the stub may hear of.
A node that is met (again) is asked again, and begins with a snapshot: nothing that was lost on the way is missed. What
a node that has died had is forgotten; its runtimes have it again where they come back. Source: docs/abi.md, "Events".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import trio

from federation.stubs.address_feed import GATHER_SECONDS, OurAddresses, SeenAddresses
from msg_node.cluster.core.handshake import ADDRESSES
from msg_node.cluster.core.node_contents import (
    SHOW,
    SHOW_NO_MORE,
    SHOWN,
    Shown,
    decode_shown,
    key_content,
    key_of,
)
from msg_node.cluster.node_bus import NodeBus
from sandbox.core.exchange import FLAG_SNAPSHOT

LOOK_SECONDS: Final = 1.0
"""Between two looks for nodes that have died, while anything of other nodes is known."""


class AddressesOfNodes:
    """Addresses of this node and of the others; see `OurAddresses`.

    Args:
        own: Those of runtimes here.
        sees: What is new to a domain, as far as it may see it.
        is_dead: Whether a node has died or left.

    Attributes:
        bus: Where other nodes are reached; set once, before anything runs.
    """

    def __init__(self, own: OurAddresses, sees: Callable[[str], SeenAddresses], is_dead: Callable[[str], bool]) -> None:
        self._own = own
        self._sees = sees
        self._is_dead = is_dead
        self._followers: dict[str, list[Callable[[], None]]] = {}
        self._shown: dict[tuple[str, str], dict[str, None]] = {}  # by node and domain
        self._asked: dict[tuple[str, str], SeenAddresses] = {}  # the same: by whom, and for which
        self._stop: Callable[[], None] | None = None
        self._moved = trio.Event()
        self.bus: NodeBus

    def now(self, domain: str) -> Iterator[str]:
        """See `OurAddresses`."""
        yield from self._own.now(domain)
        for (_, of_domain), addresses in sorted(self._shown.items()):
            if of_domain == domain:
                yield from addresses

    def follow(self, domain: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `OurAddresses`."""
        stop_own = self._own.follow(domain, notify)
        followers = self._followers.setdefault(domain, [])
        followers.append(notify)
        if len(followers) == 1:
            for node in self.bus.connected:
                self._ask(node, domain)
            self.bus.flush()

        def stop() -> None:
            stop_own()
            followers.remove(notify)
            if not followers:
                self._leave(domain)

        return stop

    def met(self, node: str) -> None:
        """Another node is connected (again): it is asked, and asks us, anew."""
        self._forget_asker(node)
        for domain in self._followers:
            self._ask(node, domain)

    def take(self, node: str, content: bytes) -> bool:
        """Take a content of another node; False if it is about something else. Raises PeerError: PROTOCOL_ERROR."""
        kind = content[:1]
        if kind == SHOW:
            self._asked[node, key_of(content)] = self._sees(key_of(content))
            self._stop = self._stop or self._own.follow("", self._wake)
            self._wake()
        elif kind == SHOW_NO_MORE:
            self._asked.pop((node, key_of(content)), None)
            self._rest_if_unasked()
        elif kind == SHOWN:
            self._learn(node, decode_shown(content))
        else:
            return False
        return True

    async def run(self) -> None:
        """Say what has changed to those who have asked, and forget what the dead had, until cancelled."""
        while True:
            with trio.move_on_after(LOOK_SECONDS if self._shown else float("inf")):
                await self._moved.wait()
            self._moved = trio.Event()
            self._say_news()
            for node, domain in [one for one in self._shown if self._is_dead(one[0])]:
                del self._shown[node, domain]
                self._notify(domain)
            await trio.sleep(GATHER_SECONDS)

    def _say_news(self) -> None:
        for node in {node for node, _ in self._asked}.difference(self.bus.connected):
            self._forget_asker(node)
        for (node, domain), seen in self._asked.items():
            for event in seen.news(self._own.now(domain)):
                shown = Shown(domain, bool(event.flags & FLAG_SNAPSHOT), event.payload)
                self.bus.keep(node, shown.encode())
        self.bus.flush()

    def _learn(self, node: str, shown: Shown) -> None:
        if shown.domain not in self._followers:
            return  # it was on its way when we wanted it no more
        known = self._shown.setdefault((node, shown.domain), {})
        if shown.is_snapshot:
            known.clear()
        for line in shown.lines.decode().splitlines():
            if line.startswith("+"):
                known[line[1:]] = None
            else:
                known.pop(line[1:], None)
        self._notify(shown.domain)
        self._wake()

    def _notify(self, domain: str) -> None:
        for notify in self._followers.get(domain, ()):
            notify()

    def _ask(self, node: str, domain: str) -> None:
        if self.bus.is_able(node, ADDRESSES):
            self.bus.keep(node, key_content(SHOW, domain))

    def _leave(self, domain: str) -> None:
        """Nobody here wants to know any more."""
        del self._followers[domain]
        for key in [one for one in self._shown if one[1] == domain]:
            del self._shown[key]
        for node in self.bus.connected:
            if self.bus.is_able(node, ADDRESSES):
                self.bus.keep(node, key_content(SHOW_NO_MORE, domain))
        self.bus.flush()

    def _forget_asker(self, node: str) -> None:
        for key in [one for one in self._asked if one[0] == node]:
            del self._asked[key]
        self._rest_if_unasked()

    def _rest_if_unasked(self) -> None:
        if not self._asked and self._stop is not None:
            self._stop()
            self._stop = None

    def _wake(self) -> None:
        self._moved.set()
