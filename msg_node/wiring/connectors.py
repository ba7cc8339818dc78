"""The connectors that are stubs, as the settings name them: each runs while its entry stays as it is."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from federation.stubs.stub_host import StubHost
from federation.stubs.stub_provider import StubProvider
from msg_node.backends.connector_stubs import ConnectorStub
from msg_node.backends.core.connector_requests import connector_name, connector_service
from msg_node.bus.bus import Bus
from msg_node.bus.services import Services
from msg_node.kernel.service import Service
from msg_node.settings.model import Settings
from msg_node.settings.tables.connectors import ConnectorSettings
from protofly.errors import Code, HostError


class Connectors:
    """Runs the connectors, and puts them at their addresses.

    Use: `connect_services` and `connect_stubs` once, then `run` in a nursery; `follow` at any time after these.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._instead: dict[str, Service | None] = {}  # what stands at an address while no connector does
        self._stubs: dict[str, ConnectorStub] = {}
        self._services: Services | None = None
        self._parts: tuple[Bus, StubProvider, StubHost] | None = None
        self._nursery: trio.Nursery | None = None

    def connect_services(self, services: Services) -> None:
        """Put connectors at their addresses; before anything stands before these, and before anything runs."""
        self._services = services
        for one in self._settings.connector:
            self._serve(one)

    def connect_stubs(self, bus: Bus, provider: StubProvider, host: StubHost) -> None:
        """Have them asked; before anything runs."""
        self._parts = bus, provider, host
        for one in self._settings.connector:
            self._start(one)

    def follow(self, settings: Settings) -> None:
        """Run what these settings name.

        Who waits for a connector that is gone, or is another one now, is answered 503 `draining`.
        """
        before = {one.service: one for one in self._settings.connector}
        after = {one.service: one for one in settings.connector}
        self._settings = settings
        for word, one in before.items():
            if after.get(word) != one:
                self._stop(word)
        for word, one in after.items():
            if before.get(word) != one:
                self._serve(one)
                self._start(one)

    def _keys(self, word: str) -> Iterable[str]:
        return [f"domain://{word}.{domain}" for domain in self._settings.own_domains]

    def _serve(self, one: ConnectorSettings) -> None:
        assert self._services is not None
        for key in self._keys(one.service):
            self._instead.setdefault(key, self._services.behind(key))
            self._services.replace(key, connector_service(one.service, serves_domains=one.serves_domains))

    def _start(self, one: ConnectorSettings) -> None:
        assert self._parts is not None
        bus, provider, host = self._parts
        name = f"{one.service}.{self._settings.node.domain}"
        stub = ConnectorStub(name, provider, host, allows_plaintext=one.insecure_plaintext)
        bus.inquiries.connect(connector_name(one.service), stub.port.ask)
        self._stubs[one.service] = stub
        if self._nursery is not None:
            self._nursery.start_soon(stub.run)

    def _stop(self, word: str) -> None:
        """End a connector, and put back what was at its address."""
        assert self._parts is not None
        assert self._services is not None
        stub = self._stubs.pop(word)
        stub.end()
        stub.port.fail(HostError(Code.DRAINING, "the settings have another connector here, or none"))
        self._parts[0].inquiries.disconnect(connector_name(word))
        for key in self._keys(word):
            self._services.replace(key, self._instead.pop(key))

    def end_forbidden(self, sha256: str) -> None:
        """End those that run a module which the operator has just forbidden."""
        for stub in self._stubs.values():
            stub.end_forbidden(sha256)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep them running until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for stub in self._stubs.values():
                nursery.start_soon(stub.run)
            task_status.started()
            await trio.sleep_forever()

    def status(self) -> dict[str, object]:
        """Report the state of each for operators, by the host of its service."""
        return {stub.name: stub.status() for stub in self._stubs.values()}
