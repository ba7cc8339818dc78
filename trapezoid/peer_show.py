"""What is known about one partner: the trust that is stored, its stubs, and how they were certified."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

from catalogue_client.core.location import Location
from catalogue_client.core.state import TrustState
from catalogue_client.http_fetcher import HttpFetcher
from catalogue_client.trust_store import TrustStore
from federation.discovery.dialler import Dialler
from federation.discovery.name_client import DnsClient
from msg_node.settings.model import Settings
from msg_node.storage.file_checks import read_file
from msg_node.wiring.meaning import allowed_addresses, client_context, peer_entries
from msg_node.wiring.peer_stubs import stub_choices
from protofly import limits
from protofly.documents import decode_envelope, decode_live, decode_manifest, decode_root, document_sha256
from protofly.errors import Code, HostError, PeerError
from protofly.signatures import KeyRecord
from stubkit.certification import REPORT_BYTES, decoded, report_path
from trapezoid.peer_check.network_steps import find_location
from trapezoid.peer_check.report import Report

DEADLINE_SECONDS = 10.0


class PeerShow:
    """Asks the site of one domain, under the connection rules of the settings. Nothing is stored or trusted by it.

    Attributes:
        location: Where the domain's documents are asked for.
    """

    def __init__(self, settings: Settings, domain: str, state: TrustState | None) -> None:
        self._names = DnsClient(settings.discovery.nameservers)
        dialler = Dialler(self._names, allow_addresses=allowed_addresses(settings))
        self._fetcher = HttpFetcher(dialler, client_context(settings))
        self._entry = peer_entries(settings).get(domain)
        self.location = Location.of(domain)
        self._domain = domain
        self._state = state

    async def stubs(self) -> list[str]:
        """One line for each stub.

        Raises:
            PeerError, TransportError: The site is not reached, or its documents cannot be read.
        """
        self.location = (
            await find_location(Report(self._domain), self._names, self._domain, self._entry) or self.location
        )
        state = self._state
        names = sorted(state.stubs) if state is not None else await self._published_names()
        return [f"{name}: {await self._line(name)}" for name in names]

    async def _line(self, name: str) -> str:
        try:
            return await self._certification(name)
        except HostError as exc:
            return f"not asked: {exc}"

    async def _published_names(self) -> list[str]:
        live = decode_live(decode_envelope(await self._fetch("", limits.LIVE_BYTES)).payload, domain=self._domain)
        return sorted({stub.name for stub in live.stubs.values()})

    async def _certification(self, name: str) -> str:
        envelope = await self._fetch(f"/manifest/{name}", limits.MANIFEST_BYTES)
        mark = self._state.stubs.get(name) if self._state is not None else None
        if mark is not None and document_sha256(envelope) != mark.manifest_sha256:
            return "a newer manifest is published than the one that was accepted last"
        manifest = decode_manifest(decode_envelope(envelope).payload, domain=self._domain)
        about = f"version {manifest.version}, sha256 {manifest.module.sha256}"
        try:
            raw = await self._fetch(f"/certification/{name}", REPORT_BYTES)
        except PeerError as exc:
            if exc.code is not Code.HTTP_STATUS:
                raise
            return f"{about}; no certification is published"
        report, is_signed = decoded(raw, self._package_keys())
        if report.sha256 != manifest.module.sha256:
            return f"{about}; the published certification is about another module"
        whose = "signed by the domain" if is_signed else "NOT SIGNED by keys of the domain that are stored here"
        return f"{about}; it says of itself: {report.summary}, {whose}, {report.made}"

    def _package_keys(self) -> dict[str, KeyRecord]:
        """The keys by which the domain signs packages, as the stored root says."""
        if self._state is None or self._state.is_pending:
            return {}
        root = decode_root(decode_envelope(self._state.root).payload, domain=self._domain)
        return {key_id: root.keys[key_id] for key_id in root.roles.pkg.keys if key_id in root.keys}

    async def _fetch(self, path: str, max_bytes: int) -> bytes:
        url = self.location.well_known_url + path
        fetched = await self._fetcher.fetch(
            url,
            domain=self._domain,
            max_bytes=max_bytes,
            deadline_seconds=DEADLINE_SECONDS,
            connect_to=self.location.connect_to_for(url),
        )
        return fetched.body


async def show(settings: Settings, store: TrustStore, domain: str, facts: dict[str, object]) -> dict[str, object]:
    """The stored facts of a domain, with its stubs: the one that the settings choose, else those that it publishes.

    What cannot be read or asked says so in its line.
    """
    choice = next((one for one in stub_choices(settings) if one.domain == domain and one.file is not None), None)
    if choice is not None and choice.file is not None:
        return {**facts, "level": "operator", "stubs": [f"{choice.file}: {_said_beside(choice.file)}"]}
    asked = PeerShow(settings, domain, store.load(domain))
    try:
        stubs = await asked.stubs()
    except HostError as exc:
        stubs = [f"not asked: {exc}"]
    return {**facts, "site": urlsplit(asked.location.well_known_url).netloc, "stubs": stubs or ["none"]}


def _said_beside(module: Path) -> str:
    """What the report beside a module of the operator's says. Its signature is not checked: whose would it be?"""
    file = report_path(module)
    if not file.exists():
        return f"no certification at {file}"
    try:
        report, _ = decoded(read_file(file))
        if report.sha256 != hashlib.sha256(read_file(module)).hexdigest():
            return f"{file} is about another module"
    except HostError as exc:
        return f"not read: {exc}"
    return f"{file} says of it: {report.summary}, signature not checked, {report.made}"
