"""The recording of a conversation that passed a node: its lines, what is left out of them, and the sealed file.

    file  = magic, salt (16), chunk, chunk, …
    chunk = kind (1), length of the rest (4), lines under AES-256-GCM

A key of its own is derived for each file from the operator's key and the salt, and the nonce is the number of the
chunk; its kind and the magic are authenticated. So no chunk can be changed, exchanged, repeated or left out in the
middle. A file without its last chunk opens as well, and is known to be cut short: its node was killed.

Nothing here is a secret of anybody: `shown_body` takes tokens and passwords out at any depth, and `redacted_body`
leaves only what routing needs. Neither is undone by opening a file. Feature row AM-06.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Raw

from protofly.address import canonical_key, domain_of, is_below
from protofly.errors import Code, PeerError

KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
MAGIC: Final = b"trapezoid conversation 1\n"
HEAD_BYTES: Final = len(MAGIC) + SALT_BYTES
CHUNK_BYTES: Final = 64 << 20
"""The longest chunk that is read."""
REDACTED: Final = "redacted"
"""The member of a body that stands for what is left out: a text of the same length in bytes."""
LEFT_OUT: Final = "[left out]"
"""Stands in the place of a secret."""
_GOES_ON: Final = b"\x00"
_LAST: Final = b"\x01"
_LENGTH_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_SECRET_NAME: Final = re.compile(
    r"token|passw|secret|credential|assertion|authori[sz]ation|cookie|api_?key|private_?key|^identity$|^otp$|^pin$",
    re.IGNORECASE,
)
_SIGNED_TOKEN: Final = re.compile(r"eyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)*")
"""What looks like a JWS or JWE wherever it stands in a text."""
_KEPT: Final = frozenset({"code", "ttl", "receipt", "guarantee", "class"})
_KEPT_OF_SERVICES: Final = frozenset({"reason", "resource", "resources", "source", "childrenResources"})
_KEPT_OF_ALLOCATION: Final = frozenset({"number", "scheme", "allocationKey", "allocated"})
_SERVICE: Final = "domain://"

ABSENT: Final = Raw()
"""An id or body that is not there."""

Side: TypeAlias = Literal["runtime", "domain", "node"]


class ConversationRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Selects the messages to record: those between two sides, in both directions.

    Attributes:
        one: The canonical key of an address, which stands for what is below as well, or one with a final `*`, or a
            domain; "" for everybody.
        other: The same for the other side.
    """

    one: str = ""
    other: str = ""

    def takes(self, sender: str, recipient: str) -> bool:
        """True for a message between both."""
        one, other = self.one, self.other
        return (_is_of(sender, one) and _is_of(recipient, other)) or (_is_of(recipient, one) and _is_of(sender, other))


class Started(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="started"):
    """The first line. `at` is seconds since the Unix epoch, `seconds` and `bytes` are the bounds."""

    node: str
    domain: str
    at: float
    has_bodies: bool
    rule: ConversationRule
    seconds: float
    bytes: int


class Passed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="message"):
    """A message. `at` is seconds since the start; `origin` the runtime or domain that sent it, or the node."""

    at: float
    side: Side
    origin: str
    type: str
    from_: str = msgspec.field(name="from")
    to: str
    id: Raw = ABSENT
    body: Raw = ABSENT

    @property
    def members(self) -> dict[str, Any]:
        """The members of the body."""
        decoded = msgspec.json.decode(self.body) if self.body else {}
        return decoded if isinstance(decoded, dict) else {}


class SessionChanged(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="session"):
    """Something happened to the session of a runtime that has sent something: `event` as audit records name it."""

    at: float
    runtime: str
    event: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="ended"):
    """The last line. `left_out` messages matched the rule and are missing, since the disk did not keep up."""

    at: float
    why: str
    messages: int
    left_out: int = 0


Line: TypeAlias = Started | Passed | SessionChanged | Ended

_decode_line: Final = msgspec.json.Decoder(Line).decode
encode_line: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A recording that has been opened.

    Attributes:
        started: Its first line.
        lines: What passed, in order.
        ended: Its last line; None if the recording is cut short.
    """

    started: Started
    lines: tuple[Passed | SessionChanged, ...]
    ended: Ended | None

    @property
    def messages(self) -> list[Passed]:
        """The messages, in order."""
        return [one for one in self.lines if isinstance(one, Passed)]


class ConversationSealer:
    """Seals the lines of one file.

    Args:
        key: The operator's, 32 bytes.
        salt: 16 random bytes that no other file has.
    """

    def __init__(self, key: bytes, salt: bytes) -> None:
        self.head = MAGIC + salt
        self._cipher = _cipher(key, salt)
        self._number = 0

    def seal(self, text: bytes, *, is_last: bool) -> bytes:
        """The next chunk, with whole lines in it."""
        kind = _LAST if is_last else _GOES_ON
        sealed = self._cipher.encrypt(_nonce(self._number), text, MAGIC + kind)
        self._number += 1
        return kind + len(sealed).to_bytes(_LENGTH_BYTES, "big") + sealed


def open_conversation(raw: bytes, key: bytes) -> Conversation:
    """Open a sealed file.

    Args:
        raw: Its content.
        key: The operator's, 32 bytes.

    Raises:
        PeerError: DOCUMENT_MALFORMED: no recording; RECORDING_KEY: another key sealed it; RECORDING_CHANGED: this key
            did, and it was changed.
    """
    if not raw.startswith(MAGIC) or len(raw) < HEAD_BYTES:
        raise PeerError(Code.DOCUMENT_MALFORMED, "no recording of a conversation")
    try:
        lines = [_decode_line(line) for text in _texts(raw, key) for line in text.splitlines()]
    except (msgspec.DecodeError, RecursionError) as exc:
        raise PeerError(Code.DOCUMENT_MALFORMED, f"a line of the recording: {exc}") from exc
    if not lines or not isinstance(lines[0], Started):
        raise PeerError(Code.DOCUMENT_MALFORMED, "the recording has no first line")
    passed = tuple(one for one in lines[1:] if isinstance(one, Passed | SessionChanged))
    last = lines[-1]
    return Conversation(started=lines[0], lines=passed, ended=last if isinstance(last, Ended) else None)


def _texts(raw: bytes, key: bytes) -> Iterator[bytes]:
    cipher = _cipher(key, raw[len(MAGIC) : HEAD_BYTES])
    position, number, kind = HEAD_BYTES, 0, _GOES_ON
    while kind == _GOES_ON:
        kind = raw[position : position + 1]
        start = position + 1 + _LENGTH_BYTES
        position = start + int.from_bytes(raw[position + 1 : start], "big")
        if position - start > CHUNK_BYTES:
            raise PeerError(Code.DOCUMENT_MALFORMED, f"a chunk of {position - start:,} bytes; at most {CHUNK_BYTES:,}")
        if position > len(raw):
            return  # the node was killed while it wrote this, or before
        try:
            yield cipher.decrypt(_nonce(number), raw[start:position], MAGIC + kind)
        except InvalidTag as exc:
            if number:
                raise PeerError(Code.RECORDING_CHANGED, f"chunk {number + 1} is not as it was written") from exc
            raise PeerError(Code.RECORDING_KEY, "another key sealed it, or its beginning was changed") from exc
        number += 1
    if kind == _LAST and position != len(raw):
        raise PeerError(Code.RECORDING_CHANGED, "something was added to the recording")


def shown_body(body: bytes) -> bytes:
    """A body without secrets: members with the name of one, at any depth, and signed tokens in texts."""
    return msgspec.json.encode(_without_secrets(msgspec.json.decode(body)))


def redacted_body(body: bytes, *, from_: str, to: str, is_of_node: bool) -> bytes:
    """A body of which only is left what routing needs, and its length.

    Args:
        body: A JSON object.
        from_: The sender.
        to: The recipient.
        is_of_node: The node itself says it: its words for reasons are its own.
    """
    members = msgspec.json.decode(body)
    of_service = from_.startswith(_SERVICE) or to.startswith(_SERVICE)
    names = _KEPT | (_KEPT_OF_SERVICES if of_service else frozenset()) | ({"reason"} if is_of_node else frozenset())
    kept = {name: value for name, value in members.items() if name in names}
    value = members.get("value")
    if of_service and "address-allocation" in from_ + to and isinstance(value, dict):
        kept |= {"value": value} if value.keys() <= _KEPT_OF_ALLOCATION else {}
    if len(kept) < len(members):
        kept[REDACTED] = ""
        short_of = len(body) - len(msgspec.json.encode(kept))
        kept[REDACTED] = "x" * max(0, short_of)
    return msgspec.json.encode(_without_secrets(kept))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: LEFT_OUT if _SECRET_NAME.search(name) else _without_secrets(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_secrets(one) for one in value]
    if isinstance(value, str) and "eyJ" in value:
        return _SIGNED_TOKEN.sub(LEFT_OUT, value)
    return value


def _is_of(address: str, side: str) -> bool:
    if not side:
        return True
    try:
        if ":" not in side:
            return domain_of(address) == side
        key = canonical_key(address)
        return key.startswith(side[:-1]) if side.endswith("*") else key == side or is_below(key, side)
    except PeerError:
        return False


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    derived = HKDF(hashes.SHA256(), KEY_BYTES, salt=salt, info=MAGIC).derive(key)
    return AESGCM(derived)


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "big")
