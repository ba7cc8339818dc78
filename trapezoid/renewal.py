"""Renew published documents: `trapezoid publish --renew`, and a running node that has a `pkg` key.

Only dates, version numbers and signatures change, so no option of `publish` is needed, and a second run changes
nothing. `msg_node/kernel/expiry.py` decides which documents are due.

Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from msg_node.admin.expiry_watch import Renew, expiry_facts, published_terms
from msg_node.kernel.expiry import Expiry, Term, TermKind, judge_all
from msg_node.settings.model import Settings
from msg_node.site.publication import INDEX_NAME, Publication, SiteFolder
from msg_node.storage.file_checks import read_file
from msg_node.storage.key_files import load_online_keys
from protofly.documents import (
    SigningKey,
    decode_envelope,
    decode_manifest,
    decode_root,
    document_sha256,
    sign_document,
)
from protofly.errors import SettingsError
from stubkit.files import replace_file
from stubkit.keys import KeyRing
from stubkit.sign import MANIFEST_VALIDITY_SECONDS, ROOT_VALIDITY_SECONDS, stub_reference


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalReport:
    """The result of one run. `left_due` lists documents that are due and could not be renewed, with the reason."""

    domain: str
    site: str
    renewed: tuple[str, ...]
    left_due: tuple[str, ...]
    expiries: tuple[Expiry, ...]

    def facts(self) -> dict[str, object]:
        """As JSON for programs."""
        return {
            "domain": self.domain,
            "site": self.site,
            "renewed": list(self.renewed),
            "left_due": list(self.left_due),
            "expiries": [expiry_facts(one) for one in self.expiries],
        }


def renew(site: Path, keys: KeyRing, *, domain: str, now: float) -> RenewalReport:
    """Renew the documents of a site folder that are due. Writes nothing if none is.

    The root is renewed first, because manifests must be signed by keys that the new root names.

    Args:
        site: Folder written by `trapezoid publish`.
        keys: The keys available; documents that need others are reported as left.
        domain: Domain that the site must belong to.
        now: Unix seconds.

    Raises:
        SettingsError: The folder belongs to another domain, or files cannot be read or written.
        PeerError: A published document is malformed.
    """
    folder = SiteFolder(site)
    if folder.load().domain != domain:
        raise SettingsError(f"{site} is the site of {folder.load().domain}; name that of {domain}")
    if _settled(folder) == folder.load() and not any(one.is_due for one in judge_all(published_terms(folder), now)):
        return _report(folder, (), (), now)
    renewed: list[str] = []
    left: list[str] = []
    with folder.locked():  # another process may have renewed them before we got the lock: read everything again
        publication = _settled(folder)
        for one in sorted(judge_all(published_terms(folder), now), key=lambda one: one.term.kind is not TermKind.ROOT):
            if not one.is_due:
                continue
            try:
                publication = _renew_document(folder, publication, one.term, keys, now)
            except SettingsError as exc:
                left.append(f"{one.term.title}: {exc.detail}")
            else:
                renewed.append(one.term.title)
        if publication != folder.load():
            replace_file(site / INDEX_NAME, msgspec.json.format(msgspec.json.encode(publication), indent=2))
    return _report(folder, renewed, left, now)


def node_renewal(settings: Settings) -> Renew | None:
    """The renewal for a running node: manifests, if `keys_dir` has a `pkg` key; never the root."""
    publish = settings.publish
    if publish is None or not publish.renew:
        return None
    return partial(_renew_manifests, publish.site_dir, publish.keys_dir, settings.node.domain)


def _renew_manifests(site: Path, keys_dir: Path, domain: str, now: float) -> Sequence[str]:
    if not any(keys_dir.glob("pkg-*.pem")):
        return ()
    ring = KeyRing(pkg=tuple(load_online_keys(keys_dir, "pkg", domain=domain)))
    report = renew(site, ring, domain=domain, now=now)
    manifests = [text for text in report.left_due if text.startswith(TermKind.MANIFEST.value)]
    if manifests:
        raise SettingsError("; ".join(manifests))
    return report.renewed


def _settled(folder: SiteFolder) -> Publication:
    """The index, naming the manifests that the folder has.

    A run that ended after a manifest and before the index left an index that names the previous manifest. Readers would
    refuse the new one, and as that is not due, no later run would repair it.
    """
    publication = folder.load()
    stubs = dict(publication.stubs)
    for selector, stub in stubs.items():
        reference = stub_reference(read_file(folder.manifest(stub.reference.name)), domain=publication.domain)
        if reference.serial > stub.reference.serial:
            stubs[selector] = msgspec.structs.replace(stub, reference=reference)
    return msgspec.structs.replace(publication, stubs=stubs)


def _renew_document(folder: SiteFolder, publication: Publication, term: Term, keys: KeyRing, now: float) -> Publication:
    if term.kind is TermKind.ROOT:
        return _renew_root(folder, publication, keys, now)
    return _renew_manifest(folder, publication, term.name, keys, now)


def _renew_root(folder: SiteFolder, publication: Publication, keys: KeyRing, now: float) -> Publication:
    domain, version = publication.domain, publication.root_version
    root = decode_root(decode_envelope(read_file(folder.root(version))).payload, domain=domain)
    signers = _signers(keys.root, root.roles.root.keys, root.roles.root.threshold, "root")
    following = version + 1
    envelope = sign_document(
        msgspec.structs.replace(
            root, version=following, issued=_moment(now), expires=_moment(now + ROOT_VALIDITY_SECONDS)
        ),
        signers,
    )
    replace_file(folder.root(following), envelope)
    return msgspec.structs.replace(publication, root_version=following, root_sha256=document_sha256(envelope))


def _renew_manifest(folder: SiteFolder, publication: Publication, name: str, keys: KeyRing, now: float) -> Publication:
    domain = publication.domain
    root = decode_root(decode_envelope(read_file(folder.root(publication.root_version))).payload, domain=domain)
    old = decode_manifest(decode_envelope(read_file(folder.manifest(name))).payload, domain=domain)
    signers = _signers(keys.pkg, root.roles.pkg.keys, root.roles.pkg.threshold, "pkg")
    envelope = sign_document(
        msgspec.structs.replace(
            old,
            serial=old.serial + 1,
            replaces=old.serial,
            released=_moment(now),
            expires=_moment(now + MANIFEST_VALIDITY_SECONDS),
        ),
        signers,
    )
    replace_file(folder.manifest(name), envelope)
    stubs = dict(publication.stubs)
    for selector, stub in stubs.items():
        if stub.reference.name == name:
            _write_signature(folder, folder.descriptor(name), envelope)
            _write_signature(folder, folder.source_package(stub.class_name), envelope)
            stubs[selector] = msgspec.structs.replace(stub, reference=stub_reference(envelope, domain=domain))
    return msgspec.structs.replace(publication, stubs=stubs)


def _signers(at_hand: Sequence[SigningKey], named: Sequence[str], threshold: int, role: str) -> list[SigningKey]:
    """The available keys that the root names. Raises SettingsError if they are fewer than the threshold."""
    counting = [key for key in at_hand if key.key_id in named]
    if len(counting) < threshold:
        raise SettingsError(
            f"needs {threshold} of the {role} keys {', '.join(named)}, but the keys folder has {len(counting)}"
        )
    return counting


def _write_signature(folder: SiteFolder, path: Path, envelope: bytes) -> None:
    """Replace the manifest in an original catalogue object, which has it as `signature`."""
    stored = folder.read_object(path)
    if stored is not None:
        stored["signature"] = msgspec.Raw(msgspec.json.encode(envelope.decode()))
        replace_file(path, msgspec.json.encode(stored))


def _report(folder: SiteFolder, renewed: Sequence[str], left: Sequence[str], now: float) -> RenewalReport:
    expiries = tuple(judge_all(published_terms(folder), now))
    return RenewalReport(
        domain=folder.load().domain,
        site=str(folder.path),
        renewed=tuple(renewed),
        left_due=tuple(left),
        expiries=expiries,
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
