"""`trapezoid publish`: signed root and manifest, module and original-format catalogue entry, into a site folder.

Runs where the `root` and `pkg` keys are, which need not be where the node is. What is already published and still right
is kept byte for byte, so that publishing twice changes nothing; the index is replaced last.

Source: trust and hosts, sections 3.3 and 3.4; data formats, sections 2.6 and 2.7.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from msg_node.admin.expiry_watch import document_term
from msg_node.kernel.expiry import TermKind, judge
from msg_node.site.publication import (
    INDEX_NAME,
    WELL_KNOWN,
    Publication,
    PublishedRuntimeStub,
    PublishedStub,
    SiteFolder,
    is_signed_for,
)
from msg_node.storage.file_checks import read_file
from protofly.address import valid_domain
from protofly.documents import (
    Manifest,
    Revoked,
    Root,
    StubReference,
    decode_envelope,
    decode_manifest,
    decode_root,
    document_sha256,
    key_set_fingerprint,
)
from protofly.errors import SettingsError
from sandbox.core.module_check import ModuleFacts, inspect_module
from stubkit.certification import decoded, report_path
from stubkit.pack import build_descriptor, build_source_package, class_name
from stubkit.sandboxed import module_named
from stubkit.sign import RootTerms, StubRelease, sign_manifest, sign_root, stub_reference
from trapezoid.publish_options import (
    PublishOptions,
    SigningSite,
    checked_selector,
    complete,
    default_module,
    revoked_modules,
)
from trapezoid.publish_request import PublishRequest
from trapezoid.publish_runtime_stub import publish_runtime_stub
from trapezoid.site_files import replace_published


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReport:
    """The documents that are published now."""

    domain: str
    site: str
    fingerprint: str
    root_version: int
    root_expires: str
    stub: str
    serial: int
    version: str
    module_sha256: str
    module_bytes: int
    manifest_expires: str
    is_new_root: bool
    is_new_manifest: bool
    previous_fingerprint: str
    """Empty if nothing was published before."""
    is_new_fingerprint: bool
    """True if partners that pinned the previous fingerprint need the new one."""
    certification: str
    """What `stub certify` found; "none" without a report about this module beside it."""
    runtime_stub: str
    """The stub for runtimes that is published, "none" if none is."""
    options: dict[str, object]
    kept: tuple[str, ...]
    """Options that were not given: they are as published before."""
    revoked: tuple[str, ...]
    """Digests of all modules that the domain has taken back."""
    is_revoked: bool
    """True if the published module is among them: nodes run no stub of the domain until another is published."""


CheckModule = Callable[[Path, PublishOptions], None]
"""Checks a module before its first publication. Raises SettingsError if it breaks the stub contract."""


def _accept(_module: Path, _options: PublishOptions) -> None:
    pass


def publish(site: SigningSite, request: PublishRequest, *, check: CheckModule = _accept) -> PublishReport:
    """Sign and write whatever of a site folder differs from a request. Repeating a call changes nothing.

    Args:
        site: The folder, its domain and keys.
        request: The options; those that it leaves open stay as published.
        check: Called before a module, or one with other permissions, is signed; nothing is written when it raises.

    Raises:
        SettingsError: Keys are missing, files cannot be read or written, or the folder belongs to another domain.
        PeerError: The domain name is invalid, or the module breaks the stub contract.
    """
    valid_domain(site.domain)
    checked_selector(request.selector)
    options = complete(site, request, _published(site))
    module = read_file(options.module)
    with module_named(options.module):
        facts = inspect_module(module)
    if facts.kind != "protostub":
        raise SettingsError(f"{options.module}: a {facts.kind} serves the domain that runs it, and is not published")
    if 0 < options.memory_kib << 10 < facts.memory_minimum_bytes:
        least = facts.memory_minimum_bytes >> 10
        raise SettingsError(f"--memory-kib {options.memory_kib}: {options.module} begins with {least} KiB of memory")
    if _is_other_stub(site, options, module, facts.name):
        check(options.module, options)
    with site.folder.locked():
        return _publish(site, request, options, module, facts)


def _publish(
    site: SigningSite, request: PublishRequest, options: PublishOptions, module: bytes, facts: ModuleFacts
) -> PublishReport:
    folder, domain = site.folder, site.domain
    index = _published(site)
    revoked = _revoked(index, request, hashlib.sha256(module).hexdigest())
    before = folder.newest_root(domain)
    root, is_new_root = _root(site, options)
    document = decode_root(decode_envelope(root).payload, domain=domain)
    manifest, is_new_manifest = _manifest(site, request.serial, options, module, facts, document)
    reference = stub_reference(manifest, domain=domain)
    signed = decode_manifest(decode_envelope(manifest).payload, domain=domain)
    fingerprint = key_set_fingerprint(document)
    previous_fingerprint = key_set_fingerprint(before[1]) if before is not None else ""

    replace_published(folder.module(signed.module.sha256), module)
    replace_published(folder.root(document.version), root)
    replace_published(folder.manifest(reference.name), manifest)
    replace_published(folder.descriptor(reference.name), _descriptor(options, reference, manifest))
    package = build_source_package(module, reference.name, manifest_envelope=manifest)
    replace_published(folder.source_package(class_name(reference.name)), package)
    certification = _publish_certification(folder.certification(reference.name), options.module, signed.module.sha256)
    runtime = publish_runtime_stub(site, request, index, options.url)
    stub = PublishedStub(
        reference=reference,
        module_sha256=signed.module.sha256,
        class_name=class_name(reference.name),
        is_built_in=module == read_file(default_module()),
    )
    replace_published(site.path / INDEX_NAME, _index(index, request.selector, stub, runtime, revoked, (root, document)))
    return PublishReport(
        domain=domain,
        site=str(site.path),
        fingerprint=fingerprint,
        root_version=document.version,
        root_expires=document.expires.isoformat(),
        stub=reference.name,
        serial=reference.serial,
        version=reference.version,
        module_sha256=signed.module.sha256,
        module_bytes=len(module),
        manifest_expires=signed.expires.isoformat(),
        is_new_root=is_new_root,
        is_new_manifest=is_new_manifest,
        previous_fingerprint=previous_fingerprint,
        is_new_fingerprint=previous_fingerprint not in ("", fingerprint),
        certification=certification,
        runtime_stub=f"{runtime.name} {runtime.version}, {runtime.url}" if runtime else "none",
        options={**options.facts(), "module": "built in" if stub.is_built_in else str(options.module)},
        kept=options.kept,
        revoked=tuple(revoked.modules),
        is_revoked=signed.module.sha256 in revoked.modules,
    )


def _revoked(index: Publication | None, request: PublishRequest, sha256: str) -> Revoked:
    """What is taken back from now on. Raises SettingsError if the module that was named for publication is among it."""
    revoked = index.revoked if index else Revoked()
    modules = revoked_modules(revoked.modules, request.revoke or ())
    if request.module is not None and sha256 in modules:
        raise SettingsError(f"{request.module}: this module is revoked, and no node runs it; publish another one")
    return msgspec.structs.replace(revoked, modules=modules)


def _publish_certification(place: Path, module: Path, sha256: str) -> str:
    """Publish the report that lies beside a module if it is about this one, else take an older one away."""
    file = report_path(module)
    if file.exists():
        raw = read_file(file)
        report, _ = decoded(raw)
        if report.sha256 == sha256:
            replace_published(place, raw)
            return report.summary
    if place.exists() and decoded(read_file(place))[0].sha256 == sha256:
        return decoded(read_file(place))[0].summary  # published before, from a folder that is not here
    place.unlink(missing_ok=True)
    return "none"


def _is_other_stub(site: SigningSite, options: PublishOptions, module: bytes, name: str) -> bool:
    """Return True if this module with these permissions is not what is published under its name."""
    path = site.folder.manifest(name)
    if not path.exists():
        return True
    manifest = decode_manifest(decode_envelope(read_file(path)).payload, domain=site.domain)
    permissions = manifest.permissions
    published = (manifest.module.sha256, tuple(permissions.connect), permissions.auth)
    return published != (hashlib.sha256(module).hexdigest(), options.endpoints, options.needs_auth)


def _published(site: SigningSite) -> Publication | None:
    if not (site.path / INDEX_NAME).exists():
        return None
    index = site.folder.load()
    if index.domain != site.domain:
        raise SettingsError(f"{site.path} is the site of {index.domain}; name that of {site.domain}")
    return index


def published_fingerprint(site: Path) -> str:
    """Fingerprint of the key set that a site folder publishes. Raises SettingsError or PeerError."""
    folder = SiteFolder(site)
    newest = folder.newest_root(folder.load().domain)
    if newest is None:
        raise SettingsError(f"{site}: no root is published; run `trapezoid publish`")
    return key_set_fingerprint(newest[1])


def _root(site: SigningSite, options: PublishOptions) -> tuple[bytes, bool]:
    """The current root, or a new version when keys, threshold or aliases changed or it is about to expire."""
    newest = site.folder.newest_root(site.domain)
    keys = site.keys
    if newest is None:
        return _sign_root(site, options, 1), True
    envelope, root = newest
    is_same = set(options.aliases) == set(root.aliases) and options.threshold == root.roles.root.threshold
    if not keys.root:  # kept elsewhere, as recommended
        if not is_same:
            raise SettingsError("a change of aliases or threshold needs a new root; publish where the root keys are")
        return envelope, False
    is_same = is_same and {key.key_id for key in (*keys.root, *keys.live, *keys.pkg)} == set(root.keys)
    if is_same and not judge(document_term(TermKind.ROOT, "", root), site.now).is_due:
        return envelope, False
    at_hand = {key.key_id for key in keys.root}
    if len(at_hand & set(root.roles.root.keys)) < root.roles.root.threshold:
        raise SettingsError("the old root keys must also sign a new root; put their files into the keys folder")
    return _sign_root(site, options, root.version + 1), True


def _sign_root(site: SigningSite, options: PublishOptions, version: int) -> bytes:
    return sign_root(
        site.keys,
        domain=site.domain,
        now=site.now,
        terms=RootTerms(version=version, threshold=options.threshold, aliases=options.aliases),
    )


def _manifest(
    site: SigningSite, serial: int, options: PublishOptions, module: bytes, facts: ModuleFacts, root: Root
) -> tuple[bytes, bool]:
    """The current manifest if it still fits module and root, else a new one; `serial` 0 takes the next number."""
    sha256 = hashlib.sha256(module).hexdigest()
    urls = [f"{options.url}{WELL_KNOWN}/module/{sha256}.wasm"]
    path = site.folder.manifest(facts.name)
    previous: Manifest | None = None
    if path.exists():
        envelope = read_file(path)
        previous = decode_manifest(decode_envelope(envelope).payload, domain=site.domain)
        is_same = (previous.module.sha256, previous.module.urls) == (sha256, urls)
        is_same = is_same and previous.permissions.connect == list(options.endpoints)
        is_same = is_same and previous.permissions.ranges == list(options.ranges)
        is_same = is_same and (previous.needs, tuple(previous.for_domains)) == (options.needs, options.for_domains)
        is_same = is_same and previous.permissions.auth == options.needs_auth and is_signed_for(envelope, root)
        is_due = judge(document_term(TermKind.MANIFEST, facts.name, previous), site.now).is_due
        if is_same and not serial and not is_due:
            return envelope, False
    last = previous.serial if previous else 0
    if serial and serial <= last:
        raise SettingsError(f"serial {serial} is not above the published {last}; give a higher one, or none")
    release = StubRelease(
        domain=site.domain,
        name=facts.name,
        serial=serial or last + 1,
        version=facts.version,
        urls=urls,
        connect=options.endpoints,
        needs_auth=options.needs_auth,
        ranges=options.ranges,
        needs=options.needs,
        for_domains=options.for_domains,
        configuration=facts.configuration,
        events=facts.events,
        replaces=last or None,
    )
    manifest = sign_manifest(site.keys, module, release, now=site.now)
    if not is_signed_for(manifest, root):
        raise SettingsError(
            "the root names none of the pkg keys in the folder; publish where the root keys are, to sign a new root"
        )
    return manifest, True


def _descriptor(options: PublishOptions, reference: StubReference, manifest: bytes) -> bytes:
    return build_descriptor(
        name=reference.name,
        version=reference.version,
        description=options.description,
        authority=urlsplit(options.url).netloc,
        manifest_envelope=manifest,
        is_interworking=bool(options.ranges),
    )


def _index(
    index: Publication | None,
    selector: str,
    stub: PublishedStub,
    runtime_stub: PublishedRuntimeStub | None,
    revoked: Revoked,
    root: tuple[bytes, Root],
) -> bytes:
    published = Publication(
        domain=root[1].domain,
        root_version=root[1].version,
        root_sha256=document_sha256(root[0]),
        aliases=tuple(root[1].aliases),
        stubs={**(index.stubs if index else {}), selector: stub},
        revoked=revoked,
        runtime_stub=runtime_stub,
        entries=index.entries if index else (),
    )
    return msgspec.json.format(msgspec.json.encode(published), indent=2)
