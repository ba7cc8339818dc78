"""How to reach an engine, and as whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Tls = Literal["verify-full", "verify-ca", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Address of the engine, and the account to use.

    Attributes:
        hosts: Names, addresses or folders of a Unix socket, each with a port; the first one that accepts writes serves.
        domain: Of the node: an engine that serves another one is refused.
        application: What the engine shows as name of the connection.
        password: None: libpq looks into the environment (`PGPASSWORD`).
    """

    hosts: tuple[tuple[str, int], ...]
    user: str
    database: str
    domain: str
    application: str
    password: str | None = field(default=None, repr=False)
    tls: Tls = "verify-full"
    ca_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def place(self) -> str:
        """The engine for people: no password."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"postgresql://{self.user}@{hosts}/{self.database}"
