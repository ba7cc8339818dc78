"""What one domain publishes: root, live document, manifest and module, right or wrong in any way that is asked for.

Documents are plain dictionaries, signed as they are: a partner has to be able to publish what no honest program would.

Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from interop.partner.core.keys import Algorithm, Key, Members, as_json, envelope, pre_authentication

DAY: Final = 86_400
ABSENT: Final = object()
"""As the value of a member: it is left out."""
ROOT_TYPE: Final = "application/vnd.rethink.root.v1+json"
LIVE_TYPE: Final = "application/vnd.rethink.live.v1+json"
MANIFEST_TYPE: Final = "application/vnd.rethink.stub-manifest.v1+json"
WELL_KNOWN: Final = "/.well-known/rethink-mn"
STUB: Final = "bNodeStub"
MODULE_PATH: Final = f"/modules/{STUB}.wasm"
MANIFEST_PATH: Final = f"{WELL_KNOWN}/manifest/{STUB}"


def moment(seconds: float) -> str:
    """RFC 3339 in UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def root_path(version: int) -> str:
    """Path under which one version of the root is served."""
    return f"{WELL_KNOWN}/root/{version}"


def payload_of(raw: bytes) -> bytes:
    """The payload of an envelope, unverified."""
    return b64decode(json.loads(raw)["payload"])


def sha256_of(raw: bytes) -> str:
    """SHA-256 of the payload of an envelope, as other documents name it."""
    return hashlib.sha256(payload_of(raw)).hexdigest()


def _with(document: dict[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in {**document, **changes}.items() if value is not ABSENT}


class Publication:
    """The files that a domain serves, by path. Each method signs and serves one more document, as it is asked to.

    Keys are named by their ids: `K` for the root, `L` live documents, `P` packages, `N` nodes, each with a number.

    Attributes:
        files: What is served, by path.
        now: Unix seconds that documents are issued at.
        endpoint: URL of the domain's link endpoint.
        roles: Which keys sign roots, live documents and packages, from the next root on.
    """

    def __init__(self, domain: str, *, base: str, endpoint: str, module: bytes, now: float) -> None:
        self.domain = domain
        self.base = base
        self.endpoint = endpoint
        self.module = module
        self.now = now
        self.seed = domain
        self.files: dict[str, bytes] = {}
        self.roles: dict[str, tuple[str, ...]] = {"root": ("K1",), "live": ("L1",), "pkg": ("P1",)}
        self.version = 0
        self._root_keys: tuple[str, ...] = ()
        self.serial = 0
        self.node_keys = ["N1"]
        self.revoked: dict[str, object] = {}
        self.stub_serial = 0
        self.root()
        self.stub()

    def key(self, name: str, *, alg: Algorithm = "ed25519") -> Key:
        """A key of this domain."""
        return Key(name, self.seed, alg)

    def keys(self, names: Sequence[str]) -> list[Key]:
        """Keys of this domain."""
        return [self.key(name) for name in names]

    def serve(self, path: str, payload: bytes, kind: str, signers: Sequence[Key]) -> bytes:
        """Sign a payload and serve it."""
        data = pre_authentication(kind, payload)
        raw = self.files[path] = envelope(payload, kind, [(key.name, key.sign(data)) for key in signers])
        return raw

    def root(self, *, signers: Sequence[str] | None = None, **members: object) -> bytes:
        """Serve a root with the next version, signed by the old and the new root keys; `members` replaces some."""
        before = self._root_keys
        self.version = int(str(members.get("version", self.version + 1)))
        self._root_keys = self.roles["root"]
        names = sorted({name for keys in self.roles.values() for name in keys})
        document: dict[str, object] = {
            "spec": "rmn-root/1",
            "domain": self.domain,
            "version": self.version,
            "issued": moment(self.now),
            "expires": moment(self.now + 365 * DAY),
            "keys": {name: self.key(name).record() for name in names},
            "roles": {role: {"keys": list(keys), "threshold": 1} for role, keys in self.roles.items()},
        }
        wanted = tuple(dict.fromkeys((*before, *self._root_keys))) if signers is None else signers
        payload = as_json(_with(document, members))
        return self.serve(root_path(self.version), payload, ROOT_TYPE, self.keys(wanted))

    def live_document(self, **members: object) -> dict[str, object]:
        """The next live document, unsigned."""
        self.serial = int(str(members.get("serial", self.serial + 1)))
        manifest = self.files.get(MANIFEST_PATH)
        root = self.files[root_path(self.version)]
        reference = {"name": STUB, "serial": self.stub_serial, "version": f"1.{self.stub_serial}.0"}
        document: dict[str, object] = {
            "spec": "rmn-live/1",
            "domain": self.domain,
            "serial": self.serial,
            "issued": moment(self.now),
            "expires": moment(self.now + 2 * DAY),
            "root": {"version": self.version, "sha256": sha256_of(root)},
            "mode": "enforce",
            "endpoints": [{"name": "mn", "url": self.endpoint}],
            "node_keys": {name: self.key(name).record() for name in self.node_keys},
            "stubs": {"default": {**reference, "manifest_sha256": sha256_of(manifest)}} if manifest else {},
            "revoked": self.revoked,
        }
        return _with(document, members)

    def live(self, *, signers: Sequence[str] | None = None, **members: object) -> bytes:
        """Serve a live document with the next serial."""
        payload = as_json(self.live_document(**members))
        return self.live_payload(payload, signers=signers)

    def live_payload(self, payload: bytes, *, signers: Sequence[str] | None = None, kind: str = LIVE_TYPE) -> bytes:
        """Serve any bytes as the signed payload of the live document."""
        names = self.roles["live"] if signers is None else signers
        return self.serve(WELL_KNOWN, payload, kind, self.keys(names))

    def stub(
        self,
        *,
        signers: Sequence[str] | None = None,
        code: bytes | None = None,
        is_named: bool = True,
        **members: object,
    ) -> bytes:
        """Serve a manifest with the next serial and its module, and a live document that names them."""
        self.module = self.module if code is None else code
        self.stub_serial = int(str(members.get("serial", self.stub_serial + 1)))
        document: dict[str, object] = {
            "spec": "rmn-stub/1",
            "domain": self.domain,
            "name": STUB,
            "serial": self.stub_serial,
            "version": f"1.{self.stub_serial}.0",
            "released": moment(self.now),
            "expires": moment(self.now + 180 * DAY),
            "module": self.module_reference(),
            "abi": {"name": "trapezoid-stub", "version": "1.0"},
            "permissions": {"connect": ["mn"], "auth": True},
            "for_domains": ["*"],
        }
        payload = as_json(_with(document, members))
        names = self.roles["pkg"] if signers is None else signers
        raw = self.serve(MANIFEST_PATH, payload, MANIFEST_TYPE, self.keys(names))
        self.files[MODULE_PATH] = self.module
        if is_named:
            self.live()
        return raw

    def module_reference(self, **members: object) -> dict[str, object]:
        """The reference to the module in a manifest."""
        reference: Members = {
            "sha256": hashlib.sha256(self.module).hexdigest(),
            "size": len(self.module),
            "type": "application/wasm",
            "urls": [f"{self.base}{MODULE_PATH}"],
        }
        return {**reference, **members}
