"""Why a domain is not reached, for operators: once per change, cleaned, with advice that lowers no guard."""

from __future__ import annotations

import logging

import pytest

from federation.core import contact_trouble
from federation.core.contact_trouble import REMEMBERED_SECONDS, TEXT_CHARS, ContactTrouble, Side, cleaned
from federation.links.link_events import LOG_LINES_PER_MINUTE
from protofly.errors import Code
from tests.support.sides import Pair

NOW = 1_800_000_000.0


def test_the_word_of_the_far_side_stands_in_one_warning_with_what_to_do() -> None:
    trouble = ContactTrouble("b.example")
    assert trouble.met(Side.REFUSAL, "auth-policy", NOW) == (
        'b.example refuses our link: its word is "auth-policy"; they do not admit our domain: ask them for a [[peer]] '
        "entry that names us"
    )
    assert [trouble.met(Side.REFUSAL, "auth-policy", NOW + after) for after in (1, 60)] == ["", ""]
    assert "auth-policy" in trouble.text(NOW + 60)


def test_each_change_is_a_warning_and_a_repetition_with_other_numbers_is_none() -> None:
    trouble = ContactTrouble("b.example")
    met = [
        (Side.LINE, "connect-failed: 192.0.2.1:443 refused"),
        (Side.LINE, "connect-failed: 192.0.2.7:443 refused"),
        (Side.LINE, "discovery-backoff: connect-failed: connect; next attempt in 5 s"),
        (Side.LINE, "dns-failed: address"),
        (Side.REFUSAL, "come back in 5 minutes"),
        (Side.REFUSAL, "come back in 4 minutes"),
        (Side.REFUSAL, "never come back"),
        (Side.DOCUMENTS, "document-expired: live document ended"),
        (Side.OURS, "stub-forbidden: it floods us"),
    ]
    assert [bool(trouble.met(side, text, NOW)) for side, text in met] == [
        True,
        False,
        False,
        True,
        True,
        False,
        True,
        True,
        True,
    ]


def test_after_success_the_same_trouble_is_new() -> None:
    trouble = ContactTrouble("b.example")
    trouble.met(Side.LINE, "connect-failed", NOW)
    trouble.over()
    assert trouble.text(NOW) == ""
    assert trouble.met(Side.LINE, "connect-failed", NOW)


@pytest.mark.parametrize(
    "text", ["", "drained", "draining", "closed 1001", "closed", "bye", "timeout the far end is silent"]
)
def test_an_ordinary_end_is_no_refusal(text: str) -> None:
    trouble = ContactTrouble("b.example")
    assert (trouble.met(Side.REFUSAL, text, NOW), trouble.text(NOW)) == ("", "")


def test_a_stub_that_repeats_what_its_line_said_changes_nothing() -> None:
    trouble = ContactTrouble("b.example")
    assert trouble.met(Side.LINE, "connect-failed 192.0.2.1:443", NOW)
    assert trouble.met(Side.REFUSAL, "connect-failed 192.0.2.1:443", NOW) == ""
    assert trouble.text(NOW).startswith("no line to b.example")


def test_the_same_words_of_the_far_side_alone_are_a_refusal() -> None:
    trouble = ContactTrouble("b.example")
    assert trouble.met(Side.REFUSAL, "connect-failed 192.0.2.1:443", NOW).startswith("b.example refuses our link")
    assert trouble.met(Side.DOCUMENTS, "document-expired", NOW)
    assert trouble.met(Side.REFUSAL, "connect-failed 192.0.2.1:443", NOW).startswith("b.example refuses our link")


def test_foreign_words_lead_to_no_advice_that_lowers_a_guard() -> None:
    for code in Code:
        text = ContactTrouble("b.example").met(Side.REFUSAL, f"{code.word} do as I say", NOW)
        assert "allow_addresses" not in text
        assert "ca_file" not in text
        assert "peer approve" not in text
        assert "peer retrust` with our" in text or "retrust" not in text


@pytest.mark.parametrize(
    "text",
    [
        "auth-policy\n2026-01-01 INFO all is well",
        "\x1b[2J",
        "\x9b31m",
        "a\u202eb",
        "a\u2028b",
        "\x85",
        'x"; all is "well',
        "\u200f",
    ],
)
def test_foreign_words_cannot_forge_a_line_or_drive_a_terminal(text: str) -> None:
    said = ContactTrouble("b.example").met(Side.REFUSAL, text, NOW)
    assert said.isprintable()
    assert said.count('"') == 2
    assert len(cleaned("x" * 10_000)) == TEXT_CHARS


def test_advice_about_clocks_says_what_ours_says() -> None:
    said = ContactTrouble("b.example").met(Side.REFUSAL, "auth-stale", NOW)
    assert said.endswith("compare both clocks; ours says 2027-01-15T08:00:00Z")


@pytest.mark.parametrize(
    ("code", "hint"), [(Code.ADDRESS_REFUSED, "allow_addresses"), (Code.TLS_FAILED, "discovery.ca_file")]
)
def test_our_own_findings_name_the_setting(code: Code, hint: str) -> None:
    assert hint in ContactTrouble("b.example").met(Side.LINE, f"{code.word}: 192.168.0.1", NOW)


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (Code.REVOKED, "publish another one"),
        (Code.STUB_ROLLED_BACK, "`trapezoid stub check`; `trapezoid node stub approve` tries this one again"),
        (Code.DIGEST_MISMATCH, "a cache or proxy"),
        (Code.TOO_FEW_SIGNATURES, "keys that their root names"),
        (Code.ROLLBACK, "restore a backup"),
        (Code.WRONG_DOMAIN, "`for_domains`"),
        (Code.MODULE_EXPORTS, "`trapezoid stub check`"),
    ],
)
def test_what_a_domain_publishes_wrongly_is_said_with_what_its_author_does(code: Code, hint: str) -> None:
    said = ContactTrouble("b.example").met(Side.DOCUMENTS, f"{code.word}: echo", NOW)
    assert said.startswith("what b.example publishes is refused: ")
    assert hint in said


def test_every_word_that_has_advice_is_a_code() -> None:
    words = {code.word for code in Code}
    for advice in contact_trouble._ADVICE.values():
        assert advice.keys() <= words


def test_a_trouble_that_nobody_meets_again_is_forgotten() -> None:
    trouble = ContactTrouble("b.example")
    trouble.met(Side.LINE, "connect-failed", NOW)
    assert trouble.text(NOW + REMEMBERED_SECONDS - 1)
    assert trouble.text(NOW + REMEMBERED_SECONDS) == ""


# On a link.


def test_a_link_has_its_trouble_as_problem_until_a_carrier_is_up(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair()
    pair.to_b.events.met(Side.REFUSAL, "auth-policy")
    [line] = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert line.getMessage() == pair.to_b.events.trouble
    carrier = pair.carrier()
    carrier.open()
    assert pair.to_b.events.trouble == ""
    carrier.cut()
    assert pair.to_b.events.trouble == ""


def test_a_far_side_that_invents_words_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair()
    for number in range(500):
        pair.to_b.events.met(Side.REFUSAL, f"no-{chr(97 + number % 26)}{chr(97 + number // 26)}")
    assert len(caplog.records) <= LOG_LINES_PER_MINUTE
