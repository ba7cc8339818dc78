"""The partner's stub in the node's sandbox: updates while messages are on their way, and revocation."""

from __future__ import annotations

from typing import Final

from interop.hostile.zoo import HostileStub, zoo
from interop.partner.core import modules
from interop.partner.core.publication import Publication
from interop.partner.model import PartnerCase, PartnerStep
from interop.partner.steps import (
    REFUSED_CODES,
    Answered,
    Cuts,
    Gets,
    HearsOnlyHonest,
    HostedEnds,
    Hosts,
    NotHosted,
    PausesUntilRefresh,
    Publishes,
    Visits,
    VisitsWithNewKey,
    Welcomed,
    Writes,
)

_REFRESHED: Final[tuple[PartnerStep, ...]] = (VisitsWithNewKey(), Welcomed(), Cuts())
"""A token with a new key makes the node fetch the documents again."""


def _update(domain: Publication) -> None:
    domain.stub(code=modules.marked(domain.module, domain.domain))


def _revoke(domain: Publication) -> None:
    domain.revoked = {"modules": [domain.module_reference()["sha256"]]}
    domain.live()


def _publishes(stub: HostileStub) -> Publishes:
    return Publishes(lambda domain: domain.stub(code=stub.module))


def _case(id_: str, section: str, says: str, *steps: PartnerStep, waits: int = 0) -> PartnerCase:
    return PartnerCase(id=id_, group="stubs", section=section, says=says, steps=steps, waits=waits)


CASES: Final = (
    _case(
        "stub-update",
        "3.6, step 6",
        "an update of the stub loses nothing, repeats nothing that was acknowledged, and keeps the order",
        Writes(1, count=5),
        Hosts(serial=1),
        Gets(1, count=5),
        PausesUntilRefresh(),
        Writes(6, count=5),
        Gets(6, count=5, acknowledges=False),
        Publishes(_update, adds_key=True),
        *_REFRESHED,
        Hosts(serial=2),
        Writes(11, count=5),
        Gets(6, count=10),
        waits=1,
    ),
    _case(
        "stub-revoked",
        "3.6",
        "a module that its domain revokes stops, and is not started again",
        Writes(1),
        Hosts(serial=1),
        Gets(1),
        PausesUntilRefresh(),
        Publishes(_revoke, adds_key=True),
        *_REFRESHED,
        HostedEnds(),
        Writes(2, is_request=True),
        Answered(REFUSED_CODES),
        NotHosted(),
        waits=1,
    ),
    *(
        _case(
            f"stub-{stub.name}",
            "4.2",
            f"a module that {stub.does} costs only its own domain's traffic, and who writes there gets an answer",
            _publishes(stub),
            Writes(1, is_request=True),
            Answered(REFUSED_CODES),
            NotHosted(),
            Visits(),
            Welcomed(),
            HearsOnlyHonest(),
        )
        for stub in zoo().values()
    ),
)
