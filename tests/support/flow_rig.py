"""One node's bus over real links, driven frame by frame without sockets: what sessions send, and what became of it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from federation.core.stub_status import StubAddresses
from federation.links.decision_records import DecisionRecords
from federation.links.domain_link import DomainLink
from federation.links.flow_table import FlowMode
from federation.links.router import Federation
from msg_node.bus.middleware import MessageStep
from msg_node.bus.runtime_port import RuntimePort, RuntimeQueue
from msg_node.kernel.session import Line
from msg_node.storage.state_file import StateFile
from msg_node.storage.state_store import StateStore
from policy.core.gate import Gate
from protofly.codec import body_members
from protofly.errors import PeerError
from protofly.message import Message
from tests.support.runtime_rig import DOMAIN, FOREIGN, SESSION, RuntimeRig, a_message, runtime_address
from tests.support.sides import Bus, Clock, MemoryCarrier, everybody, node_of

_RETRY = re.compile(rb'"retryAfter":[0-9.]+|"msgId":"[0-9a-f]{32}"')
_TIMES = ("ts_us", "d_policy_us", "d_total_us", "d_peer_us", "retry_after_us")


class KeptMessages:
    """The channel of a runtime that reads everything at once."""

    silent_periods = 2
    stuck_seconds = 30.0
    is_closed = False
    takes_more = True

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, messages: list[bytes]) -> None:
        self.sent += messages

    def ping(self) -> None:
        pass

    def close(self, code: int, reason: str) -> None:
        pass

    def drop(self) -> None:
        pass


class FlowRig:
    """A node of `alpha.example` whose sessions are ports, and whose links are carried by lists."""

    def __init__(
        self, folder: Path, gate: Gate, flows: FlowMode, steps: Sequence[tuple[str, MessageStep]], *, has_own_gate: bool
    ) -> None:
        self.node = RuntimeRig(
            StateStore(StateFile(folder / "state.sqlite")),
            credentials=(),
            ping_seconds=30.0,
            max_hops=8,
            gate=gate,
            flows=flows,
            steps=steps,
            has_own_gate=has_own_gate,
        )
        self.gate = gate
        clock = Clock(0.0, lambda: 100.0)
        self.side = Bus(DOMAIN, gate=gate, clock=clock, flows=flows, deliver_to=self.node.bus.from_links.take)
        self.federation = Federation(
            self.side.context,
            DecisionRecords(gate, self.side.records.append),
            StubAddresses(node_of(DOMAIN), b"secret"),
            supervise=_never_ending,
        )
        self.node.bus.send_queues.links = self.federation
        self.channels: dict[str, KeptMessages] = {}
        self.ports: dict[str, RuntimePort] = {}
        self._sids: dict[str, int] = {}
        self._brought = 0
        self.learned = self.node.bus.from_sessions._flows.router.learned  # type: ignore[attr-defined]

    # Sessions.

    def open(self, name: str) -> RuntimePort:
        """A runtime with a session."""
        channel = self.channels[name] = KeptMessages()
        bus = self.node.bus
        port = RuntimePort(Line(len(self.ports) + 1), RuntimeQueue(channel, counters=bus.counters), now=0.0)
        self.ports[name] = port
        bus.runtimes.connected(port)
        self.say(name, a_message("open", runtime_address(name), SESSION, id_=1))
        assert port.sid is not None
        self._sids[name] = port.sid
        return port

    def give(self, name: str, address: str) -> None:
        """Have a runtime own an address that nobody has."""
        self.node.state.owners.claim(self.sid(name), address)

    def sid(self, name: str) -> int:
        """The session of a runtime, at its begin."""
        return self._sids[name]

    def say(self, name: str, *messages: dict[str, Any]) -> None:
        """Send messages as programs write them, in one read."""
        self.write(name, *(json.dumps(one, separators=(",", ":")).encode() for one in messages))

    def write(self, name: str, *frames: bytes) -> None:
        """Send frames in one read; the bus takes them in as many turns as it needs, while nobody has to pause."""
        port, left = self.ports[name], list(frames)
        while left and not port.queue.is_closing:
            left = left[self.node.bus.from_sessions.take(port, left) :]
            if port.blockers:
                port.blockers.clear()
                for link in self.federation.links:  # none after one was cut off
                    link.senders.is_slow = True
        port.queue.flush()

    # Links.

    @property
    def link(self) -> DomainLink:
        """The link to the foreign domain."""
        [link] = [one for one in self.federation.links if one.domain == FOREIGN]
        return link

    def carry(self) -> MemoryCarrier:
        """Have the link carried; what it is given stays on the way."""
        carrier = MemoryCarrier(self.link)
        carrier.is_blocked = True
        carrier.open()
        return carrier

    def bring(self, *texts: bytes) -> bool:
        """The far end sends texts, in one frame; True when its carrier is to end."""
        link = self.link
        carrier = link.machine.carriers[0] if link.machine.carriers else None
        numbered = [(self._brought + index, one) for index, one in enumerate(texts, 1)]
        self._brought += len(texts)
        try:
            link.inbound(numbered, "7" * 32, carrier)
        except PeerError:
            return True
        finally:
            for port in self.ports.values():
                port.queue.flush()
        return False

    def heard(self, name: str) -> list[dict[str, Any]]:
        """What was sent to a runtime, but for replies."""
        return [one for one in map(json.loads, self.channels[name].sent) if one["type"] != "response"]

    # What became of it.

    def outcome(self) -> dict[str, Any]:
        """Everything that a message can lead to, without times, and without ids, which come from them."""
        for port in self.ports.values():
            port.queue.flush()  # when it is written depends on how busy the node is, by the clock
        links = self.federation.links
        return {
            "answers": {
                name: [_RETRY.sub(b"", one) for one in channel.sent] for name, channel in self.channels.items()
            },
            "queued": [[_shown(one) for one in link.queue] for link in links],
            "numbers": {link.domain: link.counters.shown() for link in links},
            "counted": self.node.counters.shown(),
            "records": [_recorded(record) for record in self.side.records],
            "expected": [len(link.machine.replies) for link in links],
            "congested": [link.queue.is_congested for link in links],
            "denied": self.gate.denied,
        }

    def queued(self) -> list[dict[str, object]]:
        """Bodies of the messages that wait for the foreign domain."""
        return [body_members(one.message.body) for one in self.link.queue]


async def _never_ending(_link: DomainLink) -> None:
    await trio.sleep_forever()


def _shown(pending: Any) -> dict[str, Any]:
    members: dict[str, Any] = {name: getattr(pending, name) for name in pending.__struct_fields__}
    message: Message = members.pop("message")
    hex_id = members.pop("msg_id").hex().encode()
    members["message"] = (message.id, message.type, message.from_, message.to, message.body, message.raw)
    members["wire"] = members["wire"].replace(hex_id, b"<id>")
    return {name: value for name, value in members.items() if name not in ("ts_us", "policy_us", "flow")}


def _recorded(record: Any) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.to_builtins(record)
    return {name: value for name, value in members.items() if name not in (*_TIMES, "msg_id")}


@asynccontextmanager
async def flow_rig(
    folder: Path,
    *,
    gate: Gate | None = None,
    flows: FlowMode = "on",
    steps: Sequence[tuple[str, MessageStep]] = (),
    has_own_gate: bool = True,
) -> AsyncIterator[FlowRig]:
    """A node with runtimes `ana` and `bob`, which own `ANA` and `BOB`, two others, and a link that is up."""
    async with trio.open_nursery() as nursery:
        rig = FlowRig(folder, gate or everybody(), flows, steps, has_own_gate=has_own_gate)
        await nursery.start(rig.federation.run)
        for name in ("ana", "bob", "eve", "guest"):
            rig.open(name)
        rig.give("ana", ANA)
        rig.give("bob", BOB)
        rig.say("ana", event(0))
        rig.carry()
        yield rig
        nursery.cancel_scope.cancel()


ANA = f"hyperty://{DOMAIN}/ana"
BOB = f"hyperty://{DOMAIN}/bob"
BO = f"hyperty://{FOREIGN}/bo"
HOPS = (node_of(FOREIGN), f"{node_of(FOREIGN)}/protostub/1")


def from_bo(number: int, *, via: Sequence[str] = HOPS, **members: Any) -> bytes:
    """A message of a flow as the far node sends it: with its trailer."""
    members = {"from_": BO, "to": ANA} | members
    return with_trailer(json.dumps(event(number, **members), separators=(",", ":")).encode(), number, via)


def with_trailer(text: bytes, number: int, via: Sequence[str] = HOPS) -> bytes:
    """A text with its id for the records, which is made of a number, and the nodes that it has passed."""
    hops = json.dumps(via, separators=(",", ":"))
    return text[:-2] + f',"trace":"mn:{number:032x}","via":{hops}}}}}'.encode()


def event(number: int, *, type_: str = "event", from_: str = ANA, to: str = BO, **body: object) -> dict[str, Any]:
    """A message of a flow."""
    return {"id": number, **a_message(type_, from_, to, {"n": number, **body})}
