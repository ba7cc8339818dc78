"""A hostile domain: its documents and keys are genuine, and what its node says is not.

It proves itself to each partner like an honest node, and then does what of `core.misdeeds` is switched on. When its
connection is closed it comes back.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from random import Random
from secrets import token_bytes
from typing import Final

import trio

from federation.core.link_frames import encode_messages
from interop.authority import DevelopmentAuthority
from interop.domain_files import HOST
from interop.hostile.core.misdeeds import MISDEEDS, lie, noise_frames, noise_messages
from interop.lab.link_peer import READ_BYTES, LinkLine, LinkPeer
from protofly.signatures import SigningKey

_COME_BACK_SECONDS: Final = 0.3
_VISIT_SECONDS: Final = 10.0
_HALF_OPEN: Final = 8
_CHANCES: Final = 1 << 30
_LOST: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError, AssertionError, ValueError, ssl.SSLError)
Addresses = Callable[[], Mapping[str, str]]
"""Names of the runtimes of the scene, by their addresses."""


class HostileDomain:
    """One hostile domain.

    Attributes:
        active: Names of the misdeeds that it does now; may be changed at any time.
        forged: How many messages in the name of others it has sent.
        done: How often it has done each misdeed.
        connections: How often partners welcomed it.
    """

    def __init__(
        self, name: str, keys: Path, authority: DevelopmentAuthority, targets: Mapping[str, int], *, per_second: float
    ) -> None:
        """Prepare a domain.

        Args:
            name: Its name.
            keys: The folder with its node key.
            authority: Who certifies everybody.
            targets: Its partners, with the ports of their link endpoints on loopback.
            per_second: How often it does something to each of them.
        """
        self.name = name
        self.active: set[str] = set()
        self.forged = 0
        self.done = dict.fromkeys(MISDEEDS, 0)
        self.connections = 0
        self._pause_seconds = 1 / per_second
        self._targets = dict(targets)
        [file] = keys.glob("node-*.pem")
        key = SigningKey.from_pem(file.stem, file.read_bytes())
        self._peer = LinkPeer(name, key)
        self._stranger = LinkPeer(name, SigningKey.from_seed(key.key_id, token_bytes(32)))
        self._client_context = authority.client_context()
        self._server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server_context.load_cert_chain(*authority.certificate_for(name))
        self._choice = Random(name)  # noqa: S311 - which lie comes next is no secret

    async def listen(self, port: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be the link endpoint that its documents name, until cancelled."""

        async def serve(stream: trio.SocketStream) -> None:
            encrypted = trio.SSLStream(stream, self._server_context, server_side=True, https_compatible=True)
            try:
                async with encrypted:
                    await self._peer.serve(encrypted)
            except _LOST:
                return

        listeners = await trio.open_tcp_listeners(port, host=HOST)
        task_status.started()
        await trio.serve_listeners(serve, listeners)

    async def attack(self, addresses: Addresses) -> None:
        """Misbehave towards all partners until cancelled."""
        async with trio.open_nursery() as nursery:
            for domain in self._targets:
                nursery.start_soon(self._attack, domain, addresses)
                nursery.start_soon(self._approach, domain)

    async def _attack(self, target: str, addresses: Addresses) -> None:
        while True:
            with trio.move_on_after(_VISIT_SECONDS):
                await self._visit(target, addresses)
            await trio.sleep(_COME_BACK_SECONDS)

    async def _visit(self, target: str, addresses: Addresses) -> None:
        try:
            line = await self._peer.visit(target, self._targets[target], self._client_context)
            self.connections += 1
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_drain, line, nursery.cancel_scope)
                    nursery.start_soon(self._misbehave, line, target, addresses)
            finally:
                await trio.aclose_forcefully(line.stream)
        except* _LOST:
            pass

    def _active(self, *ways: str) -> list[str]:
        return [name for name, misdeed in MISDEEDS.items() if misdeed.way in ways and name in self.active]

    async def _misbehave(self, line: LinkLine, target: str, addresses: Addresses) -> None:
        number = 1
        while True:
            for name in self._active("lie", "noise"):
                messages = noise_messages(name, self.name, target)
                if MISDEEDS[name].way == "lie":
                    forged = lie(name, self.name, target, addresses(), self._choice.randrange(_CHANCES))
                    messages = [] if forged is None else [(0, forged)]
                    self.forged += len(messages)
                numbered = [(given or number + index, raw) for index, (given, raw) in enumerate(messages)]
                number += len(messages)
                # One frame for each number that is out of order: frames hold consecutive ones.
                frames = chain.from_iterable(encode_messages([one]) for one in numbered)
                self.done[name] += 1
                await line.send(*frames, *noise_frames(name, token_bytes(64)))
                await trio.sleep(self._pause_seconds)
            await trio.sleep(self._pause_seconds)

    async def _approach(self, target: str) -> None:
        while True:
            for name in self._active("connection"):
                self.done[name] += 1
                with trio.move_on_after(_VISIT_SECONDS):
                    await self._connect(name, target)
            await trio.sleep(self._pause_seconds)

    async def _connect(self, name: str, target: str) -> None:
        try:
            if name == "forged-token":
                line = await self._stranger.visit_unproved(target, self._targets[target], self._client_context)
                await line.close_reason()
                await trio.aclose_forcefully(line.stream)
            else:
                await self._stay_silent(target)
        except _LOST:
            return

    async def _stay_silent(self, target: str) -> None:
        """Hold some connections until the node ends the first of them."""
        streams = [await trio.open_tcp_stream(HOST, self._targets[target]) for _ in range(_HALF_OPEN)]
        try:
            while await streams[0].receive_some(READ_BYTES):
                pass
        finally:
            for stream in streams:
                await trio.aclose_forcefully(stream)


async def _drain(line: LinkLine, scope: trio.CancelScope) -> None:
    """Read until the line ends, then end the attack on it. Nothing is answered: another task writes."""
    try:
        while await line.stream.receive_some(READ_BYTES):
            pass
    finally:
        scope.cancel()


def switch(hostile: HostileDomain, orders: Iterable[str]) -> list[str]:
    """Switch misdeeds on (`+name` or `name`) and off (`-name`); returns those that are no misdeeds."""
    wrong = []
    for order in orders:
        name = order.lstrip("+-")
        if name not in MISDEEDS:
            wrong.append(name)
        elif order.startswith("-"):
            hostile.active.discard(name)
        else:
            hostile.active.add(name)
    return wrong
