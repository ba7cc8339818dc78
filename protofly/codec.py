"""Bytes to messages and back.

The promise: hostile bytes give messages or a `BrokenMessageError`, nothing else, in bounded time. Only the header and
the members of `BodyPeek` are decoded; the body is kept as the bytes that came. Source: message specification, section
1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw

from protofly.errors import DESCRIPTIONS, Code, PeerError
from protofly.limits import (
    HEADER_CHARS,
    HEADER_QUOTES,
    ID_CHARS,
    NESTING_LEVELS,
    RECIPIENTS_BYTES,
    REQUEST_PARTS,
    RESOURCES_ENTRIES,
)
from protofly.message import NO_PEEK, BodyPeek, Message

_TYPE_CHARS = 32
_CACHED_CODES = 64
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SURROGATES = re.compile(rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[89a-fA-F][0-9a-fA-F]{2})")
_ESCAPE_BYTES = 6
_ESCAPES_LOOKED_AT = 4096
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_QUOTE = ord('"')
_BRACE = ord("}")
_MANY = NESTING_LEVELS + 1
_ABSENT = Raw()
_BEFORE_NOTHING = b" \t\r\n{"
"""What stands before the last brace of an object that may be empty."""
_BODY_NAME = re.compile(rb'[{,\s]"body"\s*:\s*\Z')
_LOOKED_AT_BYTES = 64  # for the name among blanks; more of them are looked through the long way


class _Header(msgspec.Struct, frozen=True, gc=False):
    type: str
    to: str | list[str]
    from_: str = msgspec.field(name="from")
    id: Raw = _ABSENT
    body: Raw = _ABSENT


_decode_header = msgspec.json.Decoder(_Header).decode
_decode_peek = msgspec.json.Decoder(BodyPeek).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_plain = msgspec.json.Decoder(dict[str, object]).decode
_encode = msgspec.json.encode
_PEEKED = frozenset(BodyPeek.__struct_encode_fields__)


class BrokenMessageError(PeerError):
    """A frame that is no message, with as much of its header as could be read, so that it can be answered.

    `member` names the header member at fault; `from_` is "" and `id` None where they could not be read.
    Source: message specification, section 1.7.
    """

    def __init__(
        self,
        code: Code,
        detail: str,
        *,
        member: str = "",
        from_: str = "",
        id: bytes | None = None,
        is_response: bool = False,
    ) -> None:
        super().__init__(code, detail)
        self.member = member
        self.from_ = from_
        self.id = id
        self.is_response = is_response


def decode(raw: bytes) -> list[Message]:
    """Decode one frame: one message per recipient, in order.

    Args:
        raw: UTF-8 JSON text, already bounded by the frame limit.

    Raises:
        BrokenMessageError: BROKEN_JSON, BAD_HEADER, BAD_BODY, TOO_DEEP or TOO_LARGE.

    Source: message specification, sections 1.1, 1.6 and 1.7.
    """
    try:
        if not raw.isascii():
            raw.decode()
        header = _decode_header(raw)
        # Brackets are counted by taking them out, which jumps from one to the next; `count` looks at every byte.
        if 2 * len(raw) - len(raw.replace(b"{", b"", _MANY)) - len(raw.replace(b"[", b"", _MANY)) > NESTING_LEVELS:
            _check_depth(raw)
        body = bytes(header.body)
        peek = NO_PEEK
        if body == b"null":
            body = b""
        elif body:
            peek = _decode_peek(body)
        type_ = header.type.lower()
        id_ = bytes(header.id) or None
        if id_ is not None and not (id_.isdigit() and len(id_) <= ID_CHARS):
            id_ = _checked_id(id_)
        to, from_ = header.to, header.from_
        takes_members = False
        # Quotation marks of a header that holds each member once, and no other: nearly every message has so many. Any
        # further member brings two more, and has the message looked at again.
        usual = 14 if id_ is None else 16 if id_[0] != _QUOTE else 18
        if body and raw.endswith(body, 0, -1):  # nearly always: then only the header is looked through
            quotes = raw.count(b'"', 0, -1 - len(body))
            # Of the header's members the body alone is an object. Where there are no others, two braces at the end
            # close it and the message: what stands behind a body that ends a message can only be its brace.
            if body[-2] not in _BEFORE_NOTHING:
                takes_members = quotes == usual or ends_with_body(raw, body)
        else:
            quotes = raw.count(b'"') - body.count(b'"')
            usual -= 0 if body else 2  # of its name
        if (
            type(to) is str
            and 0 < len(to) <= HEADER_CHARS
            and 0 < len(from_) <= HEADER_CHARS
            and type_ == header.type
            and 0 < len(type_) <= _TYPE_CHARS
            and (body or not header.body)
            and (quotes == usual or (quotes <= HEADER_QUOTES and not repeats_members(raw)))
        ):
            return [Message(id_, type_, from_, to, body, raw, peek, takes_members)]
        return _expand(raw, header, id_, body, peek, quotes)
    except BrokenMessageError as exc:
        raise _diagnose(raw, exc) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        whole = _without_halves(raw)
        if whole is not raw:
            return decode(whole)
        raise _diagnose(raw, exc) from exc


def _without_halves(raw: bytes) -> bytes:
    """JSON text with U+FFFD where half a character is escaped; the same object where none is, or among too many.

    JavaScript writes such halves, surrogates of their own, when a text was cut inside a character; no UTF-8 can hold
    them. A node in JavaScript passes on the same U+FFFD. Source: RFC 8259, section 8.2.
    """
    pieces: list[bytes] = []
    copied = seen = 0
    for number, found in enumerate(_SURROGATES.finditer(raw)):
        if number >= _ESCAPES_LOOKED_AT:
            return raw
        begin, end = found.span()
        before, seen = raw[seen:begin], end
        is_escaped = (len(before) - len(before.rstrip(b"\\"))) % 2 == 1  # then it is a backslash and plain letters
        if is_escaped:
            begin += _ESCAPE_BYTES
        if end - begin == _ESCAPE_BYTES:
            pieces += (raw[copied:begin], b"\\ufffd")
            copied = end
    return b"".join(pieces) + raw[copied:] if pieces else raw


def _expand(raw: bytes, header: _Header, id_: bytes | None, body: bytes, peek: BodyPeek, quotes: int) -> list[Message]:
    """The unusual forms: other case, several recipients, `body: null`, a member given twice.

    Written anew, so that a reader of the text sees the members that were judged here: the last of each name. Bodies
    keep their bytes.
    """
    recipients = [header.to] if isinstance(header.to, str) else list(dict.fromkeys(header.to))
    type_ = header.type.lower()
    _check_header(type_, header.from_, recipients)
    if quotes > HEADER_QUOTES:
        raise BrokenMessageError(Code.TOO_LARGE, "too much stands outside the body")
    if len(recipients) * len(raw) > RECIPIENTS_BYTES:
        raise BrokenMessageError(Code.TOO_LARGE, "too large for so many recipients", member="to")
    members: dict[str, Raw] = _decode_members(raw)
    members["type"] = Raw(_encode(type_))
    if not body:
        members.pop("body", None)
    messages = []
    for to in recipients:
        members["to"] = Raw(_encode(to))
        messages.append(Message(id_, type_, header.from_, to, body, _encode(members), peek))
    return messages


def _check_header(type_: str, from_: str, recipients: list[str]) -> None:
    if not type_ or len(type_) > _TYPE_CHARS:
        raise BrokenMessageError(Code.BAD_HEADER, "type must be a word of at most 32 characters", member="type")
    if not from_:
        raise BrokenMessageError(Code.BAD_HEADER, "from must be an address", member="from")
    if not recipients or not all(recipients) or len(recipients) > RESOURCES_ENTRIES:
        raise BrokenMessageError(Code.BAD_HEADER, "to must be an address or a list of them", member="to")
    if len(from_) > HEADER_CHARS or max(map(len, recipients)) > HEADER_CHARS:
        raise BrokenMessageError(Code.TOO_LARGE, f"an address is longer than {HEADER_CHARS} characters")


def _checked_id(id_: bytes) -> bytes | None:
    """Accept an integer or a text, within bounds; `null` counts as absent."""
    if id_ == b"null":
        return None
    if not _may_be_id(id_):
        raise BrokenMessageError(Code.BAD_HEADER, "id must be an integer or a text, not too long", member="id")
    return id_


def _may_be_id(id_: bytes) -> bool:
    """True for JSON text of an integer or a text, within bounds."""
    if id_.startswith(b'"'):
        return len(id_) <= _ESCAPE_BYTES * ID_CHARS
    return len(id_) <= ID_CHARS and id_.removeprefix(b"-").isdigit()


def _check_depth(raw: bytes) -> None:
    """Refuse JSON nested deeper than `NESTING_LEVELS`; brackets inside texts do not count.

    Valid JSON only: then every text is closed and each step is one linear pass in C, however hostile the bytes.
    """
    brackets = _TEXT.sub(b"", raw).translate(None, _NO_BRACKETS)
    for _ in range(NESTING_LEVELS):
        brackets = brackets.replace(b"[]", b" ").replace(b"{}", b" ").replace(b" ", b"")  # one level of either kind
        if not brackets:
            return
    raise BrokenMessageError(Code.TOO_DEEP, f"nested deeper than {NESTING_LEVELS} levels")


def repeats_members(raw: bytes) -> bool:
    """True if a frame that could be decoded gives a member of its header more than once; the last one counts.

    Found by its quotation marks: a name has two, and so every further occurrence leaves some that the last ones do not
    account for. (So does a name with a quotation mark inside, which is nobody's.) Source: message specification,
    section 1.1.
    """
    try:
        last = _decode_members(raw)
    except msgspec.DecodeError:
        last = _decode_members(_without_halves(raw))
    return raw.count(b'"') != sum(2 + bytes(value).count(b'"') for value in last.values())


class _LooseHeader(msgspec.Struct, frozen=True):
    type: Raw = _ABSENT
    from_: Raw = msgspec.field(name="from", default=_ABSENT)
    to: Raw = _ABSENT
    id: Raw = _ABSENT
    body: Raw = _ABSENT


_decode_loose = msgspec.json.Decoder(_LooseHeader).decode


def _diagnose(raw: bytes, cause: Exception) -> BrokenMessageError:
    """Return what is wrong and who gets the answer; runs only for broken frames."""
    code, member, detail = Code.BROKEN_JSON, "", "not a JSON object"
    loose = _LooseHeader()
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        loose = _decode_loose(raw)
        code, member = _fault_of(loose)
        detail = f"{member} is missing or of the wrong kind"
    if isinstance(cause, BrokenMessageError):
        code, member, detail = cause.code, cause.member, cause.detail
    elif isinstance(cause, RecursionError):
        code, member, detail = Code.TOO_DEEP, "", "nested too deeply"
    elif isinstance(cause, UnicodeDecodeError):
        code, member, detail = Code.BROKEN_JSON, "", "not UTF-8"
    id_ = bytes(loose.id)
    return BrokenMessageError(
        code,
        detail,
        member=member,
        from_=_text(loose.from_),
        id=id_ if _may_be_id(id_) else None,
        is_response=_text(loose.type).lower() == "response",
    )


def _fault_of(header: _LooseHeader) -> tuple[Code, str]:
    """What is wrong with a header that is read loosely: the first member that is missing or of a wrong kind."""
    for name, is_there in (("from", _text(header.from_)), ("to", header.to), ("type", _text(header.type))):
        if not is_there:
            return Code.BAD_HEADER, name
    if header.body and not bytes(header.body).startswith(b"{"):
        return Code.BAD_BODY, "body"
    return Code.BAD_HEADER, "to"


def _text(raw: Raw) -> str:
    try:
        value = msgspec.json.decode(raw) if raw else ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""


# Building and changing messages.


class _Written(msgspec.Struct, gc=False):
    id: Raw | msgspec.UnsetType
    type: str
    from_: str = msgspec.field(name="from")
    to: str
    body: Raw | msgspec.UnsetType


def encode_message(
    *, id: bytes | int | str | None, type: str, from_: str, to: str, body: bytes | Mapping[str, object] | None = None
) -> bytes:
    """Write one message in the strict form.

    `id` is JSON text as received (bytes) or a value of ours; `body` is raw JSON object text or members, and is left out
    when it is empty.
    """
    written_id: Raw | msgspec.UnsetType = msgspec.UNSET
    if id is not None:
        written_id = Raw(id if isinstance(id, bytes) else _encode(id))
    written_body: Raw | msgspec.UnsetType = msgspec.UNSET
    if body:
        written_body = Raw(body if isinstance(body, bytes) else _encode(body))
    return _encode(_Written(written_id, type, from_, to, written_body))


def build(
    *, id: bytes | int | str | None, type: str, from_: str, to: str, body: Mapping[str, object] | None = None
) -> Message:
    """Make a message of our own."""
    id_ = id if id is None or isinstance(id, bytes) else _encode(id)
    text = _encode(body) if body else b""
    return _written(id_, type, from_, to, text, _decode_peek(text) if text else NO_PEEK)


_EMPTY_BODY_BYTES: Final = len(b"{}")


def _written(id_: bytes | None, type_: str, from_: str, to: str, body: bytes, peek: BodyPeek) -> Message:
    """A message of our own around its body."""
    written = _Written(
        msgspec.UNSET if id_ is None else Raw(id_), type_, from_, to, Raw(body) if body else msgspec.UNSET
    )
    return Message(id_, type_, from_, to, body, _encode(written), peek, len(body) > _EMPTY_BODY_BYTES)


class _PlainAnswer(msgspec.Struct, gc=False):
    """What the body of an answer says, when it says no more; what is UNSET is left out."""

    code: int
    description: str
    value: object
    desc: str | msgspec.UnsetType


def response(
    request: Message,
    code: int,
    *,
    description: str | None = None,
    value: object = msgspec.UNSET,
    extra: Mapping[str, object] | None = None,
    has_desc: bool = False,
) -> Message:
    """Answer a request: from and to exchanged, same id.

    Args:
        request: The request.
        code: Status of the answer.
        description: Text for people; that of the code by default.
        value: Result of the request; left out by default.
        extra: Further members of the body, such as `reason` and `source`.
        has_desc: Repeat the description as `desc`, which dialect A reads.

    Source: message specification, sections 3 and 4.
    """
    description = description or DESCRIPTIONS.get(code, "")
    if not extra:
        text = _encode(_PlainAnswer(code, description, value, description if has_desc else msgspec.UNSET))
        return _written(request.id, "response", request.to, request.from_, text, _peek_of_code(code))
    body: dict[str, object] = {"code": code, "description": description}
    if value is not msgspec.UNSET:
        body["value"] = value
    body.update(extra)
    if has_desc:
        body["desc"] = description
    text = _encode(body)
    peek = _peek_of_code(code) if _PEEKED.isdisjoint(extra) else _decode_peek(text)
    return _written(request.id, "response", request.to, request.from_, text, peek)


@lru_cache(_CACHED_CODES)
def _peek_of_code(code: int) -> BodyPeek:
    """The peek of an answer whose only member for routing is its code."""
    return BodyPeek(code=Raw(_encode(code)))


def refusal(
    request: Message, code: Code, *, source: str | None = None, value: object = msgspec.UNSET, detail: str = ""
) -> Message:
    """Answer a request with one of our codes; `detail` is added to its description, `source` names this node."""
    description = f"{code.description}: {detail}" if detail else code.description
    extra = {"reason": code.word} if source is None else {"reason": code.word, "source": source}
    return response(request, code.status, description=description, value=value, extra=extra)


def ends_with_body(raw: bytes, body: bytes) -> bool:
    """True if the text of a decoded message ends with its body: the last member, and the one that is called `body`.

    A further member may have the same value. If the text ends with `body` and a brace, then `body` is the whole value
    of the last member: both are objects with the same last brace, so with the same first one, unless one of them began
    inside a text of the other; but then their quotation marks could not both be even in number. What stands before a
    value is its name and a colon, and a quotation mark behind one of `{`, `,` or a blank begins a name.
    """
    if raw.endswith(b',"body":%b}' % body):  # nearly always
        return True
    if not raw.endswith(b"%b}" % body):
        return False
    start = len(raw) - len(body) - 1
    return _BODY_NAME.search(raw, max(start - _LOOKED_AT_BYTES, 0), start) is not None


def with_body(message: Message, body: bytes) -> Message:
    """The same message around another body; all other bytes stay."""
    raw, old = message.raw, message.body
    takes_members = body[-1] == _BRACE and body[-2] not in _BEFORE_NOTHING
    if ends_with_body(raw, old):
        new_raw = raw[: -len(old) - 1] + body + b"}"
    elif not old and raw.endswith(b"}"):
        new_raw = raw[:-1] + b',"body":' + body + b"}"
    else:
        members: dict[str, Raw] = _decode_members(raw)
        members["body"] = Raw(body)
        new_raw = _encode(members)
        takes_members = False
    id_, type_, from_, to = message.id, message.type, message.from_, message.to
    peek = _decode_peek(body)
    return Message(id_, type_, from_, to, body, new_raw, peek, takes_members, message.is_late, message.verdict)


def with_recipient(message: Message, to: str) -> Message:
    """The same message to another address; all other members stay."""
    members: dict[str, Raw] = _decode_members(message.raw)
    members["to"] = Raw(_encode(to))
    id_, type_, body, peek = message.id, message.type, message.body, message.peek
    return Message(id_, type_, message.from_, to, body, _encode(members), peek, False, message.is_late, message.verdict)


def append_members(body: bytes, members: bytes) -> bytes:
    """Add members (raw JSON text without braces) at the end of an object."""
    inner = body.strip()[1:-1].rstrip() if body else b""
    return b"{" + inner + (b"," if inner else b"") + members + b"}"


def with_last_member(message: Message, member: bytes) -> Message:
    """The same message with one member more (raw JSON text) at the end of its body, which routing does not look at."""
    body = message.body
    if not message.takes_members:
        return with_body(message, append_members(body, member))
    id_, type_, from_, to, raw = message.id, message.type, message.from_, message.to, message.raw
    raw, body = b"%b,%b}}" % (raw[:-2], member), b"%b,%b}" % (body[:-1], member)
    return Message(id_, type_, from_, to, body, raw, message.peek, True, message.is_late, message.verdict)


def with_member(body: bytes, name: str, value: bytes) -> bytes:
    """Give one member of an object another value (raw JSON text), in its old place; the others keep their bytes."""
    members: dict[str, Raw] = _decode_members(body)
    members[name] = Raw(value)
    return _encode(members)


def without_members(body: bytes, names: Iterable[str]) -> bytes:
    """Remove members of an object; the values of all others keep their bytes."""
    members: dict[str, Raw] = _decode_members(body)
    for name in names:
        members.pop(name, None)
    return _encode(members)


def request_members(body: bytes) -> dict[str, object]:
    """Decode the whole body of a request to a service.

    Raises:
        PeerError: BAD_BODY; TOO_LARGE for one of more objects and lists than any request needs: they cost more to make
            than their bytes cost the sender.
    """
    if len(body) > REQUEST_PARTS and body.count(b"{") + body.count(b"[") > REQUEST_PARTS:
        raise PeerError(Code.TOO_LARGE, f"the body has more than {REQUEST_PARTS} parts")
    return body_members(body)


def body_members(body: bytes) -> dict[str, object]:
    """Decode a whole body.

    Raises:
        PeerError: BAD_BODY.
    """
    if not body:
        return {}
    try:
        return _decode_plain(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise PeerError(Code.BAD_BODY, "the body cannot be read") from exc


def body_text(raw: bytes) -> str:
    """Value of one peeked member as text, "" when it is absent or no text."""
    return _text(Raw(raw)) if raw else ""
