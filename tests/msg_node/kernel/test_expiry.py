"""When documents and certificates expire: one judgement, and what a running node does about it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from msg_node.admin.expiry_watch import ExpiryWatch
from msg_node.kernel.expiry import Expiry, ExpiryState, Term, TermKind, judge, judge_all, news
from protofly.errors import SettingsError
from protofly.limits import CLOCK_SKEW_SECONDS

DAY = 86_400.0
START = 1_800_000_000.0


def manifest(days: float = 180, name: str = "link") -> Term:
    return Term(TermKind.MANIFEST, name, START, START + days * DAY, "/site/manifest/link.json")


@pytest.mark.parametrize(
    ("life_days", "left_days", "state"),
    [
        (180, 180, ExpiryState.VALID),
        (180, 30.1, ExpiryState.VALID),
        (180, 30, ExpiryState.DUE),
        (180, 14.1, ExpiryState.DUE),
        (180, 14, ExpiryState.EXPIRING),
        (180, 0.001, ExpiryState.EXPIRING),
        (180, 0, ExpiryState.EXPIRED),
        (180, -400, ExpiryState.EXPIRED),
        (365, 29, ExpiryState.DUE),
        (6, 5.9, ExpiryState.VALID),  # a certificate of six days is not always about to expire
        (6, 3, ExpiryState.DUE),
        (6, 1.5, ExpiryState.EXPIRING),
        (2, 1.1, ExpiryState.VALID),  # `live`, which is signed anew at half
        (2, 0.5, ExpiryState.EXPIRING),
        (180, 181, ExpiryState.EARLY),
        (180, 180.003, ExpiryState.VALID),  # within what clocks may differ
    ],
)
def test_a_term_is_judged_by_what_is_left_of_it(life_days: float, left_days: float, state: ExpiryState) -> None:
    term = manifest(life_days)
    assert judge(term, term.ends_at - left_days * DAY).state is state


def test_a_term_that_begins_within_the_skew_of_clocks_is_not_early() -> None:
    assert judge(manifest(), START - CLOCK_SKEW_SECONDS).state is ExpiryState.VALID
    assert judge(manifest(), START - CLOCK_SKEW_SECONDS - 1).state is ExpiryState.EARLY


def test_an_expiry_says_what_ends_when_and_what_to_do_and_no_file_name() -> None:
    one = judge(manifest(), START + 170 * DAY)
    assert (one.code, one.days_left) == ("manifest-expiring", 10)
    assert one.text == "manifest link expires in 10 days, on 2027-07-14"
    assert "trapezoid publish --renew" in one.advice
    assert "/site" not in one.advice
    over = judge(manifest(), START + 183.5 * DAY)
    assert (over.code, over.days_left, over.is_failing) == ("manifest-expired", -4, True)
    assert over.text == "manifest link expired on 2027-07-14, 3 days ago"
    assert judge(manifest(), START).advice == "manifest link expires in 180 days, on 2027-07-14"
    assert "5 hours" in judge(manifest(1), START + 19 * 3600).text
    early = judge(manifest(), START - DAY)
    assert (early.code, early.is_failing, "our clock" in early.text) == ("manifest-not-yet-valid", True, True)


@given(life=st.floats(0, 1e9), left=st.floats(-1e9, 1e9))
def test_a_term_never_becomes_better_with_time(life: float, left: float) -> None:
    order = [ExpiryState.VALID, ExpiryState.DUE, ExpiryState.EXPIRING, ExpiryState.EXPIRED]
    term = Term(TermKind.ROOT, "1", START, START + life)
    now, later = START + life - max(left, 0), START + life + 1
    states = [judge(term, max(moment, START)).state for moment in (now, (now + later) / 2, later)]
    assert [order.index(state) for state in states] == sorted(order.index(state) for state in states)


def test_the_log_has_each_change_once_and_reminders_of_what_is_wrong() -> None:
    def at(days: float) -> list[Expiry]:
        return judge_all([manifest(), manifest(1000, "other")], START + days * DAY)

    assert news([], at(0), is_reminder=True) == []
    assert [one.code for one in news(at(0), at(151), is_reminder=False)] == ["manifest-due"]
    assert news(at(151), at(152), is_reminder=True) == []
    assert [one.code for one in news(at(152), at(170), is_reminder=False)] == ["manifest-expiring"]
    assert news(at(170), at(171), is_reminder=False) == []
    assert [one.code for one in news(at(170), at(171), is_reminder=True)] == ["manifest-expiring"]
    assert [one.code for one in news(at(171), at(180), is_reminder=False)] == ["manifest-expired"]


class Shelf:
    """What is published, a clock to set, and who renews."""

    def __init__(self, *terms: Term) -> None:
        self.terms: Sequence[Term] = terms
        self.now = START
        self.error = ""
        self.renewed_at: list[float] = []
        self.watch = ExpiryWatch(self._read, clock=lambda: self.now)

    def _read(self) -> Sequence[Term]:
        if self.error:
            raise SettingsError(self.error)
        return self.terms

    def renew(self, now: float) -> Sequence[str]:
        self.renewed_at.append(now)
        self.terms = [Term(one.kind, one.name, now, now + 180 * DAY) for one in self.terms]
        return ["manifest link"]

    def logged(self, caplog: pytest.LogCaptureFixture, days: float) -> list[str]:
        caplog.clear()
        self.now = START + days * DAY
        trio.run(self.watch.look)
        return [f"{record.levelname} {record.getMessage().partition(':')[0]}" for record in caplog.records]


def test_a_node_without_the_key_warns_daily_and_then_fails(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shelf = Shelf(manifest())
    assert shelf.logged(caplog, 0) == []
    assert shelf.logged(caplog, 151) == ["INFO manifest-due"]
    assert shelf.logged(caplog, 166.1) == ["WARNING manifest-expiring"]
    assert shelf.logged(caplog, 166.2) == []
    assert shelf.logged(caplog, 167.2) == ["WARNING manifest-expiring"]
    assert shelf.watch.problems() == []
    assert shelf.watch.warnings() == ["manifest link expires in 12 days, on 2027-07-14"]
    assert shelf.logged(caplog, 180) == ["ERROR manifest-expired"]
    assert shelf.watch.problems() == ["manifest link expired on 2027-07-14, 0 hours ago"]
    assert shelf.watch.warnings() == []
    assert shelf.watch.status()[0]["code"] == "manifest-expired"


def test_a_node_with_the_key_renews_once_when_it_is_due(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shelf = Shelf(manifest())
    shelf.watch.renew = shelf.renew
    assert shelf.logged(caplog, 149) == []
    assert shelf.renewed_at == []
    assert shelf.logged(caplog, 151) == ["INFO renewed manifest link"]
    assert shelf.logged(caplog, 152) == []
    assert len(shelf.renewed_at) == 1


def test_nothing_is_renewed_for_a_root_or_a_certificate_that_is_due() -> None:
    shelf = Shelf(
        Term(TermKind.ROOT, "1", START, START + DAY), Term(TermKind.CERTIFICATE, "[site]", START, START + DAY)
    )
    shelf.watch.renew = shelf.renew
    shelf.now = START + 0.9 * DAY
    trio.run(shelf.watch.look)
    assert shelf.renewed_at == []


def test_a_renewal_that_fails_is_logged_and_the_node_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_now: float) -> Sequence[str]:
        raise SettingsError("the site folder cannot be written to")

    shelf = Shelf(manifest())
    shelf.watch.renew = refuse
    assert shelf.logged(caplog, 170)[:1] == ["WARNING published documents that are due are not renewed"]
    assert shelf.watch.warnings() == ["manifest link expires in 10 days, on 2027-07-14"]


def test_documents_that_cannot_be_read_keep_their_last_terms_and_are_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shelf = Shelf(manifest())
    shelf.logged(caplog, 0)
    shelf.error = "/site/publication.json: Input/output error"
    assert shelf.logged(caplog, 1) == ["ERROR the terms of the published documents cannot be read"]
    assert shelf.logged(caplog, 1.1) == []
    assert shelf.watch.warnings() == ["expiries: the published documents cannot be read"]
    shelf.error = ""
    shelf.logged(caplog, 2)
    assert shelf.watch.warnings() == []


def test_a_clock_that_was_set_back_does_not_silence_the_reminders(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf(manifest())
    assert shelf.logged(caplog, 175) == ["WARNING manifest-expiring"]
    assert shelf.logged(caplog, 170) == ["WARNING manifest-expiring"]


@pytest.mark.parametrize(
    ("left_seconds", "text"),
    [
        (3 * DAY, "3 days"),
        (2 * DAY, "2 days"),
        (2 * DAY - 1, "47 hours"),
        (DAY, "24 hours"),
        (7200.0, "2 hours"),
        (3600.0, "1 hour"),
        (60.0, "0 hours"),
    ],
)
def test_what_is_left_is_said_in_days_and_below_two_in_hours(left_seconds: float, text: str) -> None:
    assert f"expires in {text}," in judge(manifest(), START + 180 * DAY - left_seconds).text


def test_a_reminder_names_all_that_warns_or_fails_and_news_only_what_changed() -> None:
    after = judge_all(
        [manifest(days, name) for days, name in ((10, "over"), (40, "due"), (180, "good"))], START + 31 * DAY
    )
    assert [one.term.name for one in after if one.is_failing] == ["over"]
    assert [one.term.name for one in news(after, after, is_reminder=True)] == ["over", "due"]
    assert news(after, after, is_reminder=False) == []
    assert [one.term.name for one in news([], after, is_reminder=False)] == ["over", "due"]
