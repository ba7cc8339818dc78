"""What comes in as documents and proofs: bearer tokens, key sets, policy files, link frames, segments, reports."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from functools import cache
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric import ed25519

from federation.core import link_frames
from msg_node.kernel.bearer_tokens import IssuerRules, check_token
from msg_node.kernel.data_schemas import DataSchema
from msg_node.kernel.issuer_keys import VerificationKey, keys_of_jwks
from msg_node.kernel.signed_tokens import issuer_of, looks_like_token
from policy.core.document import Syntax
from policy.core.text import PolicyText, parse_policy_file
from protofly.block_list import PAYLOAD_TYPE, BlockedDomain, BlockList, read_block_list
from protofly.errors import Code, PeerError
from protofly.partner_files import PartnerFile, header_of, read_header
from protofly.record_blocks import BLOCK_LINES_BYTES_MAX, BLOCK_MAGIC, read_block
from protofly.record_segments import SegmentName, encode_manifest
from protofly.records import decode_manifest
from protofly.signatures import SigningKey, base64url, sign_envelope
from sandbox.core.recording import FlightLog, RecordedStub, decode_recording, encode_recording
from stubkit.certification import SPEC, Certification, RequirementVerdict, as_html, as_junit, decoded, encoded
from stubkit.keys import make_keys
from tests.fuzz.target import Target

NOW: Final = 1_800_000_000.0
RUNTIME: Final = "runtime://alpha.example/rt-ana"
RULES: Final = IssuerRules(
    issuer="https://login.alpha.example",
    audience="runtimes.alpha.example",
    runtimes=("runtime://alpha.example/*",),
    roles_claim="realm.roles",
)


# Bearer tokens.


@cache
def _signing() -> tuple[ed25519.Ed25519PrivateKey, list[VerificationKey]]:
    """The issuer's key, always the same."""
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
    public = {"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": _part(key.public_key().public_bytes_raw())}
    return key, keys_of_jwks(json.dumps({"keys": [public]}).encode())


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def check_bearer(data: bytes) -> None:
    """Any text is refused; what the issuer signed is a proof for this runtime, now, or is refused.

    The first byte says what the rest is: a whole token, or the header or the payload of one that is well signed.
    """
    key, keys = _signing()
    kind, rest = data[:1], data[1:]
    if kind == b"t":
        token = rest.decode("latin-1")
    else:
        header, payload = (rest, CLAIMS) if kind == b"h" else (b'{"alg":"EdDSA","kid":"k1"}', rest)
        signed = f"{_part(header)}.{_part(payload)}"
        token = f"{signed}.{_part(key.sign(signed.encode()))}"
    if not looks_like_token(token):
        return
    issuer_of(token)
    proof = check_token(token, RUNTIME, RULES, keys, now=NOW)
    assert kind != b"t" or proof.subject == "ana"
    assert proof.expires_at > NOW
    assert 0 < len(proof.subject) <= 512
    claims = json.loads(payload) if kind != b"t" else json.loads(CLAIMS)
    assert claims["iss"] == RULES.issuer
    assert RULES.audience in claims["aud"]
    assert "rt-ana" in str(claims["runtime"]) or "*" in str(claims["runtime"])


CLAIMS: Final = json.dumps({
    "iss": RULES.issuer, "aud": [RULES.audience], "sub": "ana", "iat": int(NOW), "exp": int(NOW) + 300,
    "runtime": RUNTIME, "realm": {"roles": ["operator"]},
}).encode()  # fmt: skip
BEARERS: Final = (
    b"p" + CLAIMS,
    b"p" + CLAIMS.replace(b'"runtime://alpha.example/rt-ana"', b'["runtime://alpha.example/*"]'),
    b"p" + CLAIMS.replace(b'{"roles"', b'{"nbf":1e999,"roles"'),
    b'h{"alg":"EdDSA","kid":"k1","typ":"JWT"}',
    b'h{"alg":"none"}',
    b'h{"alg":"HS256","kid":"k1","crit":["b64"],"b64":false}',
    b"teyJhbGciOiJub25lIn0.e30.e30",
)


def check_key_set(data: bytes) -> None:
    """Any bytes are public keys that each verify a few algorithms, or are refused; the loader of settings words it."""
    try:
        keys = keys_of_jwks(data)
    except ValueError:
        return
    for key in keys:
        assert key.algorithms
        assert not key.algorithms & {"none", "HS256", "HS384", "HS512"}
        assert key.payload_of("e30.e30.e30", next(iter(key.algorithms))) is None


_P256: Final = {
    "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0", "kid": "1",
}  # fmt: skip
_ED25519: Final = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "alg": "EdDSA"}
KEY_SETS: Final = (
    json.dumps({"keys": [_P256, _ED25519]}).encode(),
    json.dumps({"keys": [{"kty": "RSA", "n": "u" * 344, "e": "AQAB", "use": "sig"}]}).encode(),
    json.dumps({"keys": [{"kty": "oct", "k": "AAAA"}]}).encode(),
    json.dumps({"keys": [{**_ED25519, "d": "x", "key_ops": ["verify"]}]}).encode(),
)


# Policies.


def check_policy(data: bytes) -> None:
    """Any text is policies or a complaint that names the file; its own tests are run within the same bounds."""
    syntax: Syntax = "json" if data[:1] == b"j" else "toml"
    text = data[1:].decode(errors="replace")
    found = parse_policy_file(PolicyText("mail.toml", text, syntax))
    assert found.sets


POLICIES: Final = (
    b"""tid = "mail"
[[rules]]
effect = "permit"
target = {msgType = {in = ["create", "read"]}, "msgFrom.domain" = {equals = "b.example"}}
[[tests]]
expect = "permit"
""",
    b"""t[lists]
friends = ["a.example", 7, 2026-01-01]
[[sets]]
id = "s"
mode = "report"
[[sets.policies]]
combining_algorithm = "firstApplicable"
[[sets.policies.rules]]
decision = false
condition = {not = {time = {between = ["08:00", "18:00"]}}}
obligations = {log = "x"}
""",
    b'j{"rules":[{"scope":"identity","target":"ana","decision":true,"condition":{"attribute":"date","operator":"equals","params":"01/01/2026"}}]}',
    b'j[{"key":"k","policies":[{"rules":[{"effect":"deny","condition":{"or":[{"msgTo":{"like":"*.b.example*"}}]}}]}]}]',
)


# Links.


def check_link_frame(data: bytes) -> None:
    """Any frame is one of ours or refused; messages that are packed again are the same."""
    frame = link_frames.decode_frame(data)
    assert link_frames.encode_frame(frame.kind, frame.arg, frame.payload) == data
    if frame.kind is link_frames.FrameKind.HELLO:
        hello = link_frames.decode_hello(frame)
        assert len(hello.stream) == 32
    elif frame.kind is link_frames.FrameKind.MESSAGES:
        messages = link_frames.decode_messages(frame.payload)
        packed = link_frames.encode_messages(list(enumerate(messages, frame.arg)))
        assert [one for part in packed for one in link_frames.decode_messages(part[8:])] == messages


_HELLO: Final = {"stream": "0" * 32, "domain": "beta.example", "node": "runtime://beta.example/mn", "delivered": 3}
LINK_FRAMES: Final = (
    link_frames.encode_frame(link_frames.FrameKind.HELLO, 1, json.dumps(_HELLO).encode()),
    *link_frames.encode_messages([(7, b"{}"), (8, b""), (9, b'{"id":1}')]),
    link_frames.encode_frame(link_frames.FrameKind.ACK, (1 << 32) - 1),
)


# Segments.


_LIST_KEY: Final = SigningKey.from_seed("k", bytes(32))
_LIST_NOW: Final = 1_000_000.0
_LIST: Final = msgspec.json.encode(
    BlockList(
        author="a.example",
        serial=7,
        issued=_LIST_NOW,
        expires=_LIST_NOW + 60,
        entries=(BlockedDomain(domain="evil.example", reason="flood in 3 hours"),),
    )
)
_FILE: Final = PartnerFile(
    author="a.example", reader="b.example", name="2026-11-23.totals", size=1, sha256="0" * 64, sent=NOW
)


def check_manifest(data: bytes) -> None:
    """Any file is a manifest that survives being written, or refused."""
    manifest = decode_manifest(data)
    assert decode_manifest(encode_manifest(manifest)) == manifest
    manifest.signed_bytes()


def check_block_list(data: bytes) -> None:
    """Any document of an author is a block list that holds now, or refused with a code."""
    keys = [_LIST_KEY.record()]
    for raw in (data, sign_envelope(data, PAYLOAD_TYPE, [_LIST_KEY])):
        with suppress(PeerError):
            found = read_block_list(raw, author="a.example", keys=keys, now=_LIST_NOW)
            assert (found.author, found.expires > _LIST_NOW) == ("a.example", True)


def check_partner_file(data: bytes) -> None:
    """Any header is about a file of the author for us, or refused with a code; its name is one part of a path."""
    keys = [_LIST_KEY.record()]
    signed = f"{base64url(data)}.{base64url(_LIST_KEY.sign(b'trapezoid-file/1' + bytes([10]) + data))}"
    for text in (data.decode("latin-1"), signed):
        with suppress(PeerError):
            file = read_header(text, author="a.example", reader="b.example", keys=keys, now=NOW)
            assert (file.author, file.reader, "/" not in file.name) == ("a.example", "b.example", True)


def check_block(data: bytes) -> None:
    """Any content of a frame is a block that stands for as many lines as it says, or refused."""
    block = read_block(data)
    lines = list(block.lines())
    assert len(lines) == block.header.records
    assert sum(map(len, lines)) <= BLOCK_LINES_BYTES_MAX + len(lines) * len(data)


def check_segment_name(data: bytes) -> None:
    """Any name of a file is that of a segment, which names that segment again, or not ours."""
    name = SegmentName.parse(data.decode(errors="replace"))
    if name is not None:
        assert SegmentName.parse(str(name)) == name


MANIFESTS: Final = (
    json.dumps({
        "kind": "border", "node": "mn-1", "boot": 1, "segno": 2, "first_seq": 1, "last_seq": 3, "records": 3,
        "lost_records": 0, "size_bytes": 10, "sha256": "0" * 64, "prev_sha256": "", "min_ts_us": 1, "max_ts_us": 2,
        "opened_us": 1, "closed_us": 2, "closure": "rotated", "schema_version": 1, "policy_revs": ["a"],
        "stub_vers": [], "key_id": "k", "signature": "s",
    }).encode(),
)  # fmt: skip

_HEADER: Final = json.dumps({
    "v": 2, "node": "n", "boot": 1, "first_seq": 1, "records": 3, "columns": [
        {"name": "role", "form": "same", "values": ["out"]}, {"name": "size_in", "form": "u2"},
        {"name": "src_key", "form": "words", "values": ["x:1", "x:2"]},
        {"name": "fuel", "form": "u1", "nullable": True},
        {"name": "dst_key", "form": "each", "values": ["a", None, "b"]}, {"name": "digest", "form": "hex"},
    ],
}).encode()  # fmt: skip
BLOCKS: Final = (
    BLOCK_MAGIC
    + len(_HEADER).to_bytes(4, "little")
    + _HEADER
    + b"\1\2\3\0\0\1"
    + b"\0\1\0"
    + b"\1\0\1\7\7"
    + bytes(48),
)

# What authors and nodes write down about stubs.


def check_certification(data: bytes) -> None:
    """Any file is a report whose pages can be written, or refused."""
    report, is_signed = decoded(data)
    assert not is_signed
    assert decoded(encoded(report))[0] == report
    as_junit(report)
    as_html(report)


def check_recording(data: bytes) -> None:
    """Any bytes are a recording that survives being written, or refused."""
    recording = decode_recording(data)
    assert decode_recording(encode_recording(recording)) == recording


# Schemas, of data objects in catalogues and of settings in the manifests of stubs.


def check_data_schema(data: bytes) -> None:
    """Any JSON object is a schema that can be asked about any change, or refused."""
    try:
        source = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(source, dict):
        return
    schema = DataSchema(source)
    for change in _CHANGES:
        try:
            schema.check_change(change, SCHEMA_CHANGE_BYTES)
        except PeerError as refused:
            if refused.code is not Code.SCHEMA:
                raise AssertionError(f"a change is answered with {refused.code.word}") from refused
    assert all(isinstance(name, str) for name in schema.children)


SCHEMA_CHANGE_BYTES: Final = 300
_CHANGES: Final[tuple[dict[str, object], ...]] = (
    {"value": {"topic": "lunch", "people": [{"name": "Ana"}], "id": 1e308}},
    {"attribute": "people.0.name", "value": None},
    {"attribute": "people.1", "attributeType": "array", "operation": "add", "value": [{"name": 7}, []]},
    {"attribute": "topic"},
    {"attribute": "0." * 40, "value": {}},
)
SCHEMAS: Final = (
    b'{"type":"object","definitions":{"p":{"type":"object","properties":{"name":{"type":"string","pattern":"^[A-Z]"}},'
    b'"required":["name"]}},"properties":{"topic":{"enum":["lunch"]},"people":{"type":"array","items":'
    b'{"$ref":"#/definitions/p"}},"children":{"constant":["chatMessages"]}},"required":["topic"]}',
    b'{"$schema":"http://json-schema.org/draft-04/schema#","anyOf":[{"type":"string"},{"not":{"$ref":"#/anyOf/0"}}]}',
    b'{"patternProperties":{"^a":{"multipleOf":0.1}},"additionalProperties":false,"if":{},"then":{"minLength":1}}',
)

_REPORT: Final = Certification(
    spec=SPEC,
    stub="x",
    version="1",
    sha256="ab" * 32,
    kit="1",
    engine="e",
    made="2026-11-23T00:00:00+00:00",
    verdicts=[RequirementVerdict(number="SR-01", title="Is", result="passed", detail="x")],
)
_RECORDED: Final = RecordedStub(domain="b.example", name="x", version="1", sha256="ab" * 32, budget=b"")

TARGETS: Final = (
    Target(
        "block-list", check_block_list, (_LIST, sign_envelope(_LIST, PAYLOAD_TYPE, [_LIST_KEY])), memory_per_byte=400
    ),
    Target("partner-file", check_partner_file, (msgspec.json.encode(_FILE), header_of(_FILE, _LIST_KEY).encode())),
    Target("data-schema", check_data_schema, SCHEMAS, calls_per_byte=60, memory_per_byte=400),
    Target("certification", check_certification, (encoded(_REPORT), encoded(_REPORT, make_keys().pkg))),
    Target("recording", check_recording, (encode_recording(FlightLog(9).recording(_RECORDED, fault="", at=0.0)),)),
    Target("bearer-token", check_bearer, BEARERS),
    Target("key-set", check_key_set, KEY_SETS),
    Target("policy-file", check_policy, POLICIES, calls_per_byte=60, memory_per_byte=400),
    Target("link-frame", check_link_frame, LINK_FRAMES),
    Target("segment-manifest", check_manifest, MANIFESTS),
    Target("segment-block", check_block, BLOCKS, memory_per_byte=3000),
    Target("segment-name", check_segment_name, (b"border-mn-1-3-000002", b"message-a-b-\xd9\xa3-1")),
)
