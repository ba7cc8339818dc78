"""Checks of what a domain publishes: keys, root, manifests, and their validity."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from msg_node.admin.expiry_watch import live_on_disk, published_terms
from msg_node.kernel.expiry import Term, TermKind, judge
from msg_node.settings.model import Settings
from msg_node.site.publication import SiteFolder, is_signed_for
from msg_node.site.publisher import make_publisher
from msg_node.storage.file_checks import check_private_folder, check_writable_folder
from protofly.errors import HostError, SettingsError
from trapezoid.findings import Finding, Level, remark


def check_publication(settings: Settings) -> str | Finding:
    """Check that keys, root and manifests match. Raises HostError, OSError."""
    publisher, node_key = make_publisher(settings)
    publish = settings.publish
    assert publish is not None
    publication = publisher.folder.load()
    newest = publisher.folder.newest_root(settings.node.domain)
    if newest is None:
        raise SettingsError(f"{publisher.folder.path}: no root is published; run `trapezoid publish`")
    root = newest[1]
    strangers = [key_id for key_id in publisher.live_key_ids if key_id not in root.roles.live.keys]
    if strangers:
        raise SettingsError(f"the published root does not name {', '.join(strangers)}; run `trapezoid publish`")
    references = {name: stub.reference for name, stub in publication.stubs.items()}
    for reference in references.values():
        if not is_signed_for(publisher.folder.manifest(reference.name).read_bytes(), root):
            raise SettingsError(
                f"the manifest of {reference.name} is not signed by a pkg key of the published root; "
                "run `trapezoid publish` with that module"
            )
    taken_back = [name for name, stub in publication.stubs.items() if stub.module_sha256 in publication.revoked.modules]
    if taken_back:
        return remark(
            Level.WARNING,
            "revoked",
            f"the stub {', '.join(taken_back)} is published and revoked, and no node runs it",
            action="publish another module (`trapezoid publish`)",
        )
    warning = check_private_folder(publish.keys_dir)
    if warning:
        return remark(Level.WARNING, "folder-readable", warning, file=str(publish.keys_dir))
    if publish.renew and any(publish.keys_dir.glob("pkg-*.pem")):
        check_writable_folder(publish.site_dir)  # renewed manifests are written there
    stubs = ", ".join(f"{name}: {reference.name} {reference.serial}" for name, reference in references.items())
    return f"root {root.version}, {stubs}, node key {node_key.key_id}"


def check_documents(settings: Settings) -> Iterator[tuple[str, Callable[[], str | Finding]]]:
    """One check of validity for each published document."""
    assert settings.publish is not None
    try:
        terms = [*published_terms(SiteFolder(settings.publish.site_dir)), *live_on_disk(settings)]
    except HostError as exc:
        yield "publish.documents", partial(_fail, exc)
        return
    is_renewed = settings.publish.renew and any(settings.publish.keys_dir.glob("pkg-*.pem"))
    for term in terms:
        yield (
            f"publish.{term.kind.value}",
            partial(_check_term, term, is_renewed=is_renewed and term.kind is TermKind.MANIFEST),
        )


def _check_term(term: Term, *, is_renewed: bool) -> str | Finding:
    one = judge(term, time.time())
    action = "the node renews it automatically" if is_renewed else one.action
    if one.is_failing or one.is_warning:
        level = Level.FAILING if one.is_failing and not is_renewed else Level.WARNING
        return remark(level, one.code, one.text, file=term.file, action=action)
    return f"{one.text}; {action}" if one.is_due else one.text


def _fail(error: HostError) -> str:
    raise error
