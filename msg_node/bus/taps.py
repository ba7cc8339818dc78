"""Taps: operators look on. Each of them that subscribes to `*` gets a copy of each message that passes the node.

A copy is a `forward` from the node that carries the message and says where it came from; it can be read and nothing
else: no answer to it goes anywhere, and nobody waits for a tap that does not read. Tokens, and what is said to and by
services that get some, are left out. Off unless the settings want it, and then only for sessions with the role of
operators.
Source: message specification, section 20.1; feature row BU-11.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from federation.links.link_context import Refusal
from msg_node.bus.core.tables import BusTables
from msg_node.bus.send_queues import SendQueues
from msg_node.kernel.credentials import OPERATOR
from msg_node.kernel.resources import SESSION_KEY, TAPS_KEY
from msg_node.kernel.rules import Rules
from protofly import codec
from protofly.errors import PeerError
from protofly.forwarding import FORWARD
from protofly.message import Message

SECRETS = ("accessToken", "idToken", "identity", "sessionToken", "credentials")
"""Members of a body that a copy does not show."""
_CONFIDANTS = ("mn:/session", "domain://idm.", "domain-idp:", "domain://qos.", "domain://qos-broker.")
_CONFIDANTS_OF_RUNTIMES = ("/idm", "/identity-gui", "/crypto")
_NODES = "domain://msg-node."
_CONFIDANTS_OF_NODES = ("/admin", "/push")
"""Addresses that get secrets, or send them: of what is said to or by them only the header is shown."""


class Taps:
    """Hands copies to those who look on.

    Args:
        send_queues: Where copies go, and what the node itself sends comes from.
        rules: Say whether operators may look on.
        node: Our runtime address.
    """

    name: Final = "taps"

    def __init__(self, state: BusTables, send_queues: SendQueues, rules: Rules, *, node: str) -> None:
        self._state = state
        self._send_queues = send_queues
        self._rules = rules
        self._node = node
        self._sender = f"{node}/taps"
        send_queues.watchers.own.append(self.own)

    @property
    def is_looking(self) -> bool:
        """True while the settings let operators look on."""
        return self._rules.taps

    def _looking(self) -> Sequence[int]:
        """The sessions that look on; who subscribed while the settings allowed it sees nothing while they do not."""
        return self._state.listeners.targets(TAPS_KEY) if self._rules.taps else ()

    def step(self, message: Message, sid: int, _roles: frozenset[str], _domain: str, _now: float) -> Refusal | None:
        """Copy what a session sends; a step that refuses nothing, see `middleware.MessageStep`."""
        taps = self._looking()
        if taps:
            session = self._state.sessions.get(sid)
            self._copy(message, "" if session is None else session.runtime, [one for one in taps if one != sid])
        return None

    def from_domain(self, domain: str, messages: Sequence[Message]) -> None:
        """Copy what another domain brings."""
        taps = self._looking()
        for message in messages if taps else ():
            self._copy(message, domain, taps)

    def own(self, message: Message, sid: int | None = None) -> None:
        """Copy what the node itself sends to a session, an answer or a refusal."""
        taps = self._looking()
        if not taps:
            return
        session = self._state.sessions.get(sid) if sid is not None else None
        if session is not None and is_of_sessions(message):
            message = codec.with_recipient(message, session.runtime)  # runtimes ask with the token in their address
        self._copy(message, self._node, [one for one in taps if one != sid])

    def over_answers(self, answer: Callable[[Message], None]) -> Callable[[Message], None]:
        """The same way for what our links answer in place of other domains, with copies."""

        def tapped(message: Message) -> None:
            self.own(message)
            answer(message)

        return tapped

    def _copy(self, message: Message, origin: str, taps: Sequence[int]) -> None:
        ports = [port for sid in taps if (port := self._send_queues.ports.get(sid)) and OPERATOR in port.roles]
        if not ports:
            return
        body = b'{"message":%s,"origin":%s}' % (_shown(message), msgspec.json.encode(origin))
        for port in ports:
            to = self._state.sessions.get(port.sid or 0)
            if to is None:
                continue
            raw = codec.encode_message(id=None, type="forward", from_=self._sender, to=to.runtime, body=body)
            copy = Message(None, "forward", self._sender, to.runtime, body, raw)
            self._send_queues.enqueue_copy(port, copy)


def _shown(message: Message) -> bytes:
    """The text of a message without what is secret in it."""
    if not message.body:
        return message.raw
    members = msgspec.json.decode(message.body, type=dict[str, Raw])
    shown = {} if is_confidential(message) else {name: value for name, value in members.items() if name not in SECRETS}
    return message.raw if len(shown) == len(members) else codec.with_body(message, msgspec.json.encode(shown)).raw


def is_of_sessions(message: Message) -> bool:
    """True if it is said by `mn:/session`, whose words and recipients have tokens in them."""
    try:
        return message.from_key == SESSION_KEY
    except PeerError:  # a broken frame, in whose name the node answers
        return False


def is_confidential(message: Message) -> bool:
    """True if the body of a message may hold secrets as a whole, by who says it, or to whom."""
    if message.type == FORWARD:  # what it carries has secrets of its own
        return True
    try:
        keys = message.from_key, message.to_key
        return any(map(_is_confidant, keys))
    except PeerError:  # a broken frame, in whose name the node answers
        return True


def _is_confidant(key: str) -> bool:
    if key.startswith(_NODES):
        return key.endswith(_CONFIDANTS_OF_NODES)
    return key.startswith(_CONFIDANTS) or key.endswith(_CONFIDANTS_OF_RUNTIMES)
