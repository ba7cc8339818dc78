"""The three signed documents of a domain - `root`, `live`, `manifest` - and how their bytes become values.

`root` says whose keys count, `live` says what is true today, `manifest` says what one stub is and wants. Decoding is
strict where it protects (duplicate members, NaN, unknown `spec`, foreign `domain` are refused) and open where documents
grow: other unknown members are ignored, and a document is kept as its bytes. What was signed is hashed and
compared as received.

The hash by which one document names another is SHA-256 over the payload bytes, not over the envelope: signatures may be
added to an envelope without changing what it says.

Source: trust and hosts, sections 3.3 and 3.4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from protofly.errors import Code, PeerError
from protofly.legacy_range import RangeText, parse_range
from protofly.signatures import (
    Envelope,
    KeyId,
    KeyRecord,
    Moment,
    SigningKey,
    base64url,
    decode_envelope,
    domain_of_pem,
    is_fingerprint,
    is_usable,
    pae,
    parse_strict,
    sign_envelope,
    verify_signature,
)

__all__ = [
    "ABI_MAJOR",
    "ABI_NAME",
    "LIVE_TYPE",
    "MANIFEST_TYPE",
    "ROOT_TYPE",
    "Abi",
    "DocumentBundle",
    "Endpoint",
    "Envelope",
    "KeyRecord",
    "Live",
    "Manifest",
    "ModuleReference",
    "Needs",
    "Permissions",
    "Revoked",
    "Role",
    "Roles",
    "Root",
    "RootReference",
    "SigningKey",
    "StubReference",
    "TrustLevel",
    "base64url",
    "decode_envelope",
    "decode_live",
    "decode_manifest",
    "decode_root",
    "document_sha256",
    "domain_of_pem",
    "encode_document",
    "is_fingerprint",
    "key_set_fingerprint",
    "pae",
    "parse_strict",
    "sign_document",
    "sign_envelope",
    "verify_signature",
]

ROOT_TYPE: Final = "application/vnd.rethink.root.v1+json"
LIVE_TYPE: Final = "application/vnd.rethink.live.v1+json"
MANIFEST_TYPE: Final = "application/vnd.rethink.stub-manifest.v1+json"

ABI_NAME: Final = "trapezoid-stub"
"""Name of the stub ABI that this node runs. Source: docs/abi.md."""
ABI_MAJOR: Final = 1

PINS: Final = 8
"""Most key pins of an endpoint."""
ALTERNATES: Final = 15
"""Most further places of an endpoint."""

Domain = Annotated[
    str, msgspec.Meta(max_length=253, pattern=r"^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{1,63}\Z")
]
REVOKED_MODULES: Final = 512
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Serial = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
StubName = Annotated[str, msgspec.Meta(pattern=r"^(?!default\Z)[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")]
EndpointName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_-]{1,32}\Z")]
Word = Annotated[str, msgspec.Meta(max_length=256)]
EndpointUrl = Annotated[
    str,
    msgspec.Meta(
        max_length=2048, pattern=r"^(?:wss|ws|https|http|tls)://[a-z0-9.-]{1,253}(?::[0-9]{1,5})?(?:/[!-~]*)?\Z"
    ),
]
FetchUrl = Annotated[
    str, msgspec.Meta(max_length=2048, pattern=r"^https?://[a-z0-9.-]{1,253}(?::[0-9]{1,5})?/[!-~]*\Z")
]


class TrustLevel(Enum):
    """Ground on which the first root of a domain was accepted; the value is the word in settings and records.

    `operator`: nothing of the domain is believed, the operator chose the stub. `unsigned`: nothing either, the operator
    pinned the script that an original catalogue serves.
    """

    OPERATOR = "operator"
    UNSIGNED = "unsigned"
    PINNED = "pinned"
    DNSSEC = "dnssec"
    WEB = "web"

    @property
    def strength(self) -> int:
        """Higher is stronger; a domain never goes down by what the network says."""
        return _STRENGTH[self]


_STRENGTH: Final = {
    TrustLevel.OPERATOR: 4,
    TrustLevel.PINNED: 3,
    TrustLevel.DNSSEC: 2,
    TrustLevel.WEB: 1,
    TrustLevel.UNSIGNED: 0,
}


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of the root that may sign one kind of document, and the number of different ones that must."""

    keys: Annotated[list[KeyId], msgspec.Meta(min_length=1, max_length=16)]
    threshold: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1


class Roles(msgspec.Struct, frozen=True, kw_only=True):
    """The three roles."""

    root: Role
    live: Role
    pkg: Role


class Root(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Root document: the keys of a domain and their roles. Source: trust and hosts, section 3.4."""

    spec: Literal["rmn-root/1"]
    domain: Domain
    version: Serial
    issued: Moment
    expires: Moment
    keys: Annotated[dict[KeyId, KeyRecord], msgspec.Meta(min_length=1, max_length=64)]
    roles: Roles
    aliases: Annotated[list[Domain], msgspec.Meta(max_length=64)] = []


class RootReference(msgspec.Struct, frozen=True, kw_only=True):
    """The root under which a live document was made; `sha256` is that of its payload."""

    version: Serial
    sha256: Sha256


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place that the domain's stubs may ask us to connect to, by name. `spki` pins its TLS key when not empty.

    `alternates` are further places where the same service is: those of the other nodes of a domain. Readers that do not
    know them use `url`.
    """

    name: EndpointName
    url: EndpointUrl
    spki: Annotated[list[Annotated[str, msgspec.Meta(max_length=64)]], msgspec.Meta(max_length=PINS)] = []
    alternates: Annotated[list[EndpointUrl], msgspec.Meta(max_length=ALTERNATES)] = []

    def place(self, number: int) -> Endpoint:
        """One place of this endpoint alone; numbers beyond the last begin anew."""
        urls = [self.url, *self.alternates]
        return msgspec.structs.replace(self, url=urls[number % len(urls)], alternates=[])


class Abi(msgspec.Struct, frozen=True, kw_only=True):
    """A stub contract and its version, "major" or "major.minor"."""

    name: Word
    version: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,4}(?:\.[0-9]{1,4})?\Z")]

    @property
    def is_supported(self) -> bool:
        """True if this node can run a stub made for this ABI."""
        return self.name == ABI_NAME and int(self.version.partition(".")[0]) == ABI_MAJOR


class StubReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The current version of one stub.

    `manifest_sha256` is that of the manifest's payload; `abi`, when stated, lets readers choose before they fetch.
    """

    name: StubName
    serial: Serial
    version: Word
    manifest_sha256: Sha256
    abi: Abi | None = None


class Revoked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Revocations of a domain: modules by hash, keys by id, and every serial of a stub below a minimum."""

    modules: Annotated[list[Sha256], msgspec.Meta(max_length=REVOKED_MODULES)] = []
    keys: Annotated[list[KeyId], msgspec.Meta(max_length=64)] = []
    min_serial: Annotated[dict[StubName, Serial], msgspec.Meta(max_length=64)] = {}


class Live(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Live document: endpoints, current stubs, node keys, revocations. Source: trust and hosts, section 3.4."""

    spec: Literal["rmn-live/1"]
    domain: Domain
    serial: Serial
    issued: Moment
    expires: Moment
    root: RootReference
    endpoints: Annotated[list[Endpoint], msgspec.Meta(min_length=1, max_length=16)]
    stubs: Annotated[dict[Word, StubReference], msgspec.Meta(max_length=64)]
    mode: Literal["enforce", "testing"] = "enforce"
    catalogue: Word = ""
    node_keys: Annotated[dict[KeyId, KeyRecord], msgspec.Meta(max_length=64)] = {}
    revoked: Revoked = Revoked()
    contact: Word = ""

    def endpoint(self, name: str) -> Endpoint | None:
        """The endpoint of that name, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == name), None)


class ModuleReference(msgspec.Struct, frozen=True, kw_only=True):
    """The module by hash and size; `urls` are places that may have it, none of them trusted."""

    sha256: Sha256
    size: Annotated[int, msgspec.Meta(ge=8, le=32 << 20)]
    urls: Annotated[list[FetchUrl], msgspec.Meta(max_length=8)]
    type: Word = "application/wasm"


class Permissions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requested permissions. `connect` holds endpoint names, `ranges` legacy addresses of an interworking stub."""

    connect: Annotated[list[EndpointName], msgspec.Meta(max_length=16)] = []
    clock: Literal["none", "monotonic", "wall"] = "none"
    random: bool = False
    auth: bool = False
    storage_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    ranges: Annotated[list[RangeText], msgspec.Meta(max_length=64)] = []


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """Resources that a stub requests; 0 leaves the choice to the host. The host's limits win."""

    memory_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    call_ms: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Manifest of one stub: identity, module, permissions and needs. Source: trust and hosts, section 3.4.

    `interworking`: a legacy is behind the stub, whose addresses are `permissions.ranges`. Source: data formats, section
    2.6. `configuration`: the JSON Schema of the settings that the operator of a host may give it; {} = any.
    `events`: optional events of the contract that the stub wants to hear; hosts ignore those that they do not know.
    """

    spec: Literal["rmn-stub/1"]
    domain: Domain
    name: StubName
    serial: Serial
    version: Word
    released: Moment
    expires: Moment
    module: ModuleReference
    abi: Abi
    permissions: Permissions = Permissions()
    needs: Needs = Needs()
    for_domains: Annotated[list[Word], msgspec.Meta(max_length=1000)] = msgspec.field(default_factory=lambda: ["*"])
    replaces: int | None = None
    interworking: bool = False
    configuration: Annotated[dict[str, Any], msgspec.Meta(max_length=16)] = {}
    events: Annotated[list[Word], msgspec.Meta(max_length=16)] = []


class DocumentBundle(msgspec.Struct, frozen=True, kw_only=True):
    """The documents of one domain as kept on disk for a warm start: envelopes as received, believed after verification.

    `manifests` is keyed by the SHA-256 of the payload. Roots are not here: they are remembered, not cached.
    """

    domain: str
    live: bytes
    manifests: dict[str, bytes] = {}
    fetched_at: float
    """When `live` was fetched, Unix seconds."""
    fresh_until: float
    """Until when no one needs to ask again, Unix seconds."""
    well_known_url: str = ""
    """Where `live` came from, and the host and port of the line if they were others ("" and 0 = as the URL says)."""
    connect_host: str = ""
    connect_port: int = 0


_Document = TypeVar("_Document", Root, Live, Manifest)


def decode_root(payload: bytes, *, domain: str) -> Root:
    """Decode the payload of a root document of `domain`.

    Raises:
        PeerError: DOCUMENT_MALFORMED or WRONG_DOMAIN.
    """
    root = _decode(payload, Root, domain)
    for word, role in (("root", root.roles.root), ("live", root.roles.live), ("pkg", root.roles.pkg)):
        if any(key_id not in root.keys for key_id in role.keys):
            raise PeerError(Code.DOCUMENT_MALFORMED, f"role {word} names a key that is not there", domain=domain)
        if len({(root.keys[key_id].alg, root.keys[key_id].pub) for key_id in role.keys}) < role.threshold:
            raise PeerError(Code.DOCUMENT_MALFORMED, f"role {word} has fewer keys than its threshold", domain=domain)
    _check_keys(root.keys, domain)
    return root


def decode_live(payload: bytes, *, domain: str) -> Live:
    """Decode the payload of a live document of `domain`.

    Raises:
        PeerError: DOCUMENT_MALFORMED or WRONG_DOMAIN.
    """
    live = _decode(payload, Live, domain)
    if len({endpoint.name for endpoint in live.endpoints}) != len(live.endpoints):
        raise PeerError(Code.DOCUMENT_MALFORMED, "two endpoints have the same name", domain=domain)
    _check_keys(live.node_keys, domain)
    return live


def decode_manifest(payload: bytes, *, domain: str) -> Manifest:
    """Decode the payload of a stub manifest of `domain`.

    Raises:
        PeerError: DOCUMENT_MALFORMED or WRONG_DOMAIN.
    """
    manifest = _decode(payload, Manifest, domain)
    if manifest.interworking != bool(manifest.permissions.ranges):
        raise PeerError(Code.DOCUMENT_MALFORMED, "interworking and ranges come together", domain=domain)
    try:
        for text in manifest.permissions.ranges:
            parse_range(text)
    except PeerError as error:
        raise PeerError(Code.DOCUMENT_MALFORMED, error.detail, domain=domain) from error
    return manifest


def _decode(payload: bytes, kind: type[_Document], domain: str) -> _Document:
    try:
        document = msgspec.convert(parse_strict(payload), kind)
    except (ValueError, RecursionError) as error:
        raise PeerError(Code.DOCUMENT_MALFORMED, str(error)[:200], domain=domain) from error
    if document.domain != domain:
        raise PeerError(Code.WRONG_DOMAIN, f"the document speaks for {document.domain}", domain=domain)
    return document


def _check_keys(keys: dict[str, KeyRecord], domain: str) -> None:
    for key_id, key in keys.items():
        if not is_usable(key):
            raise PeerError(Code.DOCUMENT_MALFORMED, f"key {key_id} is malformed or weak", domain=domain)


def encode_document(document: Root | Live | Manifest) -> bytes:
    """The payload bytes of a document, in the order of its members."""
    return msgspec.json.encode(document)


def sign_document(document: Root | Live | Manifest, keys: Sequence[SigningKey]) -> bytes:
    """Encode a document and wrap it into an envelope of its own payload type."""
    kind = {Root: ROOT_TYPE, Live: LIVE_TYPE, Manifest: MANIFEST_TYPE}[type(document)]
    return sign_envelope(encode_document(document), kind, keys)


def document_sha256(envelope: bytes) -> str:
    """The hash by which other documents name the one inside `envelope`: SHA-256 of its payload, hex.

    Raises:
        PeerError: ENVELOPE_MALFORMED.
    """
    return hashlib.sha256(decode_envelope(envelope).payload).hexdigest()


def key_set_fingerprint(root: Root) -> str:
    """Fingerprint of the root's own key set and threshold: what operators exchange and what TXT `k=` carries.

    Base64url of SHA-256, 43 characters.
    """
    keys = sorted({f"{root.keys[key_id].alg} {root.keys[key_id].pub}" for key_id in root.roles.root.keys})
    text = "\n".join(["rmn-root-keys/1", str(root.roles.root.threshold), *keys])
    return base64url(hashlib.sha256(text.encode()).digest())
