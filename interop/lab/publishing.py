"""What goes wrong with the documents and the stub of a domain: flawed documents, updates, broken ones, revocations."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import httpx
import trio

from interop.domain_files import HOST
from interop.domain_folders import command
from interop.hostile.zoo import hostile_stub
from interop.lab.actors import Notes
from interop.lab.core.flawed import flawed
from interop.lab.core.scene import Fault
from interop.lab.core.seen import Lure, Release
from interop.lab.impostors import Fetched, impersonate, stand_in_site
from interop.lab.members import Members
from interop.lab.node_operator import operate
from interop.partner.core.modules import marked
from interop.partner.core.publication import WELL_KNOWN, payload_of
from protofly.errors import Code, SettingsError, TransportError
from protofly.signatures import SigningKey

_PUBLISHED_SECONDS: Final = 20.0
"""A node looks every five seconds whether there is something new to publish."""
_LOOK_SECONDS: Final = 0.25
_SEED_BYTES: Final = 32


class Publishing:
    """Has domains publish what they should not, and other nodes look at it."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._context = members.folders.authority.client_context()
        self._good: dict[str, str] = {}
        """Digest of the newest module of each domain that is not broken, once it published another one."""
        self._locks: dict[str, trio.Lock] = {}

    @asynccontextmanager
    async def flawed_documents(self, fault: Fault, notes: Notes) -> AsyncIterator[None]:
        """Serve flawed documents of a domain to all others; they name an endpoint where an impostor listens.

        The others lose their lines, and those of the domain itself are cut, so that they have to connect. Then they are
        asked to look: who believes what it reads connects to the impostor.
        """
        domain = fault.domain or ""
        lines = {pair[0]: line for pair, line in self._members.lines.items() if pair[1] == domain}
        own_lines = [line for pair, line in self._members.lines.items() if pair[0] == domain]
        named, site = self._members.impostor_ports[domain], self._members.folders.ports[domain].site
        async with trio.open_nursery() as nursery:
            for reader, line in lines.items():
                lure = Lure(reader=reader, what=f"the {fault.does.replace('-', ' ')} of {domain}", at=0.0)
                line.diverted[named] = await nursery.start(
                    impersonate, self._certificate_of(domain), partial(_note, notes, replace(lure, is_believed=True))
                )
                line.diverted[site] = await nursery.start(
                    stand_in_site, self._certificate_of(domain), partial(self._answer, fault, notes, lure)
                )
            try:
                for line in own_lines:
                    line.cut()
                for line in lines.values():
                    line.drop()
                await self._have_looked(domain)
                yield
            finally:
                for line in lines.values():
                    line.diverted.clear()
                    line.drop()
                for line in own_lines:
                    line.heal()
                nursery.cancel_scope.cancel()

    async def _answer(self, fault: Fault, notes: Notes, lure: Lure, path: str) -> Fetched:
        """What the stand-in of a site serves: what the genuine one does, except for the live document."""
        domain = fault.domain or ""
        status, kind, body = await self._fetch(domain, path)
        if path != WELL_KNOWN or status != httpx.codes.OK:
            return status, kind, body
        notes.seen.lures.append(replace(lure, at=notes.now()))
        port = self._members.impostor_ports[domain]
        return status, kind, flawed(fault.does, body, self._signer(fault), now=time.time(), port=port)

    def _signer(self, fault: Fault) -> SigningKey:
        [file] = self._members.folders.folders[fault.domain or ""].keys.glob("live-*.pem")
        if fault.does == "forged-documents":
            return SigningKey.from_seed(file.stem, b"\x01" * _SEED_BYTES)
        return SigningKey.from_pem(file.stem, file.read_bytes())

    def _certificate_of(self, domain: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._members.folders.authority.certificate_for(domain))
        return context

    async def _fetch(self, domain: str, path: str) -> Fetched:
        """What the genuine site of a domain answers. Raises TransportError."""
        port = self._members.folders.ports[domain].site
        try:
            async with httpx.AsyncClient(verify=self._context, trust_env=False) as client:
                response = await client.get(f"https://{HOST}:{port}{path}", headers={"Host": f"{domain}:{port}"})
        except httpx.HTTPError as exc:
            raise TransportError(Code.NOT_CONNECTED, f"site of {domain}: {exc!r}", phase="connect") from exc
        return response.status_code, response.headers.get("content-type", ""), response.content

    async def _have_looked(self, domain: str) -> None:
        """Have every other node of ours ask for the documents of a domain now, as its operator can."""
        async with trio.open_nursery() as nursery:
            for other in self._members.scene.our_domains:
                for node in self._members.nodes[other] if other != domain else ():
                    nursery.start_soon(operate, node.folder.data, "peer refresh", {"domain": domain})

    async def release(self, fault: Fault, notes: Notes) -> None:
        """Publish another stub of a domain, as `trapezoid publish` does, and have the others look at it.

        Raises:
            SettingsError: It could not be published.
            TransportError: The site of the domain does not answer.
        """
        async with self._locks.setdefault(fault.domain or "", trio.Lock()):
            await self._release(fault, notes)

    async def _release(self, fault: Fault, notes: Notes) -> None:
        domain = fault.domain or ""
        before, module = await self._published(domain)
        module = self._good.setdefault(domain, module)
        folder = self._members.folders.folders[domain]
        is_broken = fault.does == "broken-update"
        new = folder.path / f"{fault.does}.wasm"
        genuine = (folder.site / "module" / f"{module}.wasm").read_bytes()
        new.write_bytes(hostile_stub(fault.stub).module if is_broken else marked(genuine, f"release after {module}"))
        revoke = ["--revoke", module] if fault.does == "revoked-stub" else []
        places = ["--keys", str(folder.keys), "--site", str(folder.site)]
        await command("publish", domain, str(new), *places, *revoke, "--no-check", "--json")
        with trio.move_on_after(_PUBLISHED_SECONDS):
            newer = published = before
            while newer == before:
                await trio.sleep(_LOOK_SECONDS)
                with suppress(TransportError):
                    newer, published = await self._published(domain)
        if newer == before:
            raise SettingsError(f"{domain} does not serve what was published")
        await self._have_looked(domain)
        self._good[domain] = module if is_broken else published
        release = Release(
            domain=domain,
            what=fault.title,
            at=notes.now(),
            wanted=self._good[domain],
            revoked=module if revoke else "",
        )
        notes.seen.releases.append(release)

    async def _published(self, domain: str) -> tuple[str, str]:
        """Digests of the manifest and of the module that a domain serves now. Raises TransportError."""
        [stub] = (await self._document(domain, WELL_KNOWN))["stubs"].values()
        manifest = await self._document(domain, f"{WELL_KNOWN}/manifest/{stub['name']}")
        return str(stub["manifest_sha256"]), str(manifest["module"]["sha256"])

    async def _document(self, domain: str, path: str) -> dict[str, Any]:
        status, _, body = await self._fetch(domain, path)
        if status != httpx.codes.OK:
            raise TransportError(Code.BAD_REPLY, f"site of {domain}: HTTP {status} for {path}")
        return json.loads(payload_of(body))  # type: ignore[no-any-return]


def _note(notes: Notes, lure: Lure, _is_accepted: bool) -> None:
    notes.seen.lures.append(replace(lure, at=notes.now()))
