"""A partner beside a node of ours: no finding, and one for each node with a mistake in its protocol.

A table of mistakes and findings is in docs/partner.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from interop.partner.cases import CASES, GROUPS
from interop.partner.prepare import partner_domains
from interop.partner.run import PartnerReport, play_all, running_partner
from interop.partner.steps import Publishes, Says, Sends, Visits, Writes
from interop.partner.terms import TERMS_FILE, case_domain
from protofly.address import valid_domain
from tests.interop.lab.mutant_node import BORDER_MUTANTS, MUTANTS

ROOT = Path(__file__).parents[3]
LIMIT_SECONDS = 280.0
QUICK = (
    "own-live-signed",
    "own-manifest-signed",
    "own-module",
    "discovery-of-a-partner",
    "discovery-barred",
    "discovery-redirect-302",
    "discovery-mixed-addresses",
    "envelope-unknown-key",
    "live-valid-ten-years",
    "module-changed",
    "handshake-visitor",
    "token-forged",
    "token-for-another-connection",
    "welcome-forged",
    "frames-messages-instead-of-token",
    "sender-of-a-third",
    "sender-from-the-stub",
    "flag-sessiontoken",
    "inbound-repeated-after-cut",
    "outbound-repeated-after-cut",
)
"""One case of each idea."""
FOUND_BY = {
    "wrong-sender-believed": "sender-of-a-third",
    "under-way-forgotten-with-the-line": "outbound-repeated-after-cut",
    "seen-numbers-forgotten": "inbound-repeated-number",
    "newest-first-after-a-wait": "outbound-order",
    "forged-tokens-believed": "token-forged",
    "tokens-for-other-endpoints-believed": "token-for-another-endpoint",
    "flags-of-others-left": "flag-sessiontoken",
    "unsigned-documents-believed": "envelope-unknown-key",
    "older-documents-believed": "live-rollback",
    "internal-addresses-connected": "discovery-mixed-addresses",
    "revoked-stubs-go-on": "stub-revoked",
    "tokens-for-other-domains-believed": "token-for-another-domain",
    "tokens-for-other-connections-believed": "token-for-another-connection",
    "tokens-of-other-challenges-believed": "token-of-another-challenge",
    "old-tokens-believed": "token-stale",
    "revoked-keys-believed": "token-revoked-key",
    "names-below-believed": "sender-of-a-subdomain",
    "sources-not-looked-at": "source-of-a-third",
    "loops-go-on": "hops-loop",
    "forgers-stay": "sender-third-forgery",
    "aliases-believed-unheard": "alias-claimed",
    "guests-need-no-invitation": "guest-without-a-proof",
    "updates-reorder": "stub-update",
}
AT_ONCE = ("wrong-sender-believed", "unsigned-documents-believed")
"""Mistakes that the tests of every change look for."""


async def report_of(folder: Path, wanted: Sequence[str], *, parallel: int = 8) -> PartnerReport:
    cases = [case for case in CASES if not wanted or case.id in wanted]
    assert len(cases) == len(wanted or CASES)
    with trio.fail_after(LIMIT_SECONDS):
        async with running_partner(folder) as partner:
            return await play_all(partner, cases, parallel=parallel)


def findings(report: PartnerReport) -> dict[str, str]:
    return {one.case.id: f"step {one.step}: {one.problem}" for one in report.findings}


def test_cases_have_their_own_domains_chapters_and_rules_that_exist() -> None:
    assert len({case.id for case in CASES}) == len(CASES) > 250
    assert {case.group for case in CASES} == set(GROUPS)
    assert all(valid_domain(name) == name for name in partner_domains())
    assert all(case_domain(case.id) in partner_domains() or case.domain for case in CASES)
    pages = {
        case.section for case in CASES if not re.fullmatch(r"[2-7]\.?\d?(, (steps?|attacks?) [\d and]+)?", case.section)
    }
    for section in pages:
        page, _, number = section.partition(", ")
        text = (ROOT / (page if "/" in page else f"docs/spec/{page}")).read_text(encoding="utf-8")
        assert not number or re.search(rf"^#+ {re.escape(number)}\.? ", text, re.MULTILINE), section


def test_every_case_ends_with_a_check() -> None:
    acts = (Publishes, Says, Sends, Visits, Writes)
    assert [case.id for case in CASES if isinstance(case.steps[-1], acts)] == []


@pytest.mark.long
async def test_a_partner_finds_nothing_at_our_node(partner_folder: Path) -> None:
    assert findings(await report_of(partner_folder, QUICK)) == {}


@pytest.mark.endurance
async def test_no_case_of_a_partner_finds_anything_at_our_node(partner_folder: Path) -> None:
    assert findings(await report_of(partner_folder, ())) == {}


async def check_found(folder: Path, mutant: str) -> None:
    """The case that has to find a mistake finds it, and an honest exchange is still possible."""
    terms = folder / TERMS_FILE
    genuine = terms.read_text()
    command = f'"{sys.executable}", "-m", "tests.interop.lab.mutant_node", "{mutant}", "serve"'
    terms.write_text(re.sub(r'(?m)^command = \[.*"serve"', f"command = [{command}", genuine))
    try:
        found = findings(await report_of(folder, (FOUND_BY[mutant], "discovery-of-a-visitor")))
    finally:
        terms.write_text(genuine)
    assert list(found) == [FOUND_BY[mutant]]


@pytest.mark.long
@pytest.mark.parametrize("mutant", AT_ONCE)
async def test_a_mistake_is_found(partner_folder: Path, monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    await check_found(partner_folder, mutant)


@pytest.mark.endurance
@pytest.mark.parametrize("mutant", [name for name in FOUND_BY if name not in AT_ONCE])
async def test_each_mistake_is_found(partner_folder: Path, monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    await check_found(partner_folder, mutant)


def test_every_mistake_at_the_border_has_its_case() -> None:
    assert set(BORDER_MUTANTS) <= set(FOUND_BY) <= set(BORDER_MUTANTS | MUTANTS)
