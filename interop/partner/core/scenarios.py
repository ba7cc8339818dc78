"""Document scenarios as data: the editions of what a domain publishes, and what a verifier has to make of each.

The same scenarios are published as files (`interop/documents/`) and played against a running node. Each cites the
rule behind it in docs/spec/trust-and-hosts.md. `code` is the word with which our own node refuses; another one may
have another word, but must refuse.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from interop.partner.core import modules
from interop.partner.core.keys import Key, as_json, base64url, envelope, pre_authentication
from interop.partner.core.publication import (
    DAY,
    LIVE_TYPE,
    MANIFEST_PATH,
    MANIFEST_TYPE,
    MODULE_PATH,
    ROOT_TYPE,
    WELL_KNOWN,
    Publication,
    moment,
    payload_of,
    root_path,
)

Change = Callable[[Publication], object]
Scope = Literal["documents", "stub"]
ROOT_STEPS: Final = 64
JUMP: Final = 10**6
LIVE_BYTES: Final = 50 << 10
_ED25519_ORDER: Final = 2**252 + 27742317777372353535851937790883648493


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """Change of the documents of a domain at one moment. `code` "": accepted; else refused, and old ones stay in force.

    `scope` "documents": live document and root; "stub": manifest and module as well. `days`: how much later it is.
    """

    change: Change
    code: str = ""
    scope: Scope = "documents"
    days: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Editions in their order, for a verifier that has never met the domain."""

    id: str
    section: str
    says: str
    editions: tuple[Edition, ...]

    @property
    def is_first_contact(self) -> bool:
        """True if the verifier is tested by the first thing that it sees of the domain."""
        return len(self.editions) == 1


def _nothing(_: Publication) -> None:
    pass


_HONEST: Final = Edition(change=_nothing)
_HONEST_STUB: Final = Edition(change=_nothing, scope="stub")


def _refused(id_: str, section: str, says: str, change: Change, code: str) -> Scenario:
    return Scenario(id=id_, section=section, says=says, editions=(Edition(change=change, code=code),))


def _accepted(id_: str, section: str, says: str, change: Change) -> Scenario:
    return Scenario(id=id_, section=section, says=says, editions=(Edition(change=change),))


def _stub_refused(id_: str, section: str, says: str, change: Change, code: str) -> Scenario:
    return Scenario(id=id_, section=section, says=says, editions=(Edition(change=change, code=code, scope="stub"),))


def _update(id_: str, section: str, says: str, *editions: Edition) -> Scenario:
    return Scenario(id=id_, section=section, says=says, editions=(_HONEST, *editions))


def _stub_update(id_: str, section: str, says: str, *editions: Edition) -> Scenario:
    return Scenario(id=id_, section=section, says=says, editions=(_HONEST_STUB, *editions))


# Envelopes.


def _resign_live(domain: Publication, sign: Callable[[Key, bytes], bytes], name: str = "L1") -> None:
    payload = payload_of(domain.files[WELL_KNOWN])
    signature = sign(domain.key("L1"), pre_authentication(LIVE_TYPE, payload))
    domain.files[WELL_KNOWN] = envelope(payload, LIVE_TYPE, [(name, signature)])


def _other_scalar(signature: bytes) -> bytes:
    scalar = int.from_bytes(signature[32:], "little") + _ED25519_ORDER
    return signature[:32] + scalar.to_bytes(32, "little")


def _manifest_as_live(domain: Publication) -> None:
    domain.files[WELL_KNOWN] = domain.files[MANIFEST_PATH]


def _type_changed(domain: Publication) -> None:
    wire = json.loads(domain.files[WELL_KNOWN])
    domain.files[WELL_KNOWN] = as_json({**wire, "payloadType": MANIFEST_TYPE})


def _payload_changed(domain: Publication) -> None:
    wire = json.loads(domain.files[WELL_KNOWN])
    payload = payload_of(domain.files[WELL_KNOWN]).replace(b'"enforce"', b'"testing"')
    domain.files[WELL_KNOWN] = as_json({**wire, "payload": b64encode(payload).decode()})


def _signed_by(*keys: Key) -> Change:
    return lambda domain: domain.serve(WELL_KNOWN, payload_of(domain.files[WELL_KNOWN]), LIVE_TYPE, list(keys))


def _signed_by_names(*names: str) -> Change:
    return lambda domain: domain.live_payload(payload_of(domain.files[WELL_KNOWN]), signers=names)


def _another_domain(domain: Publication) -> None:
    other = Publication("c.example", base=domain.base, endpoint=domain.endpoint, module=domain.module, now=domain.now)
    domain.files.update(other.files)


def _extra_signature(domain: Publication) -> None:
    payload = payload_of(domain.files[WELL_KNOWN])
    good = domain.key("L1").sign(pre_authentication(LIVE_TYPE, payload))
    domain.files[WELL_KNOWN] = envelope(payload, LIVE_TYPE, [("L9", b"\1" * 64), ("L1", good)])


def _many_signatures(domain: Publication) -> None:
    payload = payload_of(domain.files[WELL_KNOWN])
    good = domain.key("L1").sign(pre_authentication(LIVE_TYPE, payload))
    domain.files[WELL_KNOWN] = envelope(payload, LIVE_TYPE, [("L1", good)] * 200)


def _threshold(*, one_twice: bool) -> Change:
    """A live role with threshold 2: two keys of which one signs twice, or one key under two ids."""

    def change(domain: Publication) -> None:
        ids = ("L1", "L2")
        records = {name: domain.key(name).record() for name in ("K1", "P1", *ids)}
        if not one_twice:
            records["L2"] = records["L1"]
        roles = {"root": ["K1"], "live": list(ids), "pkg": ["P1"]}
        wanted = {role: {"keys": keys, "threshold": 2 if role == "live" else 1} for role, keys in roles.items()}
        domain.root(version=1, keys=records, roles=wanted, signers=("K1",))
        payload = as_json(domain.live_document())
        good = domain.key("L1").sign(pre_authentication(LIVE_TYPE, payload))
        names = ("L1", "L1") if one_twice else ids
        domain.files[WELL_KNOWN] = envelope(payload, LIVE_TYPE, [(name, good) for name in names])

    return change


def _weak_key(domain: Publication) -> None:
    records = {name: domain.key(name).record() for name in ("K1", "L1", "P1")}
    records["L1"] = {"alg": "ed25519", "pub": base64url(b"\1" + bytes(31))}
    domain.root(version=1, keys=records, signers=("K1",))
    payload = as_json(domain.live_document())
    # With the neutral element as key, R = the neutral element and S = 0 verify for every text.
    domain.files[WELL_KNOWN] = envelope(payload, LIVE_TYPE, [("L1", b"\1" + bytes(63))])


def _p256(*, is_der: bool) -> Change:
    def change(domain: Publication) -> None:
        key = domain.key("L1", alg="p256")
        records = {name: domain.key(name).record() for name in ("K1", "P1")} | {"L1": key.record()}
        domain.root(version=1, keys=records, signers=("K1",))
        payload = as_json(domain.live_document())
        data = pre_authentication(LIVE_TYPE, payload)
        signature = key.sign_der(data) if is_der else key.sign(data)
        domain.files[WELL_KNOWN] = envelope(payload, LIVE_TYPE, [("L1", signature)])

    return change


def _payload(change: Callable[[bytes], bytes]) -> Change:
    """Serve other bytes as the payload, well signed."""
    return lambda domain: domain.live_payload(change(payload_of(domain.files[WELL_KNOWN])))


def _with_member(text: bytes) -> Callable[[bytes], bytes]:
    return lambda payload: payload[:-1] + b"," + text + b"}"


_JSON: Final[dict[str, tuple[str, Callable[[bytes], bytes]]]] = {
    "duplicate-member": ("a member that appears twice", _with_member(b'"spec":"rmn-live/1"')),
    "nan": ("NaN", _with_member(b'"x":NaN')),
    "infinity": ("Infinity", _with_member(b'"x":-Infinity')),
    "huge-float": ("a number beyond all doubles", _with_member(b'"x":1e999')),
    "deep": ("10,000 levels", _with_member(b'"x":' + b"[" * 10_000 + b"]" * 10_000)),
    "bad-utf8": ("bytes that are not UTF-8", _with_member(b'"x":"\xff"')),
    "bom": ("a byte order mark", lambda payload: b"\xef\xbb\xbf" + payload),
    "utf16": ("UTF-16", lambda payload: payload.decode().encode("utf-16")),
    "huge-integer": ("an integer with 5,000 digits", _with_member(b'"x":' + b"9" * 5_000)),
    "surrogate": ("half a character", _with_member(b'"x":"\\ud800"')),
    "array": ("an array instead of an object", lambda payload: b"[" + payload + b"]"),
    "empty": ("nothing", lambda _: b""),
}


def _envelope_is(raw: Callable[[bytes], bytes]) -> Change:
    def change(domain: Publication) -> None:
        domain.files[WELL_KNOWN] = raw(domain.files[WELL_KNOWN])

    return change


ENVELOPES: Final = (
    _refused(
        "envelope-manifest-as-live",
        "7, attack 16",
        "a manifest served as live document is refused",
        _manifest_as_live,
        "payload-type",
    ),
    _refused(
        "envelope-type-changed",
        "3.3",
        "the type is signed: a type that was changed after signing is refused",
        _type_changed,
        "payload-type",
    ),
    _refused(
        "envelope-payload-changed",
        "3.3",
        "a payload that was changed after signing is refused",
        _payload_changed,
        "too-few-signatures",
    ),
    _refused(
        "envelope-unknown-key",
        "7, attack 17",
        "a signature by a key that the root does not name is refused",
        _signed_by(Key("L9", "a stranger")),
        "too-few-signatures",
    ),
    _refused(
        "envelope-stolen-id",
        "7, attack 17",
        "a signature by another key under the id of a known one is refused",
        _signed_by(Key("L1", "a stranger")),
        "too-few-signatures",
    ),
    _refused(
        "envelope-package-key",
        "7, attack 17",
        "a live document signed by the package key is refused",
        _signed_by_names("P1"),
        "too-few-signatures",
    ),
    _refused(
        "envelope-root-key",
        "7, attack 17",
        "a live document signed by the root key is refused",
        _signed_by_names("K1"),
        "too-few-signatures",
    ),
    _refused(
        "envelope-another-domain",
        "3.6, step 3",
        "documents of another domain are refused",
        _another_domain,
        "wrong-domain",
    ),
    _refused(
        "envelope-one-key-twice",
        "7, attack 18",
        "a threshold of two is not met by one key that signs twice",
        _threshold(one_twice=True),
        "too-few-signatures",
    ),
    _refused(
        "envelope-one-key-two-ids",
        "7, attack 18",
        "a threshold of two is not met by one key under two ids",
        _threshold(one_twice=False),
        "document-malformed",
    ),
    _accepted(
        "envelope-extra-signature",
        "7, attack 19",
        "an invalid signature beside enough valid ones does no harm",
        _extra_signature,
    ),
    _refused(
        "envelope-many-signatures",
        "3.3",
        "a flood of signatures is refused",
        _many_signatures,
        "envelope-malformed",
    ),
    *(
        _refused(
            f"envelope-signature-{length}-bytes",
            "7, attack 20",
            f"a signature of {length} bytes is refused",
            lambda domain, length=length: _resign_live(  # type: ignore[misc]
                domain, lambda key, data: (key.sign(data) + b"\0")[:length]
            ),
            "too-few-signatures",
        )
        for length in (0, 63, 65)
    ),
    _refused(
        "envelope-scalar-beyond-order",
        "7, attack 20",
        "a scalar beyond the group order is refused (RFC 8032, 5.1.7)",
        lambda domain: _resign_live(domain, lambda key, data: _other_scalar(key.sign(data))),
        "too-few-signatures",
    ),
    _refused(
        "envelope-weak-key",
        "7, attack 20",
        "a key of small order, with which one signature fits every text, is refused",
        _weak_key,
        "document-malformed",
    ),
    _accepted("envelope-p256", "3.3", "ECDSA P-256 with r‖s is accepted by those that take P-256", _p256(is_der=False)),
    _refused(
        "envelope-p256-der",
        "7, attack 20",
        "a P-256 signature in DER is refused",
        _p256(is_der=True),
        "too-few-signatures",
    ),
    *(
        _refused(
            f"payload-{word}", "7, attack 11", f"a payload with {what} is refused", _payload(make), "document-malformed"
        )
        for word, (what, make) in _JSON.items()
    ),
    _refused(
        "envelope-no-json",
        "7, attack 11",
        "an envelope that is no JSON is refused",
        _envelope_is(lambda raw: raw[:-1]),
        "envelope-malformed",
    ),
    _refused(
        "envelope-duplicate-member",
        "7, attack 11",
        "an envelope that gives a member twice is refused",
        _envelope_is(lambda raw: raw[:-1] + b',"payloadType":"' + LIVE_TYPE.encode() + b'"}'),
        "envelope-malformed",
    ),
    _accepted(
        "payload-unknown-members",
        "3.3",
        "unknown members are ignored",
        lambda domain: domain.live(later="than this version", more={"of": ["it"]}),
    ),
    _refused(
        "payload-unknown-spec",
        "3.3",
        "an unknown `spec` is refused",
        lambda domain: domain.live(spec="rmn-live/2"),
        "document-malformed",
    ),
)


# Roots.


def _rotations(count: int) -> Change:
    def change(domain: Publication) -> None:
        for _ in range(count):
            domain.root()
        domain.live()

    return change


def _next_root(*, signers: Sequence[str] | None = None, **members: object) -> Change:
    """The next root, with a new root key, and a live document that names it."""

    def change(domain: Publication) -> None:
        domain.roles["root"] = ("K2",)
        domain.root(signers=signers, **members)
        domain.live()

    return change


def _live_names(version: int) -> Change:
    """A live document that names a root version which is not served."""

    def change(domain: Publication) -> None:
        root = domain.live_document()["root"]
        domain.live(root={**(root if isinstance(root, dict) else {}), "version": version})

    return change


def _same_version(domain: Publication) -> None:
    domain.root(version=1, contact="mailto:else@b.example", signers=("K1",))
    domain.live()


def _lower_version(domain: Publication) -> None:
    first = domain.files[root_path(1)]
    domain.version = 1
    domain.files[root_path(1)] = first
    domain.live()


def _expired_on_the_way(domain: Publication) -> None:
    domain.root(expires=moment(domain.now - DAY))
    domain.root()
    domain.live()


ROOTS: Final = (
    _refused(
        "root-expired",
        "3.6, step 2",
        "the final root has to be unexpired",
        lambda domain: (domain.root(version=1, expires=moment(domain.now), signers=("K1",)), domain.live()),
        "document-expired",
    ),
    _refused(
        "root-unknown-signer",
        "3.6, step 2",
        "a root that its own keys did not sign is refused",
        lambda domain: (
            domain.serve(root_path(1), payload_of(domain.files[root_path(1)]), ROOT_TYPE, [Key("K1", "a stranger")]),
        ),
        "too-few-signatures",
    ),
    _refused(
        "root-another-version",
        "3.6, step 2",
        "a root whose version is not that of its place is refused",
        lambda domain: (
            domain.root(version=2),
            domain.files.update({root_path(1): domain.files[root_path(2)]}),
            domain.live(root={"version": 1, "sha256": "0" * 64}),
        ),
        "root-chain",
    ),
    _refused(
        "root-role-without-key",
        "3.4",
        "a role that names a key which is not there is refused",
        lambda domain: (
            domain.root(version=1, signers=("K1",), keys={name: domain.key(name).record() for name in ("K1", "P1")}),
            domain.live(),
        ),
        "document-malformed",
    ),
    _update(
        "root-rotated",
        "3.6, step 2",
        "a next root signed by the old and the new keys is accepted",
        Edition(change=_next_root()),
    ),
    _update(
        "root-signed-only-by-old",
        "7, attack 21",
        "a next root that its new keys did not sign is refused",
        Edition(change=_next_root(signers=("K1",)), code="too-few-signatures"),
    ),
    _update(
        "root-signed-only-by-new",
        "7, attack 21",
        "a next root that the old keys did not sign is broken trust",
        Edition(change=_next_root(signers=("K2",)), code="broken-trust"),
    ),
    _update(
        "root-skips-a-version",
        "7, attack 21",
        "a root of version +2 is refused",
        Edition(change=_next_root(version=3), code="http-status"),
    ),
    _update(
        "root-same-version-other-bytes",
        "7, attack 21",
        "the same version with other bytes is refused",
        Edition(change=_same_version, code="mix-and-match"),
    ),
    _update(
        "root-lower-version",
        "7, attack 21",
        "a lower version is refused",
        Edition(change=_next_root()),
        Edition(change=_lower_version, code="rollback"),
    ),
    _update(
        "root-many-rotations",
        "3.6, step 2",
        f"{ROOT_STEPS} rotations at once are followed",
        Edition(change=_rotations(ROOT_STEPS)),
    ),
    _update(
        "root-too-many-rotations",
        "7, attack 21",
        f"{ROOT_STEPS + 1} rotations at once are refused",
        Edition(change=_rotations(ROOT_STEPS + 1), code="root-chain"),
    ),
    _update(
        "root-far-ahead",
        "3.6, step 2",
        "a claimed version far ahead is refused",
        Edition(change=_live_names(10**9), code="root-chain"),
    ),
    _update(
        "root-expired-on-the-way",
        "3.6, step 2",
        "only the final root has to be unexpired",
        Edition(change=_expired_on_the_way),
    ),
)


# Live documents.


def _fast_forward_mended(domain: Publication) -> None:
    domain.roles["live"] = ("L2",)
    domain.root()
    domain.live(serial=5)


def _live_key_added(domain: Publication) -> None:
    domain.roles["live"] = ("L1", "L2")
    domain.root()
    domain.live(serial=5)


LIVES: Final = (
    _refused(
        "live-expired",
        "7, attack 22",
        "an expired live document is refused",
        lambda domain: domain.live(issued=moment(domain.now - 3 * DAY), expires=moment(domain.now - DAY)),
        "document-expired",
    ),
    _refused(
        "live-issued-in-future",
        "3.6, step 3",
        "`issued` is at most five minutes ahead",
        lambda domain: domain.live(issued=moment(domain.now + 330), expires=moment(domain.now + DAY)),
        "issued-in-future",
    ),
    _accepted(
        "live-issued-a-little-ahead",
        "3.6, step 3",
        "`issued` may be five minutes ahead",
        lambda domain: domain.live(issued=moment(domain.now + 240), expires=moment(domain.now + DAY)),
    ),
    _refused(
        "live-valid-ten-years",
        "7, attack 22",
        "a validity of more than seven days is refused",
        lambda domain: domain.live(expires=moment(domain.now + 3650 * DAY)),
        "validity-too-long",
    ),
    _refused(
        "live-root-hash",
        "7, attack 22",
        "a live document that names another root's hash is refused",
        lambda domain: domain.live(root={"version": 1, "sha256": "0" * 64}),
        "mix-and-match",
    ),
    _refused(
        "live-too-large",
        "3.3",
        f"more than {LIVE_BYTES >> 10} KiB are refused",
        lambda domain: domain.live(later="x" * LIVE_BYTES),
        "document-too-large",
    ),
    _refused(
        "live-two-endpoints-of-one-name",
        "3.4",
        "two endpoints with one name are refused",
        lambda domain: domain.live(endpoints=[{"name": "mn", "url": domain.endpoint}] * 2),
        "document-malformed",
    ),
    _refused(
        "live-without-endpoint",
        "3.4",
        "a live document has an endpoint",
        lambda domain: domain.live(endpoints=[]),
        "document-malformed",
    ),
    _update(
        "live-rollback",
        "3.6, step 3",
        "a lower serial is refused",
        Edition(change=lambda domain: domain.live(serial=100)),
        Edition(change=lambda domain: domain.live(serial=99), code="rollback"),
    ),
    _update(
        "live-equal-other-bytes",
        "3.6, step 3",
        "an equal serial with other bytes is refused",
        Edition(
            change=lambda domain: domain.live(serial=domain.serial, contact="mailto:else@b.example"), code="rollback"
        ),
    ),
    _update("live-equal-same-bytes", "3.6, step 3", "an equal serial with equal bytes is accepted", _HONEST),
    _update(
        "live-jump-in-bounds",
        "3.6, step 3",
        f"a serial may grow by {JUMP}",
        Edition(change=lambda domain: domain.live(serial=domain.serial + JUMP)),
    ),
    _update(
        "live-fast-forward",
        "7, attack 22",
        f"a serial that grows by more than {JUMP} is refused",
        Edition(change=lambda domain: domain.live(serial=domain.serial + JUMP + 1), code="fast-forward"),
    ),
    _update(
        "live-frozen",
        "7, attack 22",
        "a document that is served beyond its end is refused",
        Edition(change=_nothing, code="document-expired", days=2.5),
    ),
    _update(
        "live-mended-by-new-key",
        "7, attack 23",
        "a rotated live key resets the serial",
        Edition(change=lambda domain: domain.live(serial=JUMP)),
        Edition(change=_fast_forward_mended),
    ),
    _update(
        "live-key-added-resets-nothing",
        "3.6, step 3",
        "a further live key resets nothing",
        Edition(change=lambda domain: domain.live(serial=100)),
        Edition(change=_live_key_added, code="rollback"),
    ),
)


# Manifests and modules.


def _stub(**members: object) -> Change:
    return lambda domain: domain.stub(**members)  # type: ignore[arg-type]


def _manifest_behind_live(domain: Publication) -> None:
    domain.stub(is_named=False)


def _module_instead(change: Callable[[bytes], bytes]) -> Change:
    def serve(domain: Publication) -> None:
        domain.stub(code=modules.marked(domain.module, domain.domain))  # none that a cache may have by its hash
        domain.files[MODULE_PATH] = change(domain.files[MODULE_PATH])

    return serve


def _revoked_module(domain: Publication) -> None:
    domain.revoked = {"modules": [domain.module_reference()["sha256"]]}
    domain.live()


def _revoked_key(domain: Publication) -> None:
    domain.revoked = {"keys": ["P1"]}
    domain.live()


def _minimum(domain: Publication) -> None:
    domain.revoked = {"min_serial": {"bNodeStub": domain.stub_serial + 1}}
    domain.live()


def _mentions(**members: object) -> Change:
    """A live document that names the stub otherwise than the manifest does."""

    def change(domain: Publication) -> None:
        stubs = domain.live_document()["stubs"]
        named = stubs["default"] if isinstance(stubs, dict) else {}
        domain.live(stubs={"default": {**named, **members}})

    return change


def _burnt_serial_mended(domain: Publication) -> None:
    domain.roles["pkg"] = ("P2",)
    domain.root()
    domain.stub(serial=7)


def _other_stub(domain: Publication, **members: object) -> None:
    domain.stub(code=modules.marked(domain.module, f"{domain.domain} {domain.stub_serial}"), **members)  # type: ignore[arg-type]


_MODULES: Final = {
    "import": ("with an import", modules.WITH_IMPORT, "module-imports"),
    "start": ("with a start function", modules.WITH_START, "module-exports"),
    "endless-memory": ("with a memory without maximum", modules.WITHOUT_MAXIMUM, "module-limits"),
    "without-handle": ("without `handle`", modules.WITHOUT_HANDLE, "module-exports"),
    "without-contract": ("without the section that names its ABI", modules.WITHOUT_CONTRACT, "abi-unsupported"),
    "other-abi": ("of another ABI than its manifest says", modules.OF_ANOTHER_ABI, "abi-unsupported"),
    "component": ("that is a component", modules.COMPONENT, "module-malformed"),
    "cut-short": ("whose section ends outside of it", modules.CUT_SHORT, "module-malformed"),
    "script": ("that is a shell script", b"#!/bin/sh\nexit 0\n", "module-malformed"),
}

STUBS: Final = (
    _stub_refused(
        "manifest-another-domain",
        "3.6, step 4",
        "a manifest that speaks for another domain is refused",
        _stub(domain="c.example"),
        "wrong-domain",
    ),
    _stub_refused(
        "manifest-another-name",
        "3.6, step 4",
        "a manifest of another name than live says is refused",
        _stub(name="otherStub"),
        "mix-and-match",
    ),
    _stub_refused(
        "manifest-another-serial",
        "3.6, step 4",
        "a manifest of another serial than live says is refused",
        lambda domain: (domain.stub(serial=9), _mentions(serial=8)(domain)),
        "mix-and-match",
    ),
    _stub_refused(
        "manifest-behind-live",
        "3.6, step 4",
        "a manifest whose hash is not that of live is refused",
        _manifest_behind_live,
        "digest-mismatch",
    ),
    _stub_refused(
        "manifest-signed-by-live-key",
        "7, attack 17",
        "a manifest signed by the live key is refused",
        _stub(signers=("L1",)),
        "too-few-signatures",
    ),
    _stub_refused(
        "manifest-below-minimum", "3.6, step 4", "a serial below `min_serial` is refused", _minimum, "revoked"
    ),
    _stub_refused(
        "manifest-expired",
        "3.6, step 4",
        "an expired manifest is refused",
        lambda domain: domain.stub(expires=moment(domain.now)),
        "document-expired",
    ),
    _stub_refused(
        "manifest-released-in-future",
        "3.6, step 4",
        "a manifest of tomorrow is refused",
        lambda domain: domain.stub(released=moment(domain.now + DAY)),
        "issued-in-future",
    ),
    _stub_refused(
        "manifest-not-for-us",
        "3.4",
        "a stub that is not for our domain is refused",
        _stub(for_domains=["c.example"]),
        "wrong-domain",
    ),
    _stub_refused(
        "manifest-unknown-abi",
        "3.6, step 4",
        "a stub for an unknown ABI is refused",
        _stub(abi={"name": "rmn-stub", "version": "1.2"}),
        "abi-unsupported",
    ),
    _stub_refused(
        "manifest-next-abi",
        "3.6, step 4",
        "a stub for the next major version of the ABI is refused",
        _stub(abi={"name": "trapezoid-stub", "version": "2.0"}),
        "abi-unsupported",
    ),
    _stub_refused(
        "manifest-too-large", "3.3", "more than 16 KiB are refused", _stub(later="x" * (16 << 10)), "document-too-large"
    ),
    _stub_refused(
        "manifest-revoked-module", "3.4", "a module that live revokes is refused", _revoked_module, "revoked"
    ),
    _stub_refused(
        "manifest-revoked-key", "3.4", "a manifest signed by a revoked key is refused", _revoked_key, "revoked"
    ),
    _stub_refused(
        "manifest-ranges-without-flag",
        "3.4",
        "ranges of an interworking stub without its flag are refused",
        _stub(permissions={"connect": ["mn"], "ranges": ["sip://legacy.example"]}),
        "document-malformed",
    ),
    _stub_refused(
        "module-changed",
        "7, attack 25",
        "a module with one changed byte is refused",
        _module_instead(lambda module: module[:-1] + bytes([module[-1] ^ 1])),
        "digest-mismatch",
    ),
    _stub_refused(
        "module-truncated",
        "7, attack 25",
        "a truncated module is refused",
        _module_instead(lambda module: module[:-1]),
        "digest-mismatch",
    ),
    _stub_refused(
        "module-longer",
        "7, attack 25",
        "a longer module is refused",
        _module_instead(lambda module: module + b"\0"),
        "digest-mismatch",
    ),
    _stub_refused(
        "module-too-large",
        "3.3",
        "more than 2 MiB are refused",
        lambda domain: domain.stub(module=domain.module_reference(size=(2 << 20) + 1)),
        "module-limits",
    ),
    *(
        _stub_refused(
            f"module-{word}",
            "3.6, step 5",
            f"a module {what} is refused although its hash is right",
            _stub(code=code),
            refusal,
        )
        for word, (what, code, refusal) in _MODULES.items()
    ),
    _stub_update("manifest-update", "3.6, step 6", "an update is accepted", Edition(change=_other_stub, scope="stub")),
    _stub_update(
        "manifest-rollback",
        "3.6, step 4",
        "a lower serial is refused",
        Edition(change=lambda domain: _other_stub(domain, serial=9), scope="stub"),
        Edition(change=lambda domain: _other_stub(domain, serial=8), scope="stub", code="rollback"),
    ),
    _stub_update(
        "manifest-equal-other-module",
        "3.6, step 4",
        "an equal serial with another module is refused",
        Edition(change=lambda domain: _other_stub(domain, serial=1), scope="stub", code="rollback"),
    ),
    _stub_update(
        "manifest-fast-forward",
        "3.6, step 4",
        "a serial that jumps is refused",
        Edition(change=lambda domain: _other_stub(domain, serial=JUMP * 2), scope="stub", code="fast-forward"),
    ),
    _stub_update(
        "manifest-grows",
        "3.6, step 4",
        "an update that asks for more than its predecessor is held",
        Edition(
            change=lambda domain: _other_stub(domain, permissions={"connect": ["mn"], "auth": True, "clock": "wall"}),
            scope="stub",
            code="permissions-held",
        ),
    ),
    _stub_update(
        "manifest-begins-to-interwork",
        "3.6, step 4",
        "an update that begins to interwork is held",
        Edition(
            change=lambda domain: _other_stub(
                domain,
                interworking=True,
                permissions={"connect": ["mn"], "auth": True, "ranges": ["sip://legacy.example"]},
            ),
            scope="stub",
            code="permissions-held",
        ),
    ),
    _stub_update(
        "manifest-mended-by-new-key",
        "3.6, step 3",
        "a rotated package key resets the serial",
        Edition(change=lambda domain: _other_stub(domain, serial=JUMP), scope="stub"),
        Edition(change=_burnt_serial_mended, scope="stub"),
    ),
)

SCENARIOS: Final[tuple[Scenario, ...]] = (*ENVELOPES, *ROOTS, *LIVES, *STUBS)
