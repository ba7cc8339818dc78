"""The PostgreSQL servers of a laboratory: one for each domain with several nodes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from interop.domain_folders import ENGINE_PASSWORD, DomainFolders
from interop.engine_server import engine_owner
from interop.processes import Child


class Engines:
    """The servers of the domains that need one. Their files are gone afterwards."""

    def __init__(self, folders: DomainFolders) -> None:
        self._folders = folders
        self._running: dict[str, Child] = {}
        self._files: dict[str, Path] = {}

    @contextmanager
    def closing(self) -> Iterator[Engines]:
        """Make folders for their files, which the server's user can enter, and remove them in the end.

        Raises:
            SettingsError: Nobody here may run PostgreSQL.
        """
        try:
            for domain in self._folders.clustered:
                engine_owner()
                self._files[domain] = Path(tempfile.mkdtemp(prefix="trapezoid-engine-"))
            yield self
        finally:
            for folder in self._files.values():
                shutil.rmtree(folder, ignore_errors=True)

    async def start(self, domain: str) -> None:
        """Start the server of a domain, and wait until it answers. Raises TransportError if it does not."""
        folder = self._folders.folders[domain].path
        arguments = [str(self._files[domain]), str(self._folders.engine_port(domain)), str(folder / ENGINE_PASSWORD)]
        self._running[domain] = child = Child(
            ["interop.lab.engine_service", *arguments], log_file=folder / "engine.log"
        )
        await child.start()
        await child.wait_ready()

    async def stop(self, domain: str) -> None:
        """Stop the server of a domain, as a crash would."""
        child = self._running.pop(domain, None)
        if child is not None:
            await child.stop()

    async def start_all(self) -> None:
        """Start all servers side by side."""
        async with trio.open_nursery() as nursery:
            for domain in self._files:
                nursery.start_soon(self.start, domain)

    async def stop_all(self) -> None:
        """Stop all servers."""
        async with trio.open_nursery() as nursery:
            for domain in self._files:
                nursery.start_soon(self.stop, domain)
