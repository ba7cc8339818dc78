"""Stubs straight from original catalogues: scripts that nobody signed, run because the operator pinned their digest.

Only the code counts, as only its digest is pinned: what a descriptor says of itself is neither believed nor handed to
the script. The pinned script is kept, so that the stub runs on whatever its catalogue serves later; other code behind
the same name is never run, and the operator learns of it.

Source: data formats, sections 2.3 to 2.7; trust and hosts, section 3.5 (level `unsigned`); docs/javascript-stubs.md.
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from catalogue_client.client import CatalogueClient
from catalogue_client.core.operator_stub import ModuleStatement, make_operator_stub
from protofly.documents import Endpoint, TrustLevel
from protofly.errors import Code, HostError, PeerError, SettingsError, TransportError
from protofly.stub import VerifiedStub
from sandbox.core.module_check import inspect_module
from sandbox.core.script_package import Script, package_script
from stubs_cache.cache import StubsCache

logger = logging.getLogger("federation")

LOOK_SECONDS: Final = 86_400.0
_VERSION_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueScript:
    """The script of one catalogue entry, as the operator pinned it.

    Attributes:
        authority: Host, and port unless 443, of the catalogue.
        name: Of the entry.
        sha256: Hex digest of the code, decoded.
    """

    authority: str
    name: str
    sha256: str

    @property
    def url(self) -> str:
        """The URL of the descriptor."""
        return f"https://{self.authority}/.well-known/protocolstub/{self.name}"


class CatalogueScripts:
    """Gets pinned scripts: from the stubs cache, else from their catalogue.

    Args:
        client: Fetches descriptors and source packages.
        cache: Keeps scripts by their digest.
        interpreter: The module that runs them.
    """

    def __init__(self, client: CatalogueClient, cache: StubsCache, interpreter: Path) -> None:
        self._client = client
        self._cache = cache
        self._interpreter = interpreter
        self._looked_at: dict[str, float] = {}

    async def load(self, domain: str, script: CatalogueScript, endpoint: Endpoint) -> VerifiedStub:
        """The stub that a pinned script is, with the interpreter.

        Raises:
            PeerError: DIGEST_NOT_APPROVED: the catalogue serves other code; what is wrong with its answer;
                MODULE_LIMITS; UNSIGNED_REFUSED: the domain signs what it publishes.
            TransportError: The catalogue did not answer.
            SettingsError: The interpreter is not installed.
        """
        text = await self._cache.get_module(script.sha256)
        if text is None:
            text = await self._fetched(domain, script)
            try:
                await self._cache.put_module(text)
            except HostError as exc:
                logger.warning("the stubs cache takes nothing: %s", exc)
        return await trio.to_thread.run_sync(partial(self._packaged, domain, script, text, endpoint))

    async def look_for_change(self, domain: str, script: CatalogueScript) -> None:
        """Ask a catalogue, at most once a day, whether it still serves the pinned script; log it if it does not."""
        if time.monotonic() - self._looked_at.get(domain, float("-inf")) < LOOK_SECONDS:
            return
        try:
            await self._fetched(domain, script)
        except TransportError as exc:
            logger.info("the catalogue of %s cannot be asked: %s", domain, exc, extra={"domain": domain})
        except HostError as exc:
            logger.warning("the stub of %s stays as pinned: %s", domain, exc, extra={"domain": domain})

    async def _fetched(self, domain: str, script: CatalogueScript) -> bytes:
        self._looked_at[domain] = time.monotonic()
        _, text = await self._client.read_unsigned(domain, script.authority, script.name)
        found = hashlib.sha256(text).hexdigest()
        if found != script.sha256:
            detail = f"{script.url} serves sha256 {found} now, the settings pin {script.sha256}"
            raise PeerError(Code.DIGEST_NOT_APPROVED, detail, domain=domain)
        return text

    def _packaged(self, domain: str, script: CatalogueScript, text: bytes, endpoint: Endpoint) -> VerifiedStub:
        try:
            interpreter = self._interpreter.read_bytes()
        except OSError as exc:
            raise SettingsError(f"{self._interpreter}: {exc.strerror}") from exc
        made = Script(
            text=text,
            file=f"{script.name}.js",
            name="catalogue-" + script.name.replace(".", "-")[:48],
            version=script.sha256[:_VERSION_DIGITS],
            http=(endpoint.name,) if endpoint.url.startswith("http") else (),
        )
        module = package_script(made, interpreter)
        facts = inspect_module(module)
        said = ModuleStatement(
            name=facts.name, version=facts.version, configuration=facts.configuration, events=facts.events
        )
        return make_operator_stub(domain, module, said, endpoint, level=TrustLevel.UNSIGNED)
