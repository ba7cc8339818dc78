"""One message of the bus: a decoded header around bytes that nobody touches.

The per-message path decodes the header and a handful of body members that routing needs; everything else stays the
bytes that came.
Source: message specification, section 1.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw
from msgspec.structs import force_setattr

from protofly.address import canonical_key

_ABSENT = Raw()


class BodyPeek(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={
        "session_token": "sessionToken",
        "asserted_identity": "assertedIdentity",
        "message_class": "class",
    },
):
    """Body members that the node itself reads or removes, each as raw JSON text; empty when absent.

    Source: message specification, section 1.3.
    """

    via: Raw = _ABSENT
    trace: Raw = _ABSENT
    ttl: Raw = _ABSENT
    code: Raw = _ABSENT
    source: Raw = _ABSENT
    resource: Raw = _ABSENT
    receipt: Raw = _ABSENT
    auth: Raw = _ABSENT
    session_token: Raw = _ABSENT
    asserted_identity: Raw = _ABSENT
    message_class: Raw = _ABSENT
    guarantee: Raw = _ABSENT


NO_PEEK = BodyPeek()

_EVENT_SUFFIXES = ("/changes", "/status", "/registration")
_EVENT_FORMS = frozenset({"update", "create", "event"})


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message with exactly one recipient.

    `id` is the JSON text of the number or string as it came (None: there was none); `type` is lower case; `body` is
    the raw JSON object (b"" when absent); `raw` is the whole message as it goes out.
    """

    id: bytes | None
    type: str
    from_: str
    to: str
    body: bytes
    raw: bytes
    peek: BodyPeek = NO_PEEK
    takes_members: bool = False
    """True: `raw` ends with the body, and the body with a member, so that a comma and another member in front of the
    last two braces are added to the body, and change nothing else. False where that is not so, or not known.
    """
    is_late: bool = False
    """A reply to a request that has been answered already; see `protofly.late_replies`."""
    verdict: bool | None = None
    """What our gate decided about it: true, a rule permits it; false, no policy applied. None while no gate was asked.

    Never read from the message: `body.auth` of others is removed. Source: message specification, section 1.3.
    """

    def judged(self, is_permitted_by_rule: bool) -> None:
        """Keep the verdict of our gate with the message: the one thing that is learned about it after decoding."""
        force_setattr(self, "verdict", is_permitted_by_rule)

    @property
    def from_key(self) -> str:
        """Canonical key of the sender."""
        return canonical_key(self.from_)

    @property
    def to_key(self) -> str:
        """Canonical key of the recipient."""
        return canonical_key(self.to)

    @property
    def is_response(self) -> bool:
        """True if this is a reply; only its type decides. Source: message specification, section 1.2, rule 4."""
        return self.type == "response"

    @property
    def expects_reply(self) -> bool:
        """True if a refusal of this message is to be answered. Source: message specification, section 3, rule 6."""
        if self.id is None or self.type in ("response", "event", "pong"):
            return False
        if self.type in ("update", "delete") and self.to.endswith(_EVENT_SUFFIXES):
            return bytes(self.peek.receipt) == b"true"
        if self.type in _EVENT_FORMS and self.is_class_event:
            return bytes(self.peek.receipt) == b"true"
        return True

    @property
    def is_class_event(self) -> bool:
        """True if this is an event of the class: said by `body.class`, or by an address `<thing>/events/<name>`.

        Only for the types `update`, `create` and `event`. Source: message specification, section 19.
        """
        if self.peek.message_class:
            return bytes(self.peek.message_class) == b'"event"'
        return "/events/" in self.to and self.to.startswith("thing:") and self.type in _EVENT_FORMS

    @property
    def is_action(self) -> bool:
        """True if this is an action: it may wait for its recipient. Source: message specification, section 19."""
        return self.type == "execute" and bytes(self.peek.message_class) == b'"action"'

    @property
    def wants_receipt(self) -> bool:
        """True if the sender of an event asks for a receipt.

        Source: message specification, section 19.1.
        """
        return bool(self.peek.receipt) and self.id is not None and self.type != "response" and self.receipt == b"true"

    @property
    def via(self) -> bytes:
        """`body.via` as raw JSON text, b"" when absent."""
        return bytes(self.peek.via)

    @property
    def source(self) -> bytes:
        """`body.source` as raw JSON text, b"" when absent."""
        return bytes(self.peek.source)

    @property
    def resource(self) -> bytes:
        """`body.resource` as raw JSON text, b"" when absent."""
        return bytes(self.peek.resource)

    @property
    def ttl(self) -> bytes:
        """`body.ttl` as raw JSON text, b"" when absent."""
        return bytes(self.peek.ttl)

    @property
    def code(self) -> bytes:
        """`body.code` as raw JSON text, b"" when absent."""
        return bytes(self.peek.code)

    @property
    def trace(self) -> bytes:
        """`body.trace` as raw JSON text, b"" when absent."""
        return bytes(self.peek.trace)

    @property
    def receipt(self) -> bytes:
        """`body.receipt` as raw JSON text, b"" when absent."""
        return bytes(self.peek.receipt)

    @property
    def auth(self) -> bytes:
        """`body.auth` as raw JSON text, b"" when absent."""
        return bytes(self.peek.auth)
