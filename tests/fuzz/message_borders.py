"""What runtimes and links send as messages: headers, addresses, command frames."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Final

import msgspec

from federation.core.border import InwardBorder, Speaker
from federation.links.inward_flow import InwardFlow, InwardTerms
from federation.links.link_records import LinkRecords, Recording
from msg_node.bus.core.admission import check_passable
from msg_node.connectors.core.command_frames import connect_answer, read_command
from msg_node.kernel.answers import validator_reply
from policy.core.engine import Facts
from policy.core.gate import Gate, PeerRule
from protofly import codec
from protofly.address import canonical_key, destination_of, domain_of, is_below, parse, scheme_of, valid_domain
from protofly.answer_codes import code_of
from protofly.errors import Code, PeerError
from protofly.header_text import header_text, key_of
from protofly.lifetime import aged
from protofly.limits import HEADER_CHARS, NESTING_LEVELS
from protofly.message import Message
from protofly.records import envelope_digest
from tests.fuzz.target import Target

ANA: Final = "runtime://alpha.example/rt-ana"


# Messages.


def check_message(data: bytes) -> None:
    """Any frame is messages, each as it is read by everybody else, or an error that can be answered."""
    try:
        messages = codec.decode(data)
    except codec.BrokenMessageError as exc:
        _check_reply(exc)
        raise
    assert messages
    for message in messages:
        _check_read_alike(message)
        [again] = codec.decode(message.raw)
        assert again.takes_members or not message.takes_members  # what was written anew does not say so
        assert msgspec.structs.replace(again, takes_members=message.takes_members) == message
        _check_steps(message)


def _check_reply(exc: codec.BrokenMessageError) -> None:
    """What is said to the sender of a broken frame is a message, whatever was broken."""
    reply = validator_reply(exc, ANA, has_desc=True)
    if reply is not None:
        assert codec.decode(reply.raw) == [reply]


def _check_read_alike(message: Message) -> None:
    """Python's own reader finds in the text what was judged; of members given twice the last, as in browsers."""
    members: dict[str, Any] = json.loads(message.raw, parse_int=str, parse_float=str)
    assert (members["type"], members["from"], members["to"]) == (message.type, message.from_, message.to)
    assert 0 < len(message.to) <= HEADER_CHARS
    if message.id is None:
        assert members.get("id") is None
    else:
        assert members["id"] == json.loads(message.id, parse_int=str)
    body = json.loads(message.body, parse_int=str, parse_float=str) if message.body else None
    assert members.get("body") == body
    assert _depth(members) <= NESTING_LEVELS


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


def _check_steps(message: Message) -> None:
    """What the bus does next with a message; each step may refuse it."""
    answer = codec.response(message, 200, value=1)
    assert codec.decode(answer.raw)[0].id == message.id
    stripped = codec.without_members(message.body, ("auth", "via")) if message.body else b"{}"
    changed = codec.with_body(message, codec.append_members(stripped, b'"via":["x"]'))
    assert bytes(changed.peek.via) == b'["x"]'
    assert not changed.peek.auth
    _check_read_alike(changed)
    assert 0 <= code_of(message) <= 599
    for name in ("source", "resource"):
        codec.body_text(bytes(getattr(message.peek, name)))
    codec.body_members(message.body)
    check_passable(message)
    later = aged(message, 1.0)
    assert later is None or codec.decode(later.raw)
    for address in (message.from_, message.to):
        canonical_key(address)


def _message(**members: object) -> bytes:
    return json.dumps(members).encode()


_SUBSCRIBE = {"resources": ["comm://beta.example/c1/changes"], "source": ANA}
MESSAGES: Final = (
    _message(id=1, type="open", **{"from": ANA}, to="mn:/session"),
    _message(id="2", type="ping", **{"from": ANA}, to="mn:/session", body={"ttl": 1.5}),
    _message(id=2, type="create", **{"from": ANA}, to="domain://msg-node.alpha.example/address-allocation",
             body={"scheme": "comm", "value": {"number": 1}}),
    _message(id=3, type="subscribe", **{"from": ANA}, to="domain://msg-node.alpha.example/sm", body=_SUBSCRIBE),
    _message(type="update", **{"from": "comm://alpha.example/c1"}, to=["comm://alpha.example/c1/changes", "b"],
             body={"value": {"a": [1, {"b": None}]}, "via": ["runtime://alpha.example/mn"], "auth": True}),
    _message(id=4, type="RESPONSE", **{"from": "a", "to": "b"}, body={"code": "2XX", "x": "é", "trace": "mn:1"}),
    _message(id=5, type="forward", **{"from": "a", "to": "b"},
             body={"message": {"id": 1, "type": "forward", "from": "a", "to": "b", "body": {"message": {}}}}),
    b'{"id":6,"type":"x","from":"a","to":"b","to":"c","body":{"sessionToken":"x","source":"y","receipt":true}}',
    b'{"id":null,"type":"x","fr\\u006fm":"a","to":"b","body":null}',
    b'{"id":"\xff","type":"x","from":"\xed\xa0\x80"}',
    b'{"id":7,"type":"x","from":"a","to":"b","body":' + b'{"a":' * 70 + b"1" + b"}" * 71,
)  # fmt: skip


# Addresses.


def check_address(data: bytes) -> None:
    """Any text has one key, which is its own key and lies in the same domain, or is refused."""
    text = data.decode(errors="replace")
    try:
        valid = valid_domain(text)
    except PeerError:
        valid = ""
    key = canonical_key(text)
    assert canonical_key(key) == key
    assert domain_of(key) == domain_of(text)
    assert scheme_of(key) == scheme_of(text)
    assert destination_of(text) in ("", domain_of(text))
    assert is_below(key, key)
    assert is_below(f"{key}/x", key)
    assert not is_below(f"{key}x", key)
    assert len(parse(text)) == 3
    if valid:
        assert domain_of(f"hyperty://{valid}/h") == valid


ADDRESSES: Final = (
    b"hyperty-runtime://alpha.example/rt-ana/sm",
    b"runtime:/alice",
    b"domain://msg-node.alpha.example/address-allocation/",
    b"domain://registry.alpha.example.",
    b"global://registry/.",
    b"comm://Alpha.Example:443/c1/children/",
    "hyperty://münchen.example/h".encode(),
    b"hyperty://xn--mnchen-3ya.example/h",
    b"comm://[::1]:80/x",
    b"user-guid://Ab_-9",
    b"acct://ana@alpha.example/",
    b"mn:/session",
    b"alpha.example",
    b"word",
)


# Commands of dialects B and C.


def check_command(data: bytes) -> None:
    """Any text is a command or none; what it names goes the way of a handshake."""
    text = data.decode(errors="replace").encode()  # the WebSocket below has seen to that
    command = read_command(text)
    if command is None:
        return
    with contextlib.suppress(RecursionError):  # Python's reader gives up a little earlier
        assert json.loads(text)["cmd"] == command.word
    assert json.loads(connect_answer(403, command.word, reason=Code.BAD_HEADER.word))["data"]["msg"] == command.word
    opening = codec.build(id=1, type="open", from_=command.runtime, to="mn:/session")
    assert opening.from_ == command.runtime
    canonical_key(command.runtime)


COMMANDS: Final = (
    b'{"cmd":"connect","data":{"runtimeURL":"runtime://alpha.example/rt-ana"}}',
    b'{"cmd":"disconnect","body":{"runtimeURL":"runtime://alpha.example/rt-ana"}}',
    b'{"cmd":"\\u0063onnect","data":null,"body":{"runtimeURL":"x"}}',
    b'{"id":1,"type":"x","from":"a","to":"b","body":{"cmd":"connect"}}',
)

# Messages of flows.

_HEADER: Final = (
    b'{"id":7,"type":"event","from":"hyperty://a.example/ana","to":"hyperty://b.example/bo","body":{"n":1}}'
)
_WITHOUT_ID: Final = _HEADER.replace(b'"id":7,', b"")
_ID_BETWEEN: Final = _WITHOUT_ID.replace(b',"to', b',"id":7,"to')
_TEXTS: Final = tuple(
    text for raw in (_HEADER, _WITHOUT_ID, _ID_BETWEEN) if (text := header_text(codec.decode(raw)[0])) is not None
)


def check_flow(data: bytes) -> None:
    """What is read by a known header is what the codec reads, and a header that is learned reads its own text."""
    read = [message for text in _TEXTS if (message := text.decode(data)) is not None]
    messages = codec.decode(data)
    for message in read:
        assert messages == [message]
    for message in messages:
        text = header_text(message)
        if text is not None:
            assert text.key == key_of(message.raw)
            assert text.decode(message.raw) in (message, None)  # None: many brackets, which the codec looks at


FLOWS: Final = (
    _HEADER,
    _WITHOUT_ID,
    _ID_BETWEEN,
    _HEADER.replace(b'{"n":1}', b'{"n":1},"from":"hyperty://a.example/eve","x":{"n":1}'),
    _HEADER.replace(b'{"n":1}', b'{"via":[],"n":"\\ud800"}'),
    _HEADER.replace(b'"body"', b'"id":8,"body"'),
)


_HOPS: Final = b'["runtime://a.example/mn-1"]'
_CARRIED: Final = _HEADER[:-2] + b',"trace":"mn:' + b"7" * 32 + b'","via":' + _HOPS + b"}}"


def check_inward_flow(data: bytes) -> None:
    """What a flow makes of a text is what the border makes of it, and the border knows its sender."""
    made = _INWARD.make(data, 0)
    if made is not None:
        message, record = made
        assert _BORDER.without_trailer(data) == (message, bytes.fromhex(record.msg_id))
        assert message.from_ in _BORDER.known_senders
        [whole] = codec.decode(data)
        inner, msg_id = InwardBorder("runtime://b.example/mn-1", _BORDER.speaker).cross(whole)
        assert (inner.raw, inner.body, msg_id.hex()) == (message.raw, message.body, record.msg_id)
        assert record.digest == envelope_digest(inner.type, inner.from_, inner.to, inner.id, inner.body)


def _inward_flow() -> tuple[InwardBorder, InwardFlow]:
    border = InwardBorder("runtime://b.example/mn-1", Speaker(frozenset({"a.example"}), frozenset({"b.example"})))
    [whole] = codec.decode(_CARRIED)
    border.check_sender(whole)
    inner, _ = border.cross(whole)
    text = header_text(codec.decode(inner.raw)[0])
    gate = Gate(peers={"*": PeerRule()})
    settled = gate.settle(Facts("in", inner, "a.example", "b.example", "a.example", len(_CARRIED), 1, 0.0))
    assert text is not None
    assert settled is not None
    record = LinkRecords("a.example", Recording("b.example", gate, lambda _record: None)).entering(
        Facts("in", inner, "a.example", "b.example", "a.example", len(_CARRIED), 1, 0.0), settled.verdict, b"", ""
    )
    return border, InwardFlow(inner, text, InwardTerms(settled, border.known_hops, object(), record))


_BORDER, _INWARD = _inward_flow()
INWARD_FLOWS: Final = (
    _CARRIED,
    _CARRIED.replace(b"7" * 32, b"aAbB" * 8),
    _CARRIED.replace(b'{"n":1,', b'{"n":{"x":1,'),
    _CARRIED.replace(b'{"n":1,', b'{"via":[],"n":"\\u0061",'),
    _CARRIED.replace(b'{"n":1,', b"{"),
    _CARRIED.replace(b'"body"', b'"from":"hyperty://c.example/eve","body"'),
)


TARGETS: Final = (
    Target("message", check_message, MESSAGES, calls_per_byte=20),
    Target("flow", check_flow, FLOWS, calls_per_byte=20),
    Target("inward-flow", check_inward_flow, INWARD_FLOWS, calls_per_byte=40),
    Target("address", check_address, ADDRESSES),
    Target("command-frame", check_command, COMMANDS),
)
