"""The bus between processes: one proved connection per pair of nodes, dialled by the one whose name is less.

What strangers can cost: `HALF_OPEN_PER_ADDRESS` connections without a proof from one address and `HALF_OPEN_NODES` from
all, each for `PROOF_SECONDS` and `HELLO_BYTES`. When these run out, the oldest one of the address with the most gives
way, so that nodes come through.
Who has proved the key is a node of this domain, and is trusted as one. See `core.node_link` for what holds for contents
when a connection breaks, and `core.handshake` for the proof. Source: design, section 6.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Final

import trio

from msg_node.cluster.core.handshake import ABILITIES, NONCE_BYTES, Handshake, Hello
from msg_node.cluster.core.link_frames import FRAME_BYTES, Frame, FrameKind, FrameReader, frame
from msg_node.cluster.core.node_link import Action, Close, Met, NodeLink, Taken
from msg_node.cluster.node_bus import NodeBusUser
from msg_node.cluster.node_line import Address, LineSecurity, listen
from msg_node.kernel.congestion import Congestible
from protofly.errors import Code, HostError, PeerError, TransportError
from wire.byte_channel import ByteChannel
from wire.core.address_group import address_group
from wire.core.pending import Pending, PendingTable

logger = logging.getLogger("msg_node")

HALF_OPEN_NODES: Final = 64
HALF_OPEN_PER_ADDRESS: Final = 8
PROOF_SECONDS: Final = 5.0
TICK_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 0.1
RETRY_MAX_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 0.5
"""Longer than the other node waits for a runtime of its own that does not read, and so takes nothing from us."""
WRITTEN_BYTES: Final = 1 << 20
"""Most bytes that wait for the kernel before the next block is made."""
READ_BYTES: Final = 256 << 10
"""A Unix socket holds about as much. What one read brings is routed and written in one turn: more of it costs less."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Identity of this node on the bus.

    Attributes:
        domain: That it serves.
        node: Its name there.
        epoch: Under which this process holds the name.
        key: Of the cluster.
    """

    domain: str
    node: str
    epoch: int
    key: bytes


class LinkSenders:
    """Those who wait because a node does not keep up.

    Attributes:
        is_slow: Waiting was in vain: nobody waits again until the node has taken some.
    """

    patience_seconds = PATIENCE_SECONDS

    def __init__(self, link: NodeLink) -> None:
        self.is_slow = False
        self._link = link
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def is_congested(self) -> bool:
        """True if senders should pause."""
        return self._link.is_congested

    async def wait_relief(self) -> None:
        """Wait until the node has taken some."""
        await self._waiting.park()

    def look(self) -> None:
        """Let senders go on if the node has taken enough."""
        if self._link.is_relieved:
            self.is_slow = False
            self._waiting.unpark_all()


@dataclass(slots=True)
class _Proved:
    """A connection whose other end has proved the key: who it is, and what it has sent since."""

    channel: ByteChannel
    peer: Hello
    reader: FrameReader
    rest: list[Frame]


class _Partner:
    """Another node, as far as this process knows it: its link, and the connection that carries it now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.link = NodeLink(now=trio.current_time())
        self.senders = LinkSenders(self.link)
        self.channel: ByteChannel | None = None
        self.epoch = 0
        self.abilities: tuple[str, ...] = ()
        self.problem = ""

    def write(self) -> None:
        """Write what is due, unless the kernel has enough."""
        channel = self.channel
        if channel is not None and channel.backlog_bytes < WRITTEN_BYTES:
            channel.send_nowait(self.link.block(now=trio.current_time()))


class SocketNodeBus:
    """Connects this process with those of the other nodes.

    Args:
        identity: Who we are.
        address: Where we listen.
        members: Gives the addresses of the other nodes by name, as they are now.
        user: The node that is served.
    """

    def __init__(
        self, identity: NodeIdentity, address: Address, members: Callable[[], Mapping[str, str]], user: NodeBusUser
    ) -> None:
        self._identity = identity
        self._address = address
        self._members = members
        self._user = user
        self._process = token_hex(16)
        self._security = LineSecurity()
        self._partners: dict[str, _Partner] = {}
        self._dialled: set[str] = set()
        self._unwritten: set[_Partner] = set()
        self._half_open: PendingTable[Callable[[], None]] = PendingTable(
            most=HALF_OPEN_NODES, most_per_address=HALF_OPEN_PER_ADDRESS
        )
        self._nursery: trio.Nursery
        self.refused: Counter[str] = Counter()
        """Connections that were refused, by the word of the code."""
        self.listens_at = str(address)
        """Where we listen, with the port that the system chose."""

    # What the node uses.

    @property
    def connected(self) -> Collection[str]:
        """See `NodeBus`."""
        return [name for name, partner in self._partners.items() if partner.link.is_up]

    def send(self, node: str, content: bytes) -> Code | None:
        """See `NodeBus`."""
        partner = self._partners.get(node)
        if partner is None:
            return Code.NOT_CONNECTED
        code = partner.link.queue(content, now=trio.current_time())
        if code is None:
            self._unwritten.add(partner)
        return code

    def keep(self, node: str, content: bytes) -> bool:
        """See `NodeBus`."""
        partner = self._partners.get(node)
        if partner is None or partner.link.is_away(trio.current_time()):
            return False
        partner.link.keep(content)
        self._unwritten.add(partner)
        return True

    def congested(self, node: str) -> Congestible | None:
        """See `NodeBus`."""
        partner = self._partners.get(node)
        return partner.senders if partner is not None and partner.link.is_congested else None

    def is_able(self, node: str, ability: str) -> bool:
        """See `NodeBus`."""
        partner = self._partners.get(node)
        return partner is not None and partner.link.is_up and ability in partner.abilities

    def flush(self) -> None:
        """See `NodeBus`."""
        if self._unwritten:
            unwritten, self._unwritten = self._unwritten, set()
            for partner in unwritten:
                partner.write()

    def statistics(self) -> dict[str, object]:
        """State of every link, and counts of refused connections, for operators."""
        links = {
            name: {"up": one.link.is_up, "waiting": one.link.waiting, "problem": one.problem}
            for name, one in sorted(self._partners.items())
        }
        return {"listens_at": self.listens_at, "links": links, "refused": dict(self.refused)}

    # Running.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen, dial and keep the links until cancelled.

        Raises:
            SettingsError: The address cannot be used.
        """
        listeners = await listen(self._address)
        if not self._address.path:
            port = listeners[0].socket.getsockname()[1]
            self.listens_at = str(Address(self._address.host, port))
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(trio.serve_listeners, self._accept, listeners)
            self._dial_members()
            task_status.started()
            while True:
                await trio.sleep(TICK_SECONDS)
                self._dial_members()
                for partner in list(self._partners.values()):
                    self._tick(partner)

    def _tick(self, partner: _Partner) -> None:
        block, actions = partner.link.tick(trio.current_time())
        if partner.channel is not None:
            partner.channel.send_nowait(block)
        self._perform(partner, actions)
        partner.write()
        partner.senders.look()

    def _dial_members(self) -> None:
        for node in self._members():
            if node != self._identity.node:
                self._partners.setdefault(node, _Partner(node))
                if self._identity.node < node and node not in self._dialled:
                    self._dialled.add(node)
                    self._nursery.start_soon(self._dial, node)

    async def _dial(self, node: str) -> None:
        """Keep a node connected for as long as it is a member."""
        pause = RETRY_SECONDS
        partner = self._partners[node]
        while (address := self._members().get(node)) is not None:
            try:
                async with trio.open_nursery() as nursery:
                    proved = await self._reach(node, address, nursery)
                    pause = RETRY_SECONDS
                    await self._serve(partner, proved)
                    nursery.cancel_scope.cancel()
            except* (HostError, trio.TooSlowError, ValueError) as group:
                self._note(partner, group.exceptions[0])
            except* Exception:  # a defect of ours may cost this connection, never the node
                logger.exception("cluster: the connection with node %s failed", node)
            await trio.sleep(pause)
            pause = min(2 * pause, RETRY_MAX_SECONDS)
        self._dialled.discard(node)

    async def _reach(self, node: str, address: str, nursery: trio.Nursery) -> _Proved:
        with trio.fail_after(PROOF_SECONDS):
            channel, binding = await self._security.connect(Address.parse(address), nursery)
            return await self._prove(channel, binding, is_dialler=True, node=node)

    def _note(self, partner: _Partner, problem: BaseException) -> None:
        """Keep why a node cannot be reached, and log it once."""
        text = str(problem) or type(problem).__name__
        if text != partner.problem:
            logger.warning("cluster: no connection with node %s: %s", partner.name, text)
        partner.problem = text

    async def _accept(self, stream: trio.SocketStream) -> None:
        scope = trio.CancelScope()
        entry, displaced = self._half_open.enter(_caller(stream), scope.cancel)
        if displaced is not None:
            displaced.holder()
        if entry is None or displaced is not None:
            self.refused[Code.AUTH_LIMIT.word] += 1
        if entry is None:
            await stream.aclose()
            return
        try:
            async with trio.open_nursery() as nursery:
                with scope:
                    proved = await self._admit(stream, nursery, entry)
                if not scope.cancelled_caught:
                    await self._serve(self._partners[proved.peer.node], proved)
                nursery.cancel_scope.cancel()
        except* (HostError, trio.TooSlowError) as group:
            error = group.exceptions[0]
            code = error.code if isinstance(error, HostError) else Code.AUTH_STALE
            self.refused[code.word] += 1
        except* Exception:  # a defect of ours may cost this connection, never the node
            self.refused[Code.INTERNAL.word] += 1
            logger.exception("cluster: a connection of another node failed")

    async def _admit(
        self, stream: trio.SocketStream, nursery: trio.Nursery, entry: Pending[Callable[[], None]]
    ) -> _Proved:
        try:
            with trio.fail_after(PROOF_SECONDS):
                channel, binding = await self._security.accepted(stream, nursery)
                proved = await self._prove(channel, binding, is_dialler=False)
        finally:
            self._half_open.leave(entry)
        name = proved.peer.node
        self._partners.setdefault(name, _Partner(name))
        return proved

    async def _prove(self, channel: ByteChannel, binding: bytes, *, is_dialler: bool, node: str = "") -> _Proved:
        """Prove to each other that both know the key. Raises PeerError, TransportError."""
        reader, rest = FrameReader(), list[Frame]()
        try:
            handshake = Handshake(self._hello, self._identity.key, is_dialler=is_dialler, binding=binding, node=node)
            channel.send_nowait(handshake.begin())
            while handshake.verified is None:
                data = await channel.receive()
                if not data:
                    raise TransportError(Code.CONNECT_FAILED, "the other node closes the connection", phase="read")
                rest = reader.feed(data)
                while rest and handshake.verified is None:
                    channel.send_nowait(handshake.take(rest.pop(0)))
            known = self._partners.get(handshake.verified.node)
            if known is not None and handshake.verified.epoch < known.epoch:
                raise PeerError(Code.AUTH_STALE, "another process holds this name by now")
        except BaseException as exc:
            if isinstance(exc, PeerError):
                channel.send_nowait(frame(FrameKind.REFUSED, exc.code.word.encode()))
            channel.close()
            raise
        reader.max_bytes = FRAME_BYTES
        return _Proved(channel, handshake.verified, reader, rest)

    def _hello(self, node: str) -> Hello:
        """Our hello for a node, with what we have received of it."""
        identity, partner = self._identity, self._partners.get(node)
        return Hello(
            domain=identity.domain,
            node=identity.node,
            epoch=identity.epoch,
            process=self._process,
            nonce=token_hex(NONCE_BYTES),
            met_process="" if partner is None else partner.link.met_process,
            received=0 if partner is None else partner.link.received,
            abilities=ABILITIES,
        )

    async def _serve(self, partner: _Partner, proved: _Proved) -> None:
        """Carry a link until its connection ends. Raises PeerError."""
        channel, peer, frames = proved.channel, proved.peer, proved.rest
        if partner.channel is not None:
            partner.channel.close()
            partner.link.lost(trio.current_time())
        partner.channel, partner.epoch, partner.problem = channel, peer.epoch, ""
        partner.abilities = peer.abilities
        channel.on_drained, channel.receive_bytes = partner.write, READ_BYTES
        try:
            self._perform(partner, partner.link.connected(peer, self._process, now=trio.current_time()))
            while partner.channel is channel:
                self._perform(partner, partner.link.take(frames, now=trio.current_time()))
                partner.write()
                partner.senders.look()
                await self._user.wait_for_room()
                data = await channel.receive()
                if not data:
                    break
                frames = proved.reader.feed(data)
        except PeerError as exc:
            channel.send_nowait(frame(FrameKind.REFUSED, exc.code.word.encode()))
            raise
        finally:
            channel.close()
            if partner.channel is channel:
                partner.channel = None
                partner.link.lost(trio.current_time())

    def _perform(self, partner: _Partner, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Met):
                self._user.met(partner.name, is_new=action.is_new)
            elif isinstance(action, Taken):
                self._user.taken(partner.name, action.contents)
            elif isinstance(action, Close):
                self._note(partner, HostError(action.code, action.detail))
                if partner.channel is not None:
                    partner.channel.close()
                    partner.channel = None
            else:
                self._user.returned(partner.name, action.contents)


def _caller(stream: trio.SocketStream) -> str:
    """Who connects, as far as a bound goes: an address, a /64 of IPv6, or this machine."""
    try:
        host = stream.socket.getpeername()[0]
    except (OSError, IndexError):
        return ""
    return address_group(host) if isinstance(host, str) and host else ""
