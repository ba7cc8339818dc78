"""The stubs that the operator chose for foreign domains, and what the settings hand to any stub.

A chosen stub wins over what its domain publishes. Its digest is pinned when it is used first; another module of the
same name is refused until the operator approves it. Source: message specification, section 18.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from catalogue_client.core.operator_stub import ModuleStatement, make_operator_stub
from federation.core.stub_grant import WHOLE_GRANT, StubGrant
from federation.stubs.catalogue_scripts import CatalogueScript, CatalogueScripts
from protofly.documents import Endpoint
from protofly.errors import Code, PeerError, SettingsError
from protofly.limits import MODULE_BYTES
from protofly.stub import VerifiedStub
from sandbox.core.budget import Budget
from sandbox.core.module_check import StubKind, inspect_module
from stubs_cache.stub_pins import StubPins

logger = logging.getLogger("federation")

ENDPOINT_NAME: Final = "mn"
"""Name of the only endpoint of a chosen stub."""

CheckConfiguration = Callable[[Mapping[str, object], Mapping[str, object]], None]
"""Holds settings (second) against a JSON Schema (first); raises PeerError, saying what does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StubChoice:
    """The settings about the stub of one domain.

    Attributes:
        domain: The foreign domain; for a connector the host of its service.
        kind: What the module has to be.
        file: The module that the operator chose; None: what the domain publishes.
        script: The script of an original catalogue that the operator pinned, in place of `file`.
        endpoint: URL of the only place that a chosen stub may connect to.
        configuration: What `start` hands to the stub; nothing secret.
        grant: What the stub may do and spend at most.
    """

    domain: str
    kind: StubKind = "protostub"
    file: Path | None = None
    script: CatalogueScript | None = None
    endpoint: str = ""
    configuration: Mapping[str, object] = field(default_factory=dict)
    grant: StubGrant = WHOLE_GRANT


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTerms:
    """Settings for the instances of one verified stub: configuration, permissions, ceilings."""

    configuration: Mapping[str, object]
    grant: StubGrant
    budget: Budget


class ChosenStubs:
    """The operator's settings about stubs, by domain.

    Args:
        choices: The settings; a domain without one gets the defaults.
        pins: Digests of chosen modules.
        scripts: Gets pinned scripts; None where there are none.
        check: Holds a configuration against the schema of a stub.
        budget: What this node allows any stub to spend.
    """

    def __init__(
        self,
        choices: Iterable[StubChoice],
        pins: StubPins,
        *,
        check: CheckConfiguration,
        scripts: CatalogueScripts | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._choices = {one.domain: one for one in choices}
        self._pins = pins
        self._check = check
        self._scripts = scripts
        self._budget = Budget() if budget is None else budget

    def choose(self, choices: Iterable[StubChoice]) -> frozenset[str]:
        """Take other settings over, for instances that start from now on; returns domains whose settings differ.

        A domain whose stub is chosen now, or no more, needs another link.
        """
        before, self._choices = self._choices, {one.domain: one for one in choices}
        return frozenset(
            domain
            for domain in before.keys() | self._choices.keys()
            if (before.get(domain) or StubChoice(domain=domain)) != self._of(domain)
        )

    def spend(self, budget: Budget) -> bool:
        """Let instances that start from now on spend so much; returns whether it is another budget."""
        before, self._budget = self._budget, budget
        return before != budget

    def _of(self, domain: str) -> StubChoice:
        return self._choices.get(domain) or StubChoice(domain=domain)

    def is_chosen(self, domain: str) -> bool:
        """True when the operator chose the stub of a domain."""
        choice = self._choices.get(domain)
        return choice is not None and (choice.file is not None or choice.script is not None)

    async def load(self, domain: str) -> VerifiedStub:
        """The chosen stub of a domain; the digest of a file is pinned from now on.

        Raises:
            PeerError: The module breaks the contract, or another one is pinned (DIGEST_NOT_APPROVED); a catalogue
                answered nonsense.
            TransportError: A catalogue did not answer.
            HostError: SETTINGS when the file cannot be read, STORAGE when the pin cannot be.
        """
        choice = self._choices[domain]
        if choice.script is not None and self._scripts is not None:
            return await self._scripts.load(domain, choice.script, Endpoint(name=ENDPOINT_NAME, url=choice.endpoint))
        return await trio.to_thread.run_sync(self._load, choice)

    async def look_for_changes(self, domains: Iterable[str]) -> None:
        """Ask the catalogues of these domains, once a day, whether they still serve the pinned scripts; log others."""
        for domain in domains:
            choice = self._choices.get(domain)
            if choice is not None and choice.script is not None and self._scripts is not None:
                await self._scripts.look_for_change(domain, choice.script)

    def terms(self, stub: VerifiedStub) -> InstanceTerms:
        """Return what holds for the instances of a stub.

        Raises:
            PeerError: STUB_CONFIGURATION when its configuration does not fit the schema of its manifest,
                STUB_NEEDS_MORE when its manifest needs more than it may have.
        """
        choice = self._of(stub.domain)
        configuration = self._configuration(choice, stub)
        return InstanceTerms(
            configuration=configuration, grant=choice.grant, budget=choice.grant.budget(stub.manifest, self._budget)
        )

    def _configuration(self, choice: StubChoice, stub: VerifiedStub) -> Mapping[str, object]:
        configuration = choice.configuration
        if stub.manifest.configuration:
            try:
                self._check(stub.manifest.configuration, configuration)
            except PeerError as exc:
                raise PeerError(
                    Code.STUB_CONFIGURATION, f"configuration of {stub.name}: {exc.detail}", domain=stub.domain
                ) from exc
        return configuration

    def _load(self, choice: StubChoice) -> VerifiedStub:
        stub = read_choice(choice)
        pinned = self._pins.read(choice.domain)
        if not pinned:
            self._pins.write(choice.domain, stub.module_sha256)
            logger.warning(
                "the stub %s %s for %s is pinned: sha256 %s",
                stub.name,
                stub.version,
                choice.domain,
                stub.module_sha256,
                extra={"domain": choice.domain},
            )
        elif pinned != stub.module_sha256:
            detail = f"{choice.file} is not the module that was pinned; `trapezoid peer approve` accepts it"
            raise PeerError(Code.DIGEST_NOT_APPROVED, detail, domain=choice.domain)
        return stub


def read_choice(choice: StubChoice) -> VerifiedStub:
    """Read and check the module of a choice, whatever is pinned.

    Raises:
        PeerError: It breaks the contract.
        SettingsError: The file cannot be read.
    """
    assert choice.file is not None
    try:
        with choice.file.open("rb") as file:
            module = file.read(MODULE_BYTES + 1)
    except OSError as exc:
        raise SettingsError(f"{choice.file}: {exc.strerror}") from exc
    if len(module) > MODULE_BYTES:
        raise PeerError(Code.MODULE_LIMITS, f"{choice.file} has more than {MODULE_BYTES:,} bytes", domain=choice.domain)
    facts = inspect_module(module)
    if facts.kind != choice.kind:
        raise PeerError(Code.STUB_KIND, f"{choice.file} is a {facts.kind}, not a {choice.kind}", domain=choice.domain)
    said = ModuleStatement(
        name=facts.name, version=facts.version, configuration=facts.configuration, events=facts.events
    )
    return make_operator_stub(choice.domain, module, said, Endpoint(name=ENDPOINT_NAME, url=choice.endpoint))
