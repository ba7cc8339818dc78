"""Policies of single objects: their owners name them in `body.policy`, and they narrow what the gates permit.

An owner names the policy of an object when it invites somebody to it, subscribes to it at `/sm`, or registers it. Only
documents of our own catalogue count, and only what the owner of the object says; all else is ignored, and counted. A
document is read beside the traffic. Until it is here, and as long as it cannot be used, nobody but the owner reaches
the object: a policy that is not known must not open what it is to close.
Source: message specification, section 1.3; feature row PE-23.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from federation.links.link_context import Refusal
from msg_node.kernel.catalogue_questions import policy_question
from msg_node.kernel.counts import DocumentCount
from msg_node.kernel.resources import Members, key_or_refuse, object_of, text_of, texts_of
from msg_node.registries.background_reading import BackgroundReading, ReadingCounts
from msg_node.registries.core.policy_names import PolicyNameRow, PolicyNames
from msg_node.registries.core.tables import RegistryTables
from policy.core.engine import CompiledPolicies
from policy.core.object_policies import ObjectPolicy
from protofly import codec
from protofly.address import scheme_of
from protofly.counters import Counters
from protofly.errors import PeerError
from protofly.message import Message

_CHANGES = "/changes"
_SUBSCRIPTION = "/subscription"
_NAMES_POLICY = b'"policy"'
_SUBSCRIBES = frozenset({"subscribe", "unsubscribe"})
_READS = frozenset({"read"})
_NAMING = ("resources", "subscribe", "unsubscribe", "resource", "childrenResources", "children")


class PolicyDocuments:
    """Remembers which object has which policy, and gives the policies to the gates.

    Attributes:
        counters: Policies that were named and read, and why others were not.
        on_change: Called when another policy counts from the next message on.
        run: Reads documents until cancelled.
    """

    def __init__(self, state: RegistryTables, names: PolicyNames) -> None:
        self._state = state
        self._names = names
        self._managers = frozenset(f"domain://msg-node.{domain}/sm" for domain in state.domains)
        self._services = dict.fromkeys(self._managers, _SUBSCRIBES)
        self._services |= {f"domain://msg-node.{domain}/twin": _READS for domain in state.domains}
        self._registries = frozenset(f"domain://registry.{domain}" for domain in state.domains)
        self.counters = Counters(DocumentCount)
        counts = ReadingCounts(DocumentCount.READ, DocumentCount.NOT_READ, DocumentCount.NOT_ASKED)
        self._documents = BackgroundReading[CompiledPolicies]("policy", policy_question, counts, self.counters)
        self.run = self._documents.run
        self.on_change: Callable[[], None] = lambda: None

    def connect(self, on_change: Callable[[], None]) -> None:
        """Have somebody hear when another policy counts; documents that were named before are read now."""
        self.on_change = self._documents.on_read = on_change
        self._names.on_arrival = self._arrived
        on_change()
        for address in self._names:
            self._documents.find(address, "")

    def _arrived(self, rows: Iterable[PolicyNameRow]) -> None:
        """A session came from another node with objects that have policies: they count at once."""
        self.on_change()
        for row in rows:
            self._documents.find(row.document, row.by)

    def step(self, message: Message, sid: int, _roles: frozenset[str], _domain: str, _now: float) -> Refusal | None:
        """See `middleware.MessageStep`."""
        type_ = message.type
        if type_ in ("create", "subscribe") and _NAMES_POLICY in message.body:
            return self._learn(message, sid)
        if type_ == "delete" and message.to.endswith(_CHANGES):
            key = message.to_key.removesuffix(_CHANGES)
            row = self._names.find(key)
            if row is not None and row.sid == sid:
                self._names.forget(key)
                self.on_change()
        return None

    def _learn(self, message: Message, sid: int) -> Refusal | None:
        """An owner names the policy of an object."""
        try:
            members = codec.body_members(message.body)
            address, key = text_of(members, "policy"), self._object_of(message, members)
        except PeerError:
            return None  # the recipient of the message says what is wrong with it
        if not address or not key or scheme_of(key) == "thing":
            return None
        if not self._is_ours(address):
            self.counters[DocumentCount.NOT_OURS] += 1
            return None
        if self._state.owners.owner(key) != sid:
            self.counters[DocumentCount.NOT_OWNER] += 1
            return None
        row = PolicyNameRow(address, message.from_key, sid)
        if self._names.find(key) == row:
            return None
        try:
            self._names.name(key, row)
        except PeerError as exc:
            self.counters[DocumentCount.REFUSED] += 1
            return Refusal(exc.code, detail=exc.detail)
        self.counters[DocumentCount.NAMED] += 1
        self._documents.find(address, message.from_)
        self.on_change()
        return None

    def _object_of(self, message: Message, members: Members) -> str:
        """The object whose policy a message names, "" for none. Raises PeerError."""
        if message.type == "subscribe":
            resource = text_of(members, "resource") if message.to_key in self._managers else ""
        elif message.to_key in self._registries:
            resource = text_of(object_of(members, "value"), "url") or text_of(members, "resource")
        else:
            return message.from_key.removesuffix(_SUBSCRIPTION) if message.from_key.endswith(_SUBSCRIPTION) else ""
        return key_or_refuse(resource) if resource else ""

    def _is_ours(self, address: str) -> bool:
        try:
            return policy_question(address, "").entry.domain in self._state.domains
        except PeerError:
            return False

    def about(self, message: Message) -> list[ObjectPolicy]:
        """See `policy.core.object_policies.ObjectPolicies`."""
        if not len(self._names):
            return []
        try:
            wanted = {owned for key in self._wanted(message) for owned in self._owned_at(key)}
            owned_by_sender = {*self._owned_at(message.from_key)}
        except PeerError:
            return []  # nobody is reached with it
        found = list[ObjectPolicy]()
        for key in sorted(wanted | owned_by_sender):
            row = self._names.find(key)
            if row is not None:
                is_others = all(self._state.owners.owner(one) != row.sid for one in owned_by_sender)
                is_needed = key in wanted and is_others and not message.is_response
                found.append(ObjectPolicy(row.document, self._documents.find(row.document, row.by), is_needed))
        return found

    def _owned_at(self, key: str) -> Iterator[str]:
        """The addresses that somebody owns: this one, and all above it."""
        owners = self._state.owners
        if owners.owner(key) is not None:
            yield key
        while (above := owners.owner_above(key)) is not None:
            key = above[1]
            yield key

    def _wanted(self, message: Message) -> Iterator[str]:
        """The addresses that a message is for, subscribes to, or asks the twin for."""
        yield message.to_key
        if message.type in self._services.get(message.to_key, ()):
            yield from named_addresses(message)


def named_addresses(message: Message) -> Iterator[str]:
    """Canonical keys that a request names, in all forms that services read; what they cannot read, they refuse."""
    try:
        members = codec.body_members(message.body)
    except PeerError:
        return
    for name in _NAMING:
        with suppress(PeerError):
            yield from _keys(texts_of(members, name))


def _keys(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        if ":" in text:
            with suppress(PeerError):
                yield key_or_refuse(text)
