"""Watches the terms of what this node publishes and of the certificates that it serves, and renews what it can.

The log has a line when a term changes its state and one a day while something warns or fails; `/readyz`, `/status` and
`trapezoid status` show the same judgement. `core/expiry.py` judges. Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from msg_node.kernel.expiry import Expiry, ExpiryState, Term, TermKind, judge_all, news
from msg_node.running import running_node
from msg_node.settings.model import Settings
from msg_node.site.publication import LIVE_NAME, SignedLive, SiteFolder
from msg_node.site.publisher import Publisher
from msg_node.storage.certificates import read_certificate
from msg_node.storage.file_checks import FileError, read_file
from protofly import limits
from protofly.documents import Live, Manifest, Root, decode_envelope, decode_live, decode_manifest, decode_root
from protofly.errors import HostError, PeerError

logger = logging.getLogger("msg_node.expiry")

Renew = Callable[[float], Sequence[str]]
"""Renews published documents that are due at a time (Unix seconds); returns their titles. Blocks, raises HostError."""


class ExpiryWatch:
    """Everything of one node that expires.

    Args:
        terms: Reads what there is now; may block for the disk and raise HostError. Asked hourly.
        live: The term of the live document that is served; asked at each judgement, since it is signed anew often.
        renew: Renews documents; None: they are only watched.
    """

    def __init__(
        self,
        terms: Callable[[], Sequence[Term]],
        *,
        live: Callable[[], Sequence[Term]] = tuple,
        renew: Renew | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.renew = renew
        self._live = live
        self._read_terms = terms
        self._clock = clock
        self._terms: Sequence[Term] = ()
        self._before: Sequence[Expiry] = ()
        self._reminded_at = 0.0
        self._trouble = ""

    def judged(self) -> list[Expiry]:
        """All terms as they are now, what ends first first."""
        return judge_all([*self._terms, *self._live()], self._clock())

    def problems(self) -> list[str]:
        """Describe what others refuse now, in words that may be public."""
        return [one.text for one in self.judged() if one.is_failing]

    def warnings(self) -> list[str]:
        """Describe what others will refuse soon."""
        trouble = ["expiries: the published documents cannot be read"] if self._trouble else []
        return [one.text for one in self.judged() if one.is_warning] + trouble

    def status(self) -> list[dict[str, object]]:
        """For operators: one object per term."""
        return [expiry_facts(one) for one in self.judged()]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look once before this reports started, then hourly, until cancelled."""
        await self.look()
        task_status.started()
        while True:
            await trio.sleep(limits.EXPIRY_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Read the terms, renew what is due, and log what is news."""
        await trio.to_thread.run_sync(self._look)

    def _look(self) -> None:
        self._read()
        if self.renew is not None and any(one.is_due and one.term.kind is TermKind.MANIFEST for one in self.judged()):
            self._renew_documents(self.renew)
            self._read()
        now = self._clock()
        is_reminder = not 0 <= now - self._reminded_at < limits.EXPIRY_REMINDER_SECONDS  # the clock may have been set
        after = self.judged()
        for one in news(self._before, after, is_reminder=is_reminder):
            logger.log(_LEVELS.get(one.state, logging.WARNING), "%s: %s", one.code, one.advice)
        if is_reminder:
            self._reminded_at = now
        self._before = after

    def _read(self) -> None:
        try:
            self._terms = self._read_terms()
        except HostError as exc:
            if exc.detail != self._trouble:
                logger.error("the terms of the published documents cannot be read: %s", exc.detail)
            self._trouble = exc.detail
        else:
            self._trouble = ""

    def _renew_documents(self, renew: Renew) -> None:
        try:
            for title in renew(self._clock()):
                logger.info("renewed %s", title)
        except HostError as exc:
            logger.warning("published documents that are due are not renewed: %s", exc.detail)


_LEVELS = {
    ExpiryState.VALID: logging.INFO,
    ExpiryState.DUE: logging.INFO,
    ExpiryState.EXPIRING: logging.WARNING,
    ExpiryState.EXPIRED: logging.ERROR,
    ExpiryState.EARLY: logging.ERROR,
}


def watch_node(settings: Callable[[], Settings], publisher: Publisher | None) -> ExpiryWatch:
    """The watch of one node; `settings` gives those in force. Certificates are read again at each look.

    Raises:
        FileError: A certificate cannot be read.
    """
    certificate_terms(settings())
    if publisher is None:
        return ExpiryWatch(lambda: certificate_terms(settings()))
    return ExpiryWatch(
        lambda: [*published_terms(publisher.folder), *certificate_terms(settings())],
        live=lambda: live_terms(publisher.live),
    )


def certificate_terms(settings: Settings) -> list[Term]:
    """The certificates that the settings name. Raises FileError."""
    return [read_certificate(path).term(name) for name, path in own_certificates(settings)]


def own_certificates(settings: Settings) -> list[tuple[str, Path]]:
    """The certificates that the settings name for us, with the table that names each."""
    tables = {
        "listen": settings.listen,
        "site": settings.site,
        "admin": settings.admin,
        "mqtt": settings.mqtt,
        "registry": settings.registry,
        "qos": settings.qos,
        "catalogue.own": settings.catalogue.own,
        "global_registry": settings.global_registry,
    }
    named = ((name, table.certificate) for name, table in tables.items() if table is not None)
    return [(f"[{name}]", path) for name, path in named if path is not None]


def terms_on_disk(settings: Settings) -> list[Term]:
    """Read the terms that `check` and `keys expiry` can see; a live document counts only while its node runs.

    Raises:
        HostError: A file cannot be read.
    """
    terms = certificate_terms(settings)
    if settings.publish is None:
        return terms
    folder = SiteFolder(settings.publish.site_dir)
    return [*published_terms(folder), *live_on_disk(settings), *terms]


def live_on_disk(settings: Settings) -> list[Term]:
    """The live document of the node that runs on the data folder, if one runs. Raises HostError."""
    path = settings.node.data_dir / LIVE_NAME
    if not path.exists() or running_node(settings.node.data_dir) is None:
        return []
    return [document_term(TermKind.LIVE, "document", decode_live(_payload(path), domain=settings.node.domain), path)]


def published_terms(folder: SiteFolder) -> list[Term]:
    """Root and manifests of a site folder. Raises HostError."""
    publication = folder.load()
    domain = publication.domain
    root_file = folder.root(publication.root_version)
    root = decode_root(_payload(root_file), domain=domain)
    terms = [document_term(TermKind.ROOT, str(root.version), root, root_file)]
    for name in sorted({stub.reference.name for stub in publication.stubs.values()}):
        path = folder.manifest(name)
        terms.append(document_term(TermKind.MANIFEST, name, decode_manifest(_payload(path), domain=domain), path))
    return terms


def live_terms(live: SignedLive | None) -> list[Term]:
    """The live document that is served, if there is one."""
    return [] if live is None else [document_term(TermKind.LIVE, "document", live.document)]


def expiry_facts(one: Expiry) -> dict[str, object]:
    """One term for programs."""
    return {
        "kind": one.term.kind.value,
        "name": one.term.name,
        "state": one.state.value,
        "code": one.code,
        "days_left": one.days_left,
        "ends_at": int(one.term.ends_at),
        "text": one.text,
        "action": one.action,
    }


def _payload(path: Path) -> bytes:
    try:
        return decode_envelope(read_file(path)).payload
    except PeerError as exc:
        raise FileError("document-malformed", path, exc.detail or exc.code.word, "run `trapezoid publish`") from exc


def document_term(kind: TermKind, name: str, document: Root | Manifest | Live, file: Path | None = None) -> Term:
    """The life of a document, called `name`."""
    begins = document.released if isinstance(document, Manifest) else document.issued
    return Term(kind, name, begins.timestamp(), document.expires.timestamp(), "" if file is None else str(file))
