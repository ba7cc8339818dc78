"""One domain that the partner plays: what it publishes, how its site and name behave, and what was asked of it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from interop.domain_files import HOST, Ports, zone
from interop.partner.core.publication import Publication
from interop.partner.line import PartnerLine

TEXT_BYTES: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFault:
    """Faulty answer of a site in place of its documents.

    `body_bytes` more than the body has: the body goes on with zeros. `pause_seconds`: between single bytes of the body.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    body_bytes: int = 0
    pause_seconds: float = 0.0


class PartnerDomain:
    """A domain of the partner. Everything that it publishes can be changed while it runs.

    Attributes:
        publication: Its documents and module.
        records: Its DNS records, by name.
        fault: How its site misbehaves; None: it serves its documents.
        certificate_for: Names on the certificate of its site.
        requests: Paths that were asked for at its site, in order.
        sent_bytes: Bytes of bodies that its site has sent.
        arrivals: Connections to its link endpoint.
    """

    def __init__(self, name: str, ports: Ports, module: bytes) -> None:
        self.name = name
        self.publication = Publication(
            name,
            base=f"https://{name}:{ports.site}",
            endpoint=f"wss://mn.{name}:{ports.listen}/link",
            module=module,
            now=time.time(),
        )
        self.records: dict[str, list[str]] = zone(name, ports, "", host=HOST)
        self.records[f"_rethink-mn.{name}"] = ['TXT "v=rmn1; id=1"', f"SVCB 1 {name}. port={ports.site}"]
        self.fault: SiteFault | None = None
        self.certificate_for: tuple[str, ...] = (name, f"mn.{name}")
        self.requests: list[str] = []
        self.sent_bytes = 0
        self._arriving, self.arrivals = trio.open_memory_channel[PartnerLine](math.inf)
        self.transcript: list[str] = []
        self._began = time.monotonic()

    @property
    def endpoint(self) -> str:
        """URL of its link endpoint."""
        return self.publication.endpoint

    def note(self, text: str) -> None:
        """Add a line to the transcript."""
        self.transcript.append(f"{time.monotonic() - self._began:7.3f} {text}")

    def asked(self, path: str) -> None:
        """Its site was asked for a path."""
        self.requests.append(path)
        self.note(f"← GET {path[:TEXT_BYTES]}")

    def arrived(self, line: PartnerLine) -> None:
        """A connection came to its link endpoint."""
        self.note("← connection to our link endpoint")
        self._arriving.send_nowait(line)
