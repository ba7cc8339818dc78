"""The document scenarios, played against a running node: at first contact, and as updates of what it has accepted.

A partner gives a token; the node has to fetch and verify the documents of its domain before it can check that. Stubs
are fetched when a runtime writes to the partner. Updates of stubs are in `stubs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from interop.partner.core.scenarios import SCENARIOS, Edition, Scenario
from interop.partner.model import PartnerCase, PartnerStep
from interop.partner.steps import (
    REFUSED_CODES,
    Answered,
    Gets,
    Hosts,
    NotHosted,
    PausesUntilRefresh,
    Publishes,
    Refused,
    Visits,
    VisitsWithNewKey,
    WasAsked,
    Welcomed,
    Writes,
)

_NOT_PLAYED: Final = {
    "envelope-p256": "P-256 is optional",
    "live-frozen": "it takes days",
    "root-many-rotations": "it may take longer than a handshake",
    "live-equal-same-bytes": "there is nothing to be seen from outside",
    "root-skips-a-version": "the node is refused a file, which any answer fits",
}


def _first_contact(edition: Edition) -> tuple[PartnerStep, ...]:
    if edition.scope == "stub":
        if not edition.code:
            return (Publishes(edition.change), Writes(is_request=True), Hosts(), Gets())
        refused = (Answered(REFUSED_CODES), WasAsked(), NotHosted())
        return (Publishes(edition.change), Writes(is_request=True), *refused)
    if edition.code:
        return (Publishes(edition.change), Visits(), Refused(), WasAsked())
    return (Publishes(edition.change), Visits(), Welcomed())


def _update(edition: Edition, before: int) -> Iterator[PartnerStep]:
    """One more edition of documents: refused or accepted by what a token with a new key gets."""
    yield PausesUntilRefresh()
    yield Publishes(edition.change, adds_key=True)
    yield VisitsWithNewKey()
    if not edition.code:
        yield Welcomed()
        return
    yield Refused()
    yield WasAsked(times=before + 1)
    if edition.code != "broken-trust":
        yield Visits()
        yield Welcomed()


def _steps(scenario: Scenario) -> tuple[PartnerStep, ...]:
    first, *updates = scenario.editions
    if not updates:
        return _first_contact(first)
    steps: list[PartnerStep] = [Visits(), Welcomed()]
    for number, edition in enumerate(updates, 1):
        steps += _update(edition, number)
    return tuple(steps)


CASES: Final = tuple(
    PartnerCase(
        id=scenario.id,
        group="documents",
        section=scenario.section,
        says=scenario.says,
        steps=_steps(scenario),
        waits=len(scenario.editions) - 1,
    )
    for scenario in SCENARIOS
    if scenario.id not in _NOT_PLAYED and (scenario.is_first_contact or scenario.editions[0].scope == "documents")
)
