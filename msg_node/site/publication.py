"""The publication of a domain: the folder of `trapezoid publish`, and the `live` document that the node signs.

The folder holds finished bytes only, signed elsewhere; `publication.json` lists them and is replaced last. The node
adds what is true today, with the online key: endpoints, node keys, current stubs. Its serial grows with every signature
and is never below the minute count since 1970, so that a node that lost its state does not look like a rollback.

Source: trust and hosts, sections 3.3 and 3.4; data formats, section 2.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from msg_node.storage.file_checks import read_file
from protofly import limits
from protofly.documents import (
    Endpoint,
    KeyRecord,
    Live,
    Revoked,
    Root,
    RootReference,
    SigningKey,
    StubReference,
    decode_envelope,
    decode_live,
    decode_root,
    encode_document,
    sign_document,
)
from protofly.errors import PeerError, SettingsError
from protofly.plain_words import without_types

INDEX_NAME = "publication.json"
WELL_KNOWN = "/.well-known/rethink-mn"
LIVE_NAME = "live.json"
"""The live document that a node signed last, in its data folder: for `check` and `keys expiry`."""
_LOCK_NAME = ".publish.lock"
_SECONDS_PER_SERIAL = 60


class PublishedStub(Struct, frozen=True, kw_only=True):
    """One stub as published: the reference for `live`, and the files of its original-format catalogue entry."""

    reference: StubReference
    module_sha256: str
    class_name: str
    is_built_in: bool | None = None
    """True if it is the link stub of this program, and follows its versions; None: published before this was noted."""


class PublishedRuntimeStub(Struct, frozen=True, kw_only=True):
    """The stub for runtimes, in JavaScript: the names of its catalogue entries, and where it connects."""

    name: str
    class_name: str
    version: str
    sha256: str
    url: str


class PublishedEntry(Struct, frozen=True, kw_only=True):
    """Something else in the catalogue, unsigned as in original ones: a hyperty, schema, runtime or idp-proxy."""

    kind: str
    name: str
    class_name: str
    version: str
    sha256: str
    """Digest of its code."""
    is_default: bool = False
    """True if `default` means it, among others of its kind."""


class Publication(Struct, frozen=True, kw_only=True):
    """The index of a site folder. `stubs` is keyed as in `live`; `default` is what strangers take."""

    domain: str
    root_version: int
    root_sha256: str
    aliases: tuple[str, ...] = ()
    stubs: dict[str, PublishedStub]
    revoked: Revoked = Revoked()
    runtime_stub: PublishedRuntimeStub | None = None
    entries: tuple[PublishedEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class SignedLive:
    """A `live` document as served."""

    envelope: bytes
    document: Live

    @property
    def etag(self) -> str:
        """Entity tag for HTTP."""
        return f'"{hashlib.sha256(self.envelope).hexdigest()[:32]}"'

    def resign_at(self) -> float:
        """The time at which a new one is due: half of its life. Unix seconds."""
        issued, expires = self.document.issued.timestamp(), self.document.expires.timestamp()
        return (issued + expires) / 2


class SiteFolder:
    """A folder written by `trapezoid publish`. Names in requests are looked up in the index before they are paths."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Publication:
        """The index. Raises SettingsError."""
        path = self.path / INDEX_NAME
        try:
            return msgspec.json.decode(path.read_bytes(), type=Publication)
        except OSError as exc:
            raise SettingsError(f"{path}: {exc.strerror}; run `trapezoid publish` first") from exc
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
            raise SettingsError(f"{path}: {without_types(str(exc))}") from exc

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who publishes into the folder; it is made when it is missing. Waits. Raises SettingsError."""
        path = self.path / _LOCK_NAME
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise SettingsError(f"{exc.filename or path}: {exc.strerror}") from exc
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def changed_at(self) -> float:
        """The time at which the index was replaced last, Unix seconds; 0.0 if it is gone."""
        try:
            return (self.path / INDEX_NAME).stat().st_mtime
        except OSError:
            return 0.0

    def root(self, version: int) -> Path:
        """Envelope of one root version."""
        return self.path / "root" / f"{version}.json"

    def newest_root(self, domain: str) -> tuple[bytes, Root] | None:
        """Envelope and content of the newest root, None when there is none. Raises SettingsError or PeerError."""
        versions = sorted(int(path.stem) for path in (self.path / "root").glob("*.json") if path.stem.isdecimal())
        if not versions:
            return None
        envelope = read_file(self.root(versions[-1]))
        return envelope, decode_root(decode_envelope(envelope).payload, domain=domain)

    def manifest(self, name: str) -> Path:
        """Envelope of the current manifest of a stub."""
        return self.path / "manifest" / f"{name}.json"

    def certification(self, name: str) -> Path:
        """Report of `stub certify` about the current module of a stub."""
        return self.path / "certification" / f"{name}.json"

    def module(self, sha256: str) -> Path:
        """A module by hash."""
        return self.path / "module" / f"{sha256}.wasm"

    def descriptor(self, name: str, kind: str = "protocolstub") -> Path:
        """Original-format descriptor of a stub, or of another kind of entry."""
        return self.path / kind / f"{name}.json"

    def source_package(self, class_name: str) -> Path:
        """Original-format source package."""
        return self.path / "sourcepackage" / f"{class_name}.json"

    def read_object(self, path: Path) -> dict[str, Raw] | None:
        """A catalogue object, each attribute as raw JSON; None when there is none. Raises SettingsError when spoilt."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, Raw])
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as exc:
            raise SettingsError(f"{path}: {exc}") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """Settings of the `live` document. Life in seconds."""

    endpoints: tuple[Endpoint, ...]
    catalogue: str
    mode: str
    contact: str
    life_seconds: float


class LiveSigner:
    """Makes signed `live` documents for the publication in a folder.

    Args:
        keys: The `live` keys; all of them sign.
        serial_file: Where the last serial is remembered.
        node_keys: Keys that prove this domain's nodes, by id.

    Attributes:
        options: What documents say beside the publication.
    """

    def __init__(
        self,
        folder: SiteFolder,
        keys: Sequence[SigningKey],
        *,
        serial_file: Path,
        node_keys: dict[str, KeyRecord],
        options: LiveOptions,
    ) -> None:
        self._folder = folder
        self._keys = keys
        self._serial_file = serial_file
        self._node_keys = node_keys
        self.options = options

    @property
    def key_ids(self) -> list[str]:
        """Ids of the signing keys."""
        return [key.key_id for key in self._keys]

    def draft(self, *, now: float) -> Live:
        """Make the content of a document issued at `now` (Unix seconds), with serial 0. Raises SettingsError."""
        publication, options = self._folder.load(), self.options
        return Live(
            spec="rmn-live/1",
            domain=publication.domain,
            serial=0,
            issued=datetime.fromtimestamp(int(now), UTC),
            expires=datetime.fromtimestamp(int(now + options.life_seconds), UTC),
            root=RootReference(version=publication.root_version, sha256=publication.root_sha256),
            endpoints=list(options.endpoints),
            stubs={name: stub.reference for name, stub in publication.stubs.items()},
            mode="testing" if options.mode == "testing" else "enforce",
            catalogue=options.catalogue,
            node_keys=self._node_keys,
            revoked=publication.revoked,
            contact=options.contact,
        )

    def check(self, options: LiveOptions, *, now: float) -> None:
        """Check that readers would take a document with these options. Raises SettingsError."""
        signer = copy(self)
        signer.options = options
        _check_readable(msgspec.structs.replace(signer.draft(now=now), serial=1))

    def sign(self, draft: Live, *, now: float, above: int = 0) -> SignedLive:
        """Sign a document under a serial of its own, which is greater than `above`.

        Raises:
            SettingsError: Readers would refuse it, or a file cannot be written. Blocks for the disk.
        """
        document = msgspec.structs.replace(draft, serial=self._next_serial(now, above))
        _check_readable(document)
        envelope = sign_document(document, self._keys)
        if len(envelope) > limits.LIVE_BYTES:
            raise SettingsError(
                f"the live document has {len(envelope):,} bytes; readers take {limits.LIVE_BYTES:,}: remove stubs"
            )
        signed = SignedLive(envelope, document)
        self.keep(signed)
        return signed

    def keep(self, live: SignedLive) -> None:
        """Write a document into the data folder, for `check` and `keys expiry`. Raises SettingsError."""
        _replace(self._serial_file.with_name(LIVE_NAME), live.envelope)

    def has_signed(self, live: SignedLive) -> bool:
        """True if a document carries the signatures of exactly our keys; they are not verified."""
        return {one.key_id for one in decode_envelope(live.envelope).signatures} == set(self.key_ids)

    def _next_serial(self, now: float, above: int) -> int:
        try:
            last = int(self._serial_file.read_text())
        except (FileNotFoundError, ValueError):
            last = 0
        serial = max(last + 1, above + 1, int(now) // _SECONDS_PER_SERIAL)
        _replace(self._serial_file, str(serial).encode("ascii"))
        return serial


def is_signed_for(manifest: bytes, root: Root) -> bool:
    """Return True if enough `pkg` keys of this root signed the envelope of a manifest. Raises PeerError."""
    role = root.roles.pkg
    return decode_envelope(manifest).signers(root.keys, allowed=role.keys) >= role.threshold


def _check_readable(document: Live) -> None:
    """Refuse to publish a document that readers would refuse."""
    try:
        decode_live(encode_document(document), domain=document.domain)
    except PeerError as exc:
        raise SettingsError(f"readers would refuse the live document: {exc.detail}") from exc


def _replace(path: Path, content: bytes) -> None:
    """Replace a small file of the data folder; on disk when this returns. Raises SettingsError."""
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
