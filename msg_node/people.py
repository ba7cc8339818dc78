"""The services about people, as the settings want them: made, connected, run, looked at.

Source: message specification, sections 12 and 20.4.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from msg_node.bus import Bus
from msg_node.config import Settings
from msg_node.config_identity import GlobalRegistrySettings
from msg_node.config_registries import backend_context
from msg_node.connectors.backend_http import BackendHttp
from msg_node.connectors.global_registry import GlobalRegistry
from msg_node.connectors.global_registry_rest import ANSWER_BYTES, GlobalRegistryRest
from msg_node.core.global_registry_service import GLOBAL_REGISTRY, GLOBAL_REGISTRY_KEY, GlobalRegistryService
from msg_node.core.service import Service
from msg_node.guid_store import GuidStore


class People:
    """Global registry and the way to users.

    Use: `services` go into the table of services, then `connect`, then `run` in a nursery.
    """

    def __init__(self, settings: Settings) -> None:
        """Make them; nothing is asked yet.

        Raises:
            SettingsError: A file that the settings name cannot be used.
            HostError: STORAGE.
        """
        self._registry = settings.global_registry
        self._global_registry: GlobalRegistry | None = None
        self._bus: Bus | None = None
        if self._registry is not None:
            rest = _rest(self._registry)
            store = GuidStore(settings.node.data_dir / "guids.sqlite")
            self._global_registry = GlobalRegistry(
                rest, store, verify=self._registry.verify, cache_seconds=self._registry.cache_seconds
            )

    @property
    def services(self) -> Mapping[str, Service]:
        """Services by canonical key, for `Services(at=…)`."""
        services: dict[str, Service] = {}
        if self._registry is not None:
            services[GLOBAL_REGISTRY_KEY] = GlobalRegistryService(
                read_seconds=self._registry.attempt_seconds, write_seconds=self._registry.write_seconds
            )
        return services

    def connect(self, bus: Bus) -> None:
        """Have inquiries answered, and users found; once, before anything runs."""
        self._bus = bus
        if self._global_registry is not None:
            bus.inquiries.connect(GLOBAL_REGISTRY, self._global_registry.ask)
            bus.users.connect(self._global_registry.record)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look for users until cancelled."""
        assert self._bus is not None
        async with trio.open_nursery() as nursery:
            if self._global_registry is not None:
                await nursery.start(self._bus.users.run)
            task_status.started()

    def status(self) -> dict[str, object]:
        """How each is, for operators."""
        told: dict[str, object] = {}
        if self._global_registry is not None and self._bus is not None:
            told["global_registry"] = dict(sorted(self._global_registry.counters.items()))
            told["users"] = self._bus.users.statistics()
        return told


def _rest(settings: GlobalRegistrySettings) -> GlobalRegistryRest:
    http = BackendHttp(settings.url, backend_context("global_registry", settings), max_bytes=ANSWER_BYTES)
    return GlobalRegistryRest(http, read_seconds=settings.attempt_seconds, write_seconds=settings.write_seconds)
