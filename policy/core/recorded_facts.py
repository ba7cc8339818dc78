"""What a record keeps of the facts that a gate read, and the same facts again from a record.

A message detail record has most facts in columns of its own; the others are its `facts`, and only where they differ
from the usual. See `protofly.records.GateFacts` for what is where, and when. Rules that read what was not recorded
cannot be replayed, and a replay has to say so: `unrecorded` names those facts.

Source: pipeline study, section 3 (rule of honesty).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from policy.core.attributes import ATTRIBUTES
from policy.core.model import Facts, Hook, KnownRecipient
from policy.core.obligations import Transfer
from policy.core.session_class import SESSION_CLASSES, asked_about, class_in, roles_in
from protofly.message import NO_PEEK, BodyPeek, Message
from protofly.records import NO_FACTS, GateFacts

_RECIPIENT: Final = ("dstStatus", "dstPresence")
MESSAGE_FACTS: Final = frozenset({"class", "resource", "msgId", "session.class", "identity.groups", *_RECIPIENT})
"""Recorded only while policies read them: a rule that reads another one cannot be replayed."""

ADDRESS_FACTS: Final = frozenset({"msgFrom", "msgTo", "msgType"})
"""Made of whole addresses: not recorded where addresses are hashed."""

IDENTITY_FACTS: Final = frozenset(
    {"identity.user", "identity.issuer", "identity.groups", "srcUsername", "srcIDP", "srcIDPDomain"}
)
"""Name people: not recorded where addresses are hashed."""

FACT_CHARS: Final = 256
_CACHED_FACTS: Final = 4_096
_KNOWN_CLASSES: Final = frozenset({"event", "action", "rpc"})


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(GateFacts).decode


def record_facts(
    facts: Facts, src_domain: str, dst_domain: str, reads: frozenset[str], *, is_hashed: bool = False
) -> GateFacts | None:
    """Return `facts` of a record; None when there is nothing to say.

    Args:
        facts: What the gate was shown.
        src_domain: As the record has it.
        dst_domain: As the record has it.
        reads: `CompiledPolicies.facts_read` of the policies in force.
        is_hashed: Whether addresses are hashed on their way to the disk.
    """
    source = None if facts.from_domain == src_domain else facts.from_domain
    target = None if facts.to_domain == dst_domain else facts.to_domain
    class_ = _unusual_class(facts) if "class" in reads else UNSET
    resource = _resource(facts) if "resource" in reads else UNSET
    msg_id = _message_id(facts) if "msgId" in reads else UNSET
    recorded = GateFacts(
        via_length=facts.via_length,
        src_domain=source,
        dst_domain=target,
        roles=tuple(sorted(roles_in(facts.session_roles))),
        auth=facts.auth,
        identity_verified=facts.identity_verified,
        identity_user=facts.identity_user,
        identity_issuer=facts.identity_issuer,
        identity_groups=_groups(facts) if "identity.groups" in reads else UNSET,
        class_=class_,
        resource=resource,
        msg_id=msg_id,
        link_class=facts.link_class,
        session_class=class_in(facts.session_roles) if "session.class" in reads else "",
        dst_status=_word("dstStatus", facts, reads),
        dst_presence=_word("dstPresence", facts, reads),
    )
    recorded = _hidden(recorded, reads) if is_hashed else _bounded(recorded)
    return None if recorded == NO_FACTS else recorded


@lru_cache(_CACHED_FACTS)
def with_transfer(recorded: GateFacts | None, transfer: Transfer | None) -> GateFacts | None:
    """`facts` of a record with what is said about the data of its message."""
    if transfer is None:
        return recorded
    labels, purpose, basis = transfer.labels, transfer.purpose, transfer.basis
    return msgspec.structs.replace(recorded or NO_FACTS, labels=labels, purpose=purpose, basis=basis)


class FactsRecorder:
    """`record_facts` for one link, fast: messages of one link are mostly alike, so what was made once is used again.

    Args:
        our_domain: As records have it.
        domain: The domain at the other end of the link.
        is_hashed: Whether addresses are hashed on their way to the disk.
    """

    def __init__(self, our_domain: str, domain: str, *, is_hashed: bool) -> None:
        self._our_domain = our_domain
        self._domain = domain
        self._is_hashed = is_hashed
        self._made: dict[tuple[str, int, str, str, frozenset[str], bool | None, str], GateFacts | None] = {}
        self._take_up(frozenset())

    def _take_up(self, reads: frozenset[str]) -> None:
        self._reads = reads
        self._made.clear()  # whether something is missing depends on what policies read
        self._is_simple = reads.isdisjoint(("class", "msgId", *_RECIPIENT))
        self._reads_resource = "resource" in reads

    def record(self, facts: Facts, reads: frozenset[str]) -> GateFacts | None:
        """See `record_facts`."""
        if reads is not self._reads:
            self._take_up(reads)
        if not self._is_simple or facts.identity_verified or (self._reads_resource and facts.message.peek.resource):
            return self._make(facts, reads)
        key = (
            facts.hook,
            facts.via_length,
            facts.from_domain,
            facts.to_domain,
            facts.session_roles,
            facts.auth,
            facts.link_class,
        )
        try:
            return self._made[key]
        except KeyError:
            if len(self._made) >= _CACHED_FACTS:
                self._made.clear()
            made = self._made[key] = self._make(facts, reads)
            return made

    def _make(self, facts: Facts, reads: frozenset[str]) -> GateFacts | None:
        source, target = self._our_domain, self._domain
        if facts.hook == "in":
            source, target = target, source
        return record_facts(facts, source, target, reads, is_hashed=self._is_hashed)


def _bounded(recorded: GateFacts) -> GateFacts:
    """Leave out what is too long; strangers choose these texts."""
    too_long = {
        name: UNSET
        for name in ("class_", "resource", "msg_id")
        if isinstance(text := getattr(recorded, name), str) and len(text) > FACT_CHARS
    }
    return msgspec.structs.replace(recorded, partial=True, **too_long) if too_long else recorded


def _hidden(recorded: GateFacts, reads: frozenset[str]) -> GateFacts:
    """Leave out whatever may name somebody. Of classes only the known words stay: the sender may write any text."""
    is_known_class = not isinstance(recorded.class_, str) or recorded.class_ in _KNOWN_CLASSES
    return msgspec.structs.replace(
        recorded,
        identity_user="",
        identity_issuer="",
        identity_groups=UNSET,
        class_=recorded.class_ if is_known_class else UNSET,
        resource=UNSET,
        msg_id=UNSET,
        partial=(
            not is_known_class
            or recorded.resource is not UNSET
            or recorded.msg_id is not UNSET
            or not reads.isdisjoint(ADDRESS_FACTS)
            or (recorded.identity_verified and not reads.isdisjoint(IDENTITY_FACTS))
        ),
    )


def _word(name: str, facts: Facts, reads: frozenset[str]) -> str:
    """What is known of the recipient, if rules read it; what is not known is not written."""
    value = ATTRIBUTES[name].read(facts) if name in reads else None
    return value if isinstance(value, str) else ""


def _groups(facts: Facts) -> tuple[str, ...] | UnsetType:
    """Groups that are not known are not written."""
    groups = facts.identity_groups if facts.identity_verified else None
    return UNSET if groups is None else tuple(sorted(groups))


def _resource(facts: Facts) -> str | UnsetType:
    """Absent and unreadable are the same to a rule, and are not written."""
    value = ATTRIBUTES["resource"].read(facts)
    return value if isinstance(value, str) else UNSET


def _message_id(facts: Facts) -> str | UnsetType:
    value = ATTRIBUTES["msgId"].read(facts)
    return value if isinstance(value, str) else UNSET


def _unusual_class(facts: Facts) -> str | UnsetType | None:
    """The class, unless it is the one that goes with the type; None when the body cannot be read."""
    value = ATTRIBUTES["class"].read(facts)
    assert value is None or isinstance(value, str)
    return UNSET if value == _class_by_type(facts.message.type) else value


@lru_cache(64)
def _class_by_type(type_: str) -> str | None:
    bare = Message(None, type_, "", "", b"", b"")
    value = ATTRIBUTES["class"].read(Facts("out", bare, "", "", "", 0, 0, 0.0))
    assert value is None or isinstance(value, str)
    return value


def unrecorded(deployed: frozenset[str], *, is_hashed: bool = False) -> frozenset[str]:
    """Facts that records do not have: the policies in force did not read them, or they would name people.

    Args:
        deployed: `CompiledPolicies.facts_read` of the policies that were in force.
        is_hashed: Whether addresses are hashed.
    """
    missing = MESSAGE_FACTS - deployed
    return missing | ADDRESS_FACTS | IDENTITY_FACTS if is_hashed else missing


@lru_cache(_CACHED_FACTS)
def read_recorded(packed: str | bytes) -> GateFacts:
    """Read the member `facts` of a record.

    Raises:
        ValueError: It is not what `record_facts` writes.
    """
    try:
        return _decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ValueError(f"recorded facts: {exc}") from exc


class AlikeFacts(msgspec.Struct, frozen=True, gc=False):
    """Members common to records that differ by addresses, size and time only: each of them costs little then."""

    hook: Hook
    src_domain: str
    dst_domain: str
    link_domain: str
    message: Message
    recorded: GateFacts
    roles: frozenset[str]
    from_domain: str
    to_domain: str

    @classmethod
    def read(
        cls, role: Hook, src_domain: str, dst_domain: str, msg_type: str, packed: str | bytes | None
    ) -> AlikeFacts:
        """Take the columns of a message detail record that are named so; `packed` is its member `facts`.

        Raises:
            ValueError: `packed` is not what `record_facts` writes.
        """
        recorded = read_recorded(packed) if packed else NO_FACTS
        body, id_, peek = _message_parts(recorded)
        return cls(
            role,
            src_domain,
            dst_domain,
            dst_domain if role == "out" else src_domain,
            Message(id_, msg_type, "", "", body, b"", peek),
            recorded,
            _shown(recorded),
            src_domain if recorded.src_domain is None else recorded.src_domain,
            dst_domain if recorded.dst_domain is None else recorded.dst_domain,
        )

    def of(self, src_key: str, dst_key: str, size_in: int, size_wire: int | None, ts_us: int) -> Facts:
        """The facts of one record."""
        common, recorded = self.message, self.recorded
        source, target = _address(src_key, self.src_domain), _address(dst_key, self.dst_domain)
        return Facts(
            self.hook,
            Message(common.id, common.type, source, target, common.body, b"", common.peek),
            self.from_domain,
            self.to_domain,
            self.link_domain,
            size_in if size_wire is None or self.hook == "out" else size_wire,
            recorded.via_length,
            ts_us / 1e6,
            recorded.identity_verified,
            recorded.identity_user,
            recorded.identity_issuer,
            None if recorded.identity_groups is UNSET else frozenset(recorded.identity_groups),
            self.roles,
            recorded.auth,
            "plain" if recorded.link_class == "plain" else "node",
            KnownRecipient(recorded.dst_status or None, recorded.dst_presence or None),
        )


def _shown(recorded: GateFacts) -> frozenset[str]:
    """Roles and class of the session, as the gate was shown them."""
    word = recorded.session_class
    return asked_about(frozenset(recorded.roles), word if word in SESSION_CLASSES else "")


def _message_parts(recorded: GateFacts) -> tuple[bytes, bytes | None, BodyPeek]:
    body, id_, peek = b"", None, NO_PEEK
    if recorded.class_ is not UNSET:
        body = _encode({"class": 0 if recorded.class_ is None else recorded.class_})  # 0: no text, cannot be read
    if isinstance(recorded.resource, str):
        peek = BodyPeek(resource=Raw(_encode(recorded.resource)))
    if isinstance(recorded.msg_id, str):
        id_ = _encode(recorded.msg_id)
    return body, id_, peek


def _address(key: str, domain: str) -> str:
    """An address as it was, or for a hashed one an address of the same scheme and domain."""
    if "://" in key:  # nearly all, where addresses are not hashed
        return key
    scheme, _, digits = key.partition(":")
    if _is_hash(digits):
        return f"{scheme}://{domain}/{digits}"
    return key


def _is_hash(digits: str) -> bool:
    return len(digits) == 24 and not digits.strip("0123456789abcdef")
