"""Log-ins at the console: how long they count, with which token, and how many there are."""

from __future__ import annotations

import pytest

from msg_node.admin.core.console_sessions import IDLE_SECONDS, LIFE_SECONDS, LOG_INS, ConsoleSessions

TOKEN = b"digest of the token"


@pytest.fixture
def sessions() -> ConsoleSessions:
    found = ConsoleSessions()
    found.open("cookie", "word", TOKEN, 0.0)
    return found


@pytest.mark.parametrize(
    ("cookie", "digest", "now", "counts"),
    [
        ("cookie", TOKEN, IDLE_SECONDS, True),
        ("cookie", TOKEN, IDLE_SECONDS + 1, False),
        ("other", TOKEN, 1.0, False),
        ("\ud800", TOKEN, 1.0, False),
        ("cookie", b"digest of another", 1.0, False),
        ("cookie", b"", 1.0, False),
    ],
)
def test_a_log_in_counts_for_its_cookie_and_token_and_for_half_an_hour_without_a_request(
    sessions: ConsoleSessions, cookie: str, digest: bytes, now: float, counts: bool
) -> None:
    found = sessions.find(cookie, digest, now)
    assert (found is not None) is counts
    assert found is None or found.is_right("word")
    assert len(sessions) == (1 if counts or cookie != "cookie" else 0)


def test_a_log_in_without_a_token_counts_for_nothing() -> None:
    sessions = ConsoleSessions()
    sessions.open("cookie", "word", b"", 0.0)
    assert sessions.find("cookie", b"", 1.0) is None


def test_a_log_in_that_is_used_ends_after_twelve_hours(sessions: ConsoleSessions) -> None:
    now = 0.0
    while now + IDLE_SECONDS <= LIFE_SECONDS:
        now += IDLE_SECONDS
        assert sessions.find("cookie", TOKEN, now) is not None
    assert now == LIFE_SECONDS
    assert sessions.find("cookie", TOKEN, now + 1.0) is None
    assert len(sessions) == 0


def test_the_log_in_that_was_used_longest_ago_makes_room(sessions: ConsoleSessions) -> None:
    for number in range(LOG_INS - 1):
        sessions.open(f"cookie {number}", "word", TOKEN, 1.0)
    assert len(sessions) == LOG_INS
    assert sessions.find("cookie", TOKEN, 2.0) is not None
    sessions.open("last", "word", TOKEN, 3.0)
    assert len(sessions) == LOG_INS
    found = [name for name in ("cookie", "cookie 0", "cookie 1", "last") if sessions.find(name, TOKEN, 4.0)]
    assert found == ["cookie", "cookie 1", "last"]


def test_who_logs_out_is_out_and_a_form_of_another_page_is_not_right(sessions: ConsoleSessions) -> None:
    found = sessions.find("cookie", TOKEN, 1.0)
    assert found is not None
    assert [found.is_right(word) for word in ("word", "words", "", "\ud800")] == [True, False, False, False]
    sessions.close("nobody's")
    sessions.close("cookie")
    assert sessions.find("cookie", TOKEN, 1.0) is None
