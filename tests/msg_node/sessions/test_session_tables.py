"""Where sessions are found, and who may take one, as tables: each look-up after each step, each claim against each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from msg_node.kernel.changes import Journal
from msg_node.kernel.credentials import Credential, Credentials, digest_of
from msg_node.kernel.proof import ANONYMOUS, Proven
from msg_node.kernel.session import Opened, Opener, Session, SessionRow
from msg_node.sessions.core.transitions import SessionRules, SessionTransitions

ANA = "runtime://alpha.example/rt-ana"
OWN, POOL, GONE = digest_of("ana's"), digest_of("the pool's"), digest_of("not in the settings any more")
LOGIN = "login-1"
GRACE_SECONDS, SILENCE_SECONDS = 120.0, 30.0


def transitions_of(journal: Journal | None = None) -> SessionTransitions:
    credentials = Credentials([Credential(OWN, ANA), Credential(POOL, "runtime://alpha.example/*")])
    rules = SessionRules(grace_seconds=GRACE_SECONDS, take_over_grace_seconds=SILENCE_SECONDS)
    return SessionTransitions(journal or Journal(), credentials, rules)


def opened(transitions: SessionTransitions, connection: int, token: str, proven: Proven = ANONYMOUS) -> Session:
    result = transitions.open(Opener(ANA, ANA, connection, proven), token, now=0)
    assert isinstance(result, Opened), result
    session = transitions.sessions.get(result.sid)
    assert session is not None
    return session


def displaced_and_newcomer(transitions: SessionTransitions) -> tuple[Session, Session]:
    """Somebody without a proof has waited until the connection of an older session was silent for long enough."""
    older = opened(transitions, 1, "t1")
    transitions.open(Opener(ANA, ANA, 2), "t2", now=0)
    result = transitions.open(Opener(ANA, ANA, 2), "t2", now=SILENCE_SECONDS)
    assert isinstance(result, Opened)
    newcomer = transitions.sessions.get(result.sid)
    assert newcomer is not None
    return older, newcomer


def places(transitions: SessionTransitions, session: Session, token: str, connection: int) -> dict[str, bool]:
    """By what a session is found."""
    sessions = transitions.sessions
    return {
        "number": sessions.get(session.sid) is session,
        "token": sessions.by_session_address(f"{ANA}/{token}") is session,
        "runtime": sessions.by_runtime(ANA) == session.sid,
        "connection": sessions.by_connection(connection) == session.sid,
        "login": session in sessions.of_login(LOGIN),
        "displaced": session in sessions.displaced(ANA),
    }


def found_by(transitions: SessionTransitions, session: Session, token: str, connection: int = 1) -> set[str]:
    return {name for name, is_found in places(transitions, session, token, connection).items() if is_found}


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (lambda one, _sid: one.lost(1, now=1), {"number", "token", "runtime", "login"}),
        (lambda one, sid: one.close(sid), set()),
        (lambda one, _sid: (one.lost(1, now=1), one.expire(now=1 + GRACE_SECONDS)), set()),
    ],
)
def test_a_session_is_found_by_all_that_it_has_and_by_nothing_once_it_has_ended(
    end: Callable[[SessionTransitions, int], object], left: set[str]
) -> None:
    transitions = transitions_of()
    session = opened(transitions, 1, "t1", Proven(OWN, is_in_full=True, login=LOGIN))
    assert found_by(transitions, session, "t1") == {"number", "token", "runtime", "connection", "login"}
    end(transitions, session.sid)
    assert found_by(transitions, session, "t1") == left
    assert (len(transitions.sessions), transitions.sessions.by_runtime(ANA)) == (
        (1, session.sid) if left else (0, None)
    )


@pytest.mark.parametrize("way", ["open", "re-open"])
def test_a_renewed_session_is_found_by_its_new_connection_and_login(way: str) -> None:
    transitions = transitions_of()
    session = opened(transitions, 1, "t1", Proven(OWN, is_in_full=True, login="login-0"))
    proven = Proven(OWN, is_in_full=True, login=LOGIN)
    if way == "open":
        transitions.open(Opener(ANA, ANA, 2, proven), "t2", now=1)
    else:
        transitions.re_open(f"{ANA}/t1", 2, now=1, proven=proven)
    token, old_token = ("t2", "t1") if way == "open" else ("t1", "t2")
    assert found_by(transitions, session, token, 2) == {"number", "token", "runtime", "connection", "login"}
    assert transitions.sessions.by_connection(1) is None
    assert transitions.sessions.by_session_address(f"{ANA}/{old_token}") is None
    assert transitions.sessions.of_login("login-0") == []


def test_a_displaced_session_is_parked_and_speaks_for_nobody_until_its_token_brings_it_back() -> None:
    transitions = transitions_of()
    older, newcomer = displaced_and_newcomer(transitions)
    assert found_by(transitions, older, "t1") == {"number", "token", "displaced"}
    assert found_by(transitions, newcomer, "t2", 2) == {"number", "token", "runtime", "connection"}
    assert (older.is_live, older.grace_ends) == (False, SILENCE_SECONDS + GRACE_SECONDS)
    back = transitions.re_open(f"{ANA}/t1", 3, now=40)
    assert back == Opened(older.sid, is_resumed=True, replaced=2, ended=(newcomer.sid,))
    assert found_by(transitions, older, "t1", 3) == {"number", "token", "runtime", "connection"}
    assert found_by(transitions, newcomer, "t2", 2) == set()
    assert not older.is_displaced
    assert older.grace_ends is None


@pytest.mark.parametrize("ends_first", ["older", "newcomer"])
def test_of_a_displaced_session_and_its_newcomer_each_ends_alone(ends_first: str) -> None:
    transitions = transitions_of()
    older, newcomer = displaced_and_newcomer(transitions)
    transitions.close((older if ends_first == "older" else newcomer).sid)
    left = {"number", "token", "displaced"}, {"number", "token", "runtime", "connection"}
    found = found_by(transitions, older, "t1"), found_by(transitions, newcomer, "t2", 2)
    assert found == ((set(), left[1]) if ends_first == "older" else (left[0], set()))


@pytest.mark.parametrize("is_reversed", [True, False])
def test_after_a_restart_a_displaced_session_is_displaced_whatever_row_comes_first(is_reversed: bool) -> None:
    journal = Journal()
    older, newcomer = displaced_and_newcomer(transitions_of(journal))
    rows = {change.key: msgspec.json.encode(change.row) for change in journal.take() if change.row is not None}
    again = transitions_of()
    again.restore(dict(sorted(rows.items(), reverse=is_reversed)), now=50)
    assert again.sessions.by_runtime(ANA) == newcomer.sid
    assert [one.sid for one in again.sessions.displaced(ANA)] == [older.sid]
    assert again.next_sid == newcomer.sid + 1
    back = again.re_open(f"{ANA}/t1", 3, now=60)
    assert back == Opened(older.sid, is_resumed=True, ended=(newcomer.sid,))


def test_that_a_displaced_session_is_back_is_stored() -> None:
    journal = Journal()
    transitions = transitions_of(journal)
    older, newcomer = displaced_and_newcomer(transitions)
    transitions.re_open(f"{ANA}/t1", 3, now=40)
    last = {change.key: change.row for change in journal.take()}
    assert last[str(newcomer.sid)] is None
    row = last[str(older.sid)]
    assert isinstance(row, SessionRow)
    assert not row.is_displaced


NOW = 1_000.0
IN_FULL, BY_PATTERN = Proven(OWN, is_in_full=True), Proven(POOL)


@pytest.mark.parametrize(
    ("held", "proven", "may"),
    [
        (ANONYMOUS, ANONYMOUS, False),
        (IN_FULL, ANONYMOUS, False),
        (ANONYMOUS, IN_FULL, True),
        (ANONYMOUS, BY_PATTERN, True),
        (IN_FULL, IN_FULL, True),
        (BY_PATTERN, BY_PATTERN, True),
        (BY_PATTERN, IN_FULL, True),
        (IN_FULL, BY_PATTERN, False),
        (replace(IN_FULL, expires_at=NOW + 1), BY_PATTERN, False),
        (replace(IN_FULL, expires_at=NOW), BY_PATTERN, True),
        (Proven(GONE, is_in_full=True), BY_PATTERN, True),
    ],
)
def test_a_session_is_taken_by_a_claim_that_is_as_good_as_the_one_that_holds_it(
    held: Proven, proven: Proven, may: bool
) -> None:
    transitions = transitions_of()
    session = opened(transitions, 1, "t1", held)
    assert transitions.may_take(session, proven, NOW) is may


@pytest.mark.parametrize("proven", [None, IN_FULL, BY_PATTERN, ANONYMOUS])
@pytest.mark.parametrize("held", [IN_FULL, replace(IN_FULL, expires_at=NOW + 1), Proven(GONE, is_in_full=True)])
def test_a_token_brings_a_session_back_and_only_as_good_a_proof_replaces_what_was_proved(
    held: Proven, proven: Proven | None
) -> None:
    transitions = transitions_of()
    session = opened(transitions, 1, "t1", held)
    is_replaced = proven is not None and transitions.may_take(session, proven, NOW)
    result = transitions.re_open(f"{ANA}/t1", 2, now=NOW, proven=proven)
    assert (result is not None) is (is_replaced or held.credential != GONE)
    assert session.proof == (proven if is_replaced else held)


@pytest.mark.parametrize("proven", [None, IN_FULL, BY_PATTERN, ANONYMOUS])
def test_after_the_end_of_its_proof_a_token_brings_a_session_back_with_a_new_one_only(proven: Proven | None) -> None:
    transitions = transitions_of()
    session = opened(transitions, 1, "t1", replace(IN_FULL, expires_at=NOW))
    result = transitions.re_open(f"{ANA}/t1", 2, now=NOW, proven=proven)
    is_good = proven in (IN_FULL, BY_PATTERN)
    assert (result is not None) is is_good
    assert (session.proof == proven) is is_good
