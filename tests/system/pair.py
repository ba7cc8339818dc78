"""Two nodes of one domain, with names of their own, as real processes over a real engine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from interop.free_ports import free_ports
from tests.support.postgres import Postgres
from trapezoid.admin_client import ask_node

from .one_node import SETTINGS, Process, serving

AGENT = "thing://alpha.example/lamps"


class Pair:
    """Nodes n1 and n2 of alpha.example.

    Args:
        further: See the attribute.

    Attributes:
        further: More of their settings.
        listening: Their ports for runtimes, by name.
    """

    def __init__(self, folder: Path, engine: Postgres, database: str, further: str = "") -> None:
        self._folder = folder
        self.further = further
        self._engine = f"postgresql://trapezoid@127.0.0.1:{engine.port}/{database}"
        ports = free_ports(4)
        self._ports = dict(zip(("n1", "n2"), ports[:2], strict=True))
        self.listening = dict(zip(("n1", "n2"), ports[2:], strict=True))
        self._key = folder / "cluster.key"
        self._key.write_bytes(os.urandom(32))
        self._key.chmod(0o600)

    def settings(self, name: str) -> str:
        named = SETTINGS.format(grace=3600).replace('data_dir = "data"', f'data_dir = "data"\nname = "{name}"')
        named = named.replace("[listen]\nport = 0", f"[listen]\nport = {self.listening[name]}")
        return (
            f'{named}[storage]\nengine = "{self._engine}"\ntls = "off"\n'
            f'[cluster]\nlisten = "127.0.0.1:{self._ports[name]}"\nkey_file = "{self._key}"\n{self.further}'
        )

    def config_of(self, name: str) -> Path:
        return self._folder / name / "node.toml"

    def data_of(self, name: str) -> Path:
        return self._folder / name / "data"

    @asynccontextmanager
    async def node(
        self, name: str, *, seconds: float = 60, program: Path | None = None, clock: Path | None = None
    ) -> AsyncIterator[Process]:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        async with serving(folder, self.settings(name), seconds=seconds, program=program, clock=clock) as process:
            yield process

    async def asked(self, name: str, operation: str, /, **arguments: object) -> Any:
        return await trio.to_thread.run_sync(partial(ask_node, self.data_of(name), operation, arguments))
