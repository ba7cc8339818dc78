"""A hostile domain: its documents and keys are genuine, and what its node says is not.

It proves itself to each domain of the scene like an honest node, and then misbehaves, as often as the scene says.
When its connection is closed it comes back.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from secrets import token_bytes
from typing import Final

import trio

from federation.core.link_frames import encode_messages
from interop.authority import DevelopmentAuthority
from interop.domain_files import HOST
from interop.lab.core.scene import Domain, Misdeed
from interop.lab.link_peer import READ_BYTES, LinkLine, LinkPeer, message
from protofly.signatures import SigningKey

_COME_BACK_SECONDS: Final = 0.3
_VISIT_SECONDS: Final = 10.0
_LOST = (trio.BrokenResourceError, trio.ClosedResourceError, OSError, AssertionError, ValueError, ssl.SSLError)
Addresses = Callable[[], Mapping[str, str]]
"""Names of the runtimes of the scene, by their addresses."""


class HostileDomain:
    """One hostile domain. `forged` counts the messages in the name of others that it has sent."""

    def __init__(self, domain: Domain, keys: Path, authority: DevelopmentAuthority, targets: Mapping[str, int]) -> None:
        self.name = domain.name
        self.forged = 0
        self.connections = 0
        self._does = domain.does
        self._pause_seconds = 1 / domain.per_second
        self._targets = dict(targets)
        [file] = keys.glob("node-*.pem")
        self._peer = LinkPeer(domain.name, SigningKey.from_pem(file.stem, file.read_bytes()))
        self._client_context = authority.client_context()
        self._server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server_context.load_cert_chain(*authority.certificate_for(domain.name))
        self._choice = Random(domain.name)  # noqa: S311 - which lie comes next is no secret

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
        """Misbehave towards all targets until cancelled."""
        async with trio.open_nursery() as nursery:
            for domain in self._targets:
                nursery.start_soon(self._attack, domain, addresses)

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

    async def _misbehave(self, line: LinkLine, target: str, addresses: Addresses) -> None:
        number = 1
        while True:
            for misdeed in self._does:
                if misdeed == "garbage":
                    await line.send(token_bytes(64))
                elif (lie := self._lie(misdeed, target, addresses())) is not None:
                    await line.send(*encode_messages([(number, lie)]))
                    number += 1
                    self.forged += 1
                await trio.sleep(self._pause_seconds)

    def _lie(self, misdeed: Misdeed, target: str, addresses: Mapping[str, str]) -> bytes | None:
        """A message to a runtime of the target, in the name of another runtime of the same domain or of a third."""
        here = [one for one in addresses if one.split("/")[2] == target]
        there = [one for one in addresses if one.split("/")[2] != target]
        liars = here if misdeed == "forge-ours" else there
        if not here or not liars:
            return None
        to, from_ = self._choice.choice(here), self._choice.choice(liars)
        key = [addresses[from_], addresses[to], self._choice.randrange(1, 50)]
        return message(from_, to, value={"key": key, "pad": "forged"})


async def _drain(line: LinkLine, scope: trio.CancelScope) -> None:
    """Read until the line ends, then end the attack on it. Nothing is answered: another task writes."""
    try:
        while await line.stream.receive_some(READ_BYTES):
            pass
    finally:
        scope.cancel()
