"""The current publication of a domain with its signed `live`, kept fresh while the node runs."""

from __future__ import annotations

import logging
import time
from typing import Final

import msgspec
import trio

from msg_node.settings.model import Settings
from msg_node.settings.publish import published_endpoints
from msg_node.settings.tables.publish import PublishSettings
from msg_node.site.catalogue_objects import CatalogueObjects
from msg_node.site.publication import LiveOptions, LiveSigner, Publication, SignedLive, SiteFolder
from msg_node.site.shared_live import LiveOfDomain, is_behind, joint_endpoint
from msg_node.storage.engine_errors import EngineError
from msg_node.storage.key_files import load_online_keys
from protofly.documents import Live, SigningKey
from protofly.errors import MisuseError, SettingsError

logger = logging.getLogger("msg_node.site.site")

LOOK_SECONDS = 5.0
"""How often the publication folder is looked at for a new index: one stat."""
SERIAL_NAME = "live-serial"
ATTEMPTS: Final = 5
"""How often a node tries to be the one that signs, when others are faster, before it looks again later."""
_ACTED_ON: Final = ("root", "endpoints", "stubs", "mode", "node_keys", "revoked")


class Publisher:
    """The current publication with its signed `live`, kept fresh by `run`.

    Attributes:
        objects: What its catalogue holds.
        shared: What the nodes of a domain share of it; set before anything runs, None for a node alone.
    """

    def __init__(self, folder: SiteFolder, signer: LiveSigner, *, cache_seconds: float) -> None:
        self.folder = folder
        self._signer = signer
        self._cache_seconds = cache_seconds
        self._changed_at = -1.0
        self._signed_with: LiveOptions | None = None
        self.publication: Publication | None = None
        self.live: SignedLive | None = None
        self.objects = CatalogueObjects(folder, lambda: self.publication)
        self.shared: LiveOfDomain | None = None

    def check(self, options: LiveOptions, *, now: float) -> None:
        """Check that readers would take a document with these options. Blocks. Raises SettingsError."""
        self._signer.check(options, now=now)

    def follow(self, options: LiveOptions, cache_seconds: float) -> None:
        """Have another `live` at the next look, if it is to say something else."""
        self._cache_seconds = cache_seconds
        self._signer.options = options

    @property
    def live_key_ids(self) -> list[str]:
        """Ids of the keys that sign `live`; the root has to name them."""
        return self._signer.key_ids

    def refresh(self, *, now: float) -> bool:
        """Have a new `live` if it is time or something changed; true if there is one.

        Raises:
            SettingsError: It cannot be made.
            EngineError: The nodes of the domain cannot agree on one.
        """
        if self.shared is not None:
            return self._agree(self.shared, now)
        changed_at, options = self.folder.changed_at(), self._signer.options
        is_same = changed_at == self._changed_at and options == self._signed_with
        if self.live is not None and is_same and now < self.live.resign_at():
            return False
        publication = self.folder.load()
        self.live = self._signer.sign(self._signer.draft(now=now), now=now)
        self.publication, self._changed_at, self._signed_with = publication, changed_at, options
        return True

    def _agree(self, shared: LiveOfDomain, now: float) -> bool:
        """Take the document of the domain, or put a new one in its place."""
        changed_at, before = self.folder.changed_at(), self.live
        if before is None or changed_at != self._changed_at:
            self.publication, self._changed_at = self.folder.load(), changed_at
        for _ in range(ATTEMPTS):
            newest = shared.read()
            draft = self._joint_draft(shared, newest, now)
            if newest is None or now >= newest.resign_at() or not self._says(newest, draft):
                signed = self._signer.sign(draft, now=now, above=0 if newest is None else newest.document.serial)
                if not shared.replace(signed, newest):
                    continue  # another node was faster
                newest = signed
            self.live = newest
            is_new = before is None or before.envelope != newest.envelope
            if is_new:
                self._signer.keep(newest)
            return is_new
        return False

    def _joint_draft(self, shared: LiveOfDomain, newest: SignedLive | None, now: float) -> Live:
        """What the document has to say: our publication, unless another node has a newer one, and all nodes."""
        draft, nodes = self._signer.draft(now=now), shared.nodes()
        if newest is not None and is_behind(draft, newest.document):
            known = newest.document
            draft = msgspec.structs.replace(draft, root=known.root, stubs=known.stubs, revoked=known.revoked)
        keys = dict(draft.node_keys)
        for one in nodes:
            keys |= one.keys
        endpoints = [joint_endpoint(draft.endpoints[0], nodes), *draft.endpoints[1:]]
        return msgspec.structs.replace(draft, endpoints=endpoints, node_keys=keys)

    def _says(self, live: SignedLive, draft: Live) -> bool:
        """True if a document says all of a draft that readers act on, in our keys' names."""
        document = live.document
        same = all(getattr(document, name) == getattr(draft, name) for name in _ACTED_ON)
        return same and self._signer.has_signed(live)

    def cache_control(self, *, now: float) -> str:
        """Return the `Cache-Control` of `live`: as set, and never past the time at which a new one is due."""
        due_seconds = self.live.resign_at() - now if self.live else 0.0
        return f"public, max-age={max(0, int(min(self._cache_seconds, due_seconds)))}"

    async def prepare(self) -> None:
        """Have a fresh `live`. Raises SettingsError."""
        await trio.to_thread.run_sync(lambda: self.refresh(now=time.time()))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep `live` fresh. The first one is made before this reports started. Raises SettingsError if that fails."""
        await self.prepare()
        task_status.started()
        while True:
            await trio.sleep(LOOK_SECONDS)
            try:
                if await trio.to_thread.run_sync(lambda: self.refresh(now=time.time())):
                    logger.info("signed live document %d", self.live.document.serial if self.live else 0)
            except (SettingsError, EngineError) as exc:
                logger.error("the old publication stays: %s", exc.detail)


def make_publisher(settings: Settings) -> tuple[Publisher, SigningKey]:
    """The publisher that the settings ask for, and the node key that proves this node.

    Raises:
        SettingsError: Keys or publication cannot be used, or are of another domain.
    """
    publish = settings.publish
    if publish is None:
        raise MisuseError("these settings publish nothing")
    folder = SiteFolder(publish.site_dir)
    _check_publication(folder.load(), settings)
    node_keys = load_online_keys(publish.keys_dir, "node", domain=settings.node.domain)
    signer = LiveSigner(
        folder,
        load_online_keys(publish.keys_dir, "live", domain=settings.node.domain),
        serial_file=settings.node.data_dir / SERIAL_NAME,
        node_keys={key.key_id: key.record() for key in node_keys},
        options=live_options(settings, publish),
    )
    return Publisher(folder, signer, cache_seconds=publish.cache_seconds), node_keys[0]


def live_options(settings: Settings, publish: PublishSettings) -> LiveOptions:
    """Return what the signed `live` document says beside the publication."""
    return LiveOptions(
        endpoints=published_endpoints(publish),
        catalogue=settings.site_url,
        mode=publish.mode,
        contact=publish.contact,
        life_seconds=publish.live_seconds,
    )


def _check_publication(publication: Publication, settings: Settings) -> None:
    if publication.domain != settings.node.domain:
        raise SettingsError(
            f"publish.site_dir is the site of {publication.domain}: name that of {settings.node.domain}"
        )
    unproved = set(settings.node.aliases) - set(publication.aliases)
    if unproved:
        raise SettingsError(f"node.aliases: the published root does not name {', '.join(sorted(unproved))}")
