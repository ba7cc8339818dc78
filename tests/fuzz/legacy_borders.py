"""What interworking brings in: ranges of manifests, senders of legacies, tokens in invitations, requests of stubs."""

from __future__ import annotations

import json
from typing import Final

from federation.core.interworking import Admission, Interworking
from federation.core.service_tokens import ServiceTokens, origin_of, read_token
from protofly import codec
from protofly.address import canonical_key, domain_of, parse
from protofly.documents import decode_manifest
from protofly.legacy_range import parse_range
from sandbox.core.exchange import ChannelKind
from sandbox.core.open_request import check_open, decode_open
from tests.fuzz.target import Target

STUB: Final = "sip.legacy.example"
OUR_DOMAIN: Final = "a.example"
API: Final = "https://api.legacy.example"
GRANTED: Final = (parse_range("sip://legacy.example"), parse_range("tel:+4930*"))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def check_range(data: bytes) -> None:
    """Any text is a range or refused; a range covers itself and no address of a scheme that is ours."""
    one = parse_range(_text(data))
    assert parse_range(str(one)) == one
    assert one.is_within(one)
    assert not one.covers(parse(f"hyperty://{OUR_DOMAIN}/x"))


MANIFEST: Final = {
    "spec": "rmn-stub/1",
    "domain": STUB,
    "name": "sipStub",
    "serial": 1,
    "version": "1",
    "released": "2031-01-01T00:00:00Z",
    "expires": "2031-06-01T00:00:00Z",
    "module": {"sha256": "0" * 64, "size": 8, "urls": ["https://x.example/m"]},
    "abi": {"name": "trapezoid-stub", "version": "1"},
    "permissions": {"ranges": ["sip://legacy.example"]},
    "interworking": True,
}


def check_manifest(data: bytes) -> None:
    """Any payload is a manifest whose flag and ranges go together, or is refused."""
    manifest = decode_manifest(data, domain=STUB)
    assert manifest.interworking == bool(manifest.permissions.ranges)
    _interworking().verified(manifest)


def _interworking() -> Interworking:
    return Interworking([Admission(domain=STUB, ranges=GRANTED)], own_domains={OUR_DOMAIN})


SENDERS: Final = _interworking()
SENDERS.verified(decode_manifest(json.dumps(MANIFEST).encode(), domain=STUB))


def check_sender(data: bytes) -> None:
    """Whatever an address is, who speaks for it is the same for its canonical key, and never us."""
    text = _text(data)
    verdict = SENDERS.speaks_for(STUB, text)
    key = canonical_key(text)
    assert SENDERS.speaks_for(STUB, key) == verdict
    if verdict:
        assert domain_of(key) != OUR_DOMAIN
        assert parse(key).scheme in ("sip", "tel")
        assert parse(key).authority.count("@") <= 1


def check_invitation(data: bytes) -> None:
    """Any message is handed over without the tokens of its identity, or refused; what stands for one is known."""
    tokens = ServiceTokens([API])
    for message in codec.decode(data):
        veiled = tokens.veiled(message, "handle")
        assert (veiled.from_, veiled.to, veiled.type, veiled.id) == (
            message.from_,
            message.to,
            message.type,
            message.id,
        )
        assert codec.decode(veiled.raw)[0].body == veiled.body
        for handle, token in tokens._users.items():
            assert tokens.of_user(handle) == token
            assert read_token(token) == token


def check_request(data: bytes) -> None:
    """Any `open` is refused or bends nothing: no second request, no header of ours, no place but its endpoint."""
    request = decode_open(data)
    check_open(request, ChannelKind.HTTP)
    assert request.path[:1] in ("", "/", "?")
    assert request.path.isascii()
    assert not set("\r\n #\\") & set(request.path)
    assert all("\r" not in text and "\n" not in text for item in request.headers.items() for text in item)
    assert not {"authorization", "proxy-authorization", "host", "cookie"} & {name.lower() for name in request.headers}
    assert origin_of(API + request.path) == API
    if request.token:
        ServiceTokens([API], has_service_token=True).check(request.token, API)


def _seeds(*texts: str) -> tuple[bytes, ...]:
    return tuple(text.encode() for text in texts)


ADDRESSES: Final = _seeds(
    "sip://bo@legacy.example",
    "sip:bo@legacy.example/status",
    "tel:+49301234",
    "sip://bo@legacy.example:5060",
    "sip://a@b@legacy.example",
    " SIP://Bo@LEGACY.example.",
    "tel://+4930",
    "hyperty://sip.legacy.example/bo",
)
INVITATION: Final = {"userProfile": {}, "accessToken": "a.b.c", "more": [{"access_token": "d=="}]}
HEADER: Final = {"id": 7, "type": "create", "from": "hyperty://a.example/ana", "to": "sip://bo@legacy.example"}
INVITATIONS: Final = _seeds(
    json.dumps({**HEADER, "body": {"value": 1, "identity": INVITATION}}),
    json.dumps({**HEADER, "body": {"identity": {"accessToken": 7}}}),
    json.dumps({**HEADER, "body": {"identity": ["accessToken"], "x": '"accessToken"'}}),
    json.dumps({**HEADER, "body": {"value": "accessToken"}}),
)
REQUESTS: Final = _seeds(
    '{"endpoint":"api","path":"/who?x=1","token":"service"}',
    '{"endpoint":"api","method":"POST","headers":{"X-A":"b"},"body":"x","token":"h1"}',
    '{"endpoint":"api","headers":{"Authorization":"x"}}',
    '{"endpoint":"api","path":"@evil.example/","token":"service"}',
)

TARGETS: Final = (
    Target("legacy-range", check_range, _seeds("sip://legacy.example", "tel:+4930*", "tel:*", "user://x", "sip://a/b")),
    Target("interworking-manifest", check_manifest, (json.dumps(MANIFEST).encode(),)),
    Target("legacy-sender", check_sender, ADDRESSES),
    Target("invitation", check_invitation, INVITATIONS, calls_per_byte=40, memory_per_byte=400),
    Target("stub-request", check_request, REQUESTS),
)
