"""How the node finds a partner: names, addresses, certificates, and sites that misbehave."""

from __future__ import annotations

import gzip
from typing import Final

from interop.partner.domain import SiteFault
from interop.partner.model import PartnerCase, PartnerStep
from interop.partner.steps import (
    REFUSED_CODES,
    Answered,
    Answers,
    Behaves,
    Gets,
    Hosts,
    NotAsked,
    NotHosted,
    Refused,
    Sent,
    Visits,
    WasAsked,
    Welcomed,
    Writes,
)
from interop.partner.terms import BARRED

_HUGE: Final = 1 << 30
_CUT_BYTES: Final = 4 << 20
"""What may be on its way when a reader of 50 KiB ends the connection."""
_ENTRY: Final = "_rethink-mn.{b}"
_SERVICE: Final = "_rethink-mn._tcp.{b}"


def _case(id_: str, section: str, says: str, *steps: PartnerStep, domain: str = "") -> PartnerCase:
    return PartnerCase(id=id_, group="discovery", section=section, says=says, steps=steps, domain=domain)


def _site(id_: str, section: str, says: str, fault: SiteFault, *more: PartnerStep) -> PartnerCase:
    refused = (Answered(REFUSED_CODES), WasAsked(), NotHosted())
    return _case(id_, section, says, Behaves(fault), Writes(is_request=True), *refused, *more)


CASES: Final = (
    _case(
        "discovery-of-a-partner",
        "2.4",
        "a message to a domain that was never met finds it, runs its stub, and arrives",
        Writes(is_request=True),
        Hosts(),
        Gets(),
        Answers(),
        Answered(),
    ),
    _case(
        "discovery-of-a-visitor",
        "2.7, step 4",
        "a partner that connects is found by its own documents",
        Visits(),
        Welcomed(),
        WasAsked(),
    ),
    _case(
        "discovery-barred",
        "2.4",
        "whether a domain may be talked with is asked before any name is looked up",
        Writes(is_request=True),
        Answered(REFUSED_CODES),
        NotAsked(names=True),
        NotHosted(),
        domain=BARRED,
    ),
    _case(
        "discovery-barred-visitor",
        "2.7, step 4",
        "a domain that policy keeps out is refused when it connects",
        Visits(),
        Refused(),
        domain=BARRED,
    ),
    *(
        _site(
            f"discovery-redirect-{status}",
            "2.4, step 3",
            f"a redirect ({status}) is an error and is not followed",
            SiteFault(status=status, headers={"Location": "https://elsewhere.partner.example/"}, body=b""),
        )
        for status in (301, 302, 307, 308)
    ),
    _site("discovery-not-found", "2.4, step 3", "only 200 counts: 404 is an error", SiteFault(status=404, body=b"")),
    _site("discovery-server-error", "2.4, step 3", "only 200 counts: 500 is an error", SiteFault(status=500, body=b"")),
    _site(
        "discovery-huge",
        "7, attack 10",
        "a document of a gigabyte is cut at its limit",
        SiteFault(body=b"", body_bytes=_HUGE),
        Sent(_CUT_BYTES),
    ),
    _site(
        "discovery-drip",
        "7, attack 10",
        "a document that drips in by single bytes is given up in time",
        SiteFault(body=b"{", body_bytes=1000, pause_seconds=1.0),
    ),
    _site(
        "discovery-gzip-bomb",
        "7, attack 10",
        "a compressed document is refused, or cut at its limit",
        SiteFault(body=gzip.compress(bytes(64 << 20)), headers={"Content-Encoding": "gzip"}),
    ),
    _case(
        "discovery-wrong-certificate",
        "7, attack 12",
        "a certificate for another name is refused before anything is asked",
        Behaves(certificate="evil.partner.example"),
        Writes(is_request=True),
        Answered(REFUSED_CODES),
        NotAsked(),
        NotHosted(),
    ),
    _case(
        "discovery-target-certificate",
        "7, attack 12",
        "a certificate for the host of the record, but not for the domain, is refused",
        Behaves(certificate="mn.{b}"),
        Writes(is_request=True),
        Answered(REFUSED_CODES),
        NotAsked(),
        NotHosted(),
    ),
    _case(
        "discovery-wildcard-certificate",
        "7, attack 12",
        "a wildcard of the wrong level is refused",
        Behaves(certificate="*.example"),
        Writes(is_request=True),
        Answered(REFUSED_CODES),
        NotAsked(),
        NotHosted(),
    ),
    _case(
        "discovery-declined",
        "2.4",
        "a target of `.` says that there is no service",
        Behaves(records={_ENTRY: ["SVCB 0 ."], _SERVICE: ["SRV 0 0 0 ."]}),
        Writes(is_request=True),
        Answered(REFUSED_CODES),
        NotAsked(),
        NotHosted(),
    ),
    _case(
        "discovery-mixed-addresses",
        "7, attack 5",
        "one refused address refuses the whole answer",
        Behaves(records={"{b}": ["A 127.0.0.1", "A 10.1.2.3"]}),
        Writes(is_request=True),
        Answered(REFUSED_CODES),
        NotAsked(),
        NotHosted(),
    ),
    *(
        _case(
            f"discovery-address-{word}",
            "7, attacks 3 and 4",
            f"{address} is refused",
            Behaves(records={"{b}": [f"{kind} {address}"]}),
            Writes(is_request=True),
            Answered(REFUSED_CODES),
            NotAsked(),
            NotHosted(),
        )
        for word, kind, address in (
            ("metadata", "A", "169.254.169.254"),
            ("private", "A", "192.168.1.1"),
            ("zero", "A", "0.0.0.0"),  # noqa: S104 - an answer, not a listener
            ("mapped", "AAAA", "::ffff:10.0.0.1"),
            ("six-to-four", "AAAA", "2002:a00:1::1"),
        )
    ),
    _case(
        "discovery-mail-port",
        "7, attack 8",
        "port 25 is refused",
        Behaves(records={_ENTRY: ["SVCB 1 {b}. port=25"], _SERVICE: ["SRV 0 0 25 {b}."]}),
        Writes(is_request=True),
        Answered(REFUSED_CODES),
        NotAsked(),
        NotHosted(),
    ),
    _case(
        "discovery-alias-loop",
        "7, attack 8",
        "an alias that leads to itself ends",
        Behaves(records={_ENTRY: ["SVCB 0 _rethink-mn.{b}."], _SERVICE: [], "{b}": []}),
        Writes(is_request=True),
        Answered(REFUSED_CODES),
        NotAsked(),
        NotHosted(),
    ),
    _case(
        "discovery-unproved-pin",
        "7, attack 9",
        "a fingerprint in DNS without DNSSEC is a hint, and binds nothing",
        Behaves(
            records={
                _ENTRY: ['TXT "v=rmn1; id=1; k=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"', "SVCB 1 {b}. port={site}"]
            }
        ),
        Visits(),
        Welcomed(),
    ),
)
