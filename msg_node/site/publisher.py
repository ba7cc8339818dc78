"""The current publication of a domain with its signed `live`, kept fresh while the node runs."""

from __future__ import annotations

import logging
import time

import trio

from msg_node.settings.model import Settings
from msg_node.settings.publish import published_endpoints
from msg_node.site.catalogue_objects import CatalogueObjects
from msg_node.site.publication import LiveOptions, LiveSigner, Publication, SignedLive, SiteFolder
from msg_node.storage.key_files import load_online_keys
from protofly.documents import SigningKey
from protofly.errors import MisuseError, SettingsError

logger = logging.getLogger("msg_node.site.site")

LOOK_SECONDS = 5.0
"""How often the publication folder is looked at for a new index: one stat."""
SERIAL_NAME = "live-serial"


class Publisher:
    """The current publication with its signed `live`, kept fresh by `run`.

    Attributes:
        objects: What its catalogue holds.
    """

    def __init__(self, folder: SiteFolder, signer: LiveSigner, *, cache_seconds: float) -> None:
        self.folder = folder
        self._signer = signer
        self._cache_seconds = cache_seconds
        self._changed_at = -1.0
        self.publication: Publication | None = None
        self.live: SignedLive | None = None
        self.objects = CatalogueObjects(folder, lambda: self.publication)

    @property
    def live_key_ids(self) -> list[str]:
        """Ids of the keys that sign `live`; the root has to name them."""
        return self._signer.key_ids

    def refresh(self, *, now: float) -> bool:
        """Sign a new `live` if it is time or the publication changed; true if one was signed. Raises SettingsError."""
        changed_at = self.folder.changed_at()
        if self.live is not None and changed_at == self._changed_at and now < self.live.resign_at():
            return False
        publication = self.folder.load()
        self.live = self._signer.sign(now=now)
        self.publication, self._changed_at = publication, changed_at
        return True

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
            except SettingsError as exc:
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
        options=LiveOptions(
            endpoints=published_endpoints(publish),
            catalogue=settings.site_url,
            mode=publish.mode,
            contact=publish.contact,
            life_seconds=publish.live_seconds,
        ),
    )
    return Publisher(folder, signer, cache_seconds=publish.cache_seconds), node_keys[0]


def _check_publication(publication: Publication, settings: Settings) -> None:
    if publication.domain != settings.node.domain:
        raise SettingsError(f"publish.site_dir belongs to {publication.domain}, this node to {settings.node.domain}")
    unproved = set(settings.node.aliases) - set(publication.aliases)
    if unproved:
        raise SettingsError(f"node.aliases: the published root does not name {', '.join(sorted(unproved))}")
