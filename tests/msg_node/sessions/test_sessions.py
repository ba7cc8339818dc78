"""Sessions: open, loss, return, take-over. Pure: the clock is an argument."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from msg_node.kernel.changes import Journal, Table
from msg_node.kernel.credentials import Credential, Credentials, digest_of
from msg_node.kernel.proof import ANONYMOUS, Offered, Proven
from msg_node.kernel.runtime_address import runtime_part
from msg_node.kernel.session import Dialect, Opened, Opener, OpenRefused
from msg_node.sessions.core.transitions import SessionRules, SessionTransitions
from protofly.errors import Code, HostError, PeerError
from protofly.limits import PARKED_PER_RUNTIME

ANA = "runtime://alpha.example/rt-ana"
TOKEN_OF_ANA = digest_of("secret of ana")


def opener(connection: int, *, credential: str = "", runtime: str = ANA) -> Opener:
    proven = Proven(credential, frozenset({"operator"}), None, is_in_full=True) if credential else ANONYMOUS
    return Opener(runtime, runtime, connection, proven)


def opened(result: Opened | OpenRefused) -> Opened:
    assert isinstance(result, Opened), result
    return result


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def transitions(journal: Journal) -> SessionTransitions:
    credentials = Credentials([Credential(TOKEN_OF_ANA, ANA, frozenset({"operator"}))])
    return SessionTransitions(journal, credentials, SessionRules(grace_seconds=120, take_over_grace_seconds=30))


def stored(journal: Journal) -> dict[str, bytes]:
    rows: dict[str, bytes] = {}
    for change in journal.take():
        assert change.table is Table.SESSIONS
        if change.row is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = msgspec.json.encode(change.row)
    return rows


def test_opened_session_is_found_by_runtime_connection_and_token(transitions: SessionTransitions) -> None:
    sid = opened(transitions.open(opener(1), "t1", now=0)).sid
    assert (
        transitions.sessions.by_runtime(ANA)
        == transitions.sessions.by_connection(1)
        == transitions.sessions.below(f"{ANA}/sm")
        == sid
    )
    assert opened_by_token(transitions, "t1", connection=2) == sid


def opened_by_token(transitions: SessionTransitions, token: str, connection: int, now: float = 1.0) -> int | None:
    result = transitions.re_open(f"{ANA}/{token}", connection, now=now)
    return None if result is None else result.sid


def expired(transitions: SessionTransitions, now: float) -> list[int]:
    """All whose grace is over."""
    sids = []
    while (session := transitions.expire(now=now)) is not None:
        sids.append(session.sid)
    return sids


@pytest.mark.parametrize(
    ("key", "runtime"),
    [
        (ANA, ANA),
        (f"{ANA}/sm", ANA),
        (f"{ANA}/protostub/7", ANA),
        ("runtime:/alice", "runtime:/alice"),
        ("runtime:/alice/sm", "runtime:/alice"),
        ("runtime://alpha.example", ""),
        ("hyperty://alpha.example/rt-ana", ""),
        ("publisher", ""),
        ("runtime:", ""),
    ],
)
def test_runtime_part_is_the_first_level_below_the_authority(key: str, runtime: str) -> None:
    assert runtime_part(key) == runtime


def test_look_alike_runtime_address_is_not_below_another(transitions: SessionTransitions) -> None:
    opened(transitions.open(opener(1, runtime="runtime://alpha.example/rt-a"), "t", now=0))
    assert transitions.sessions.below(ANA) is None


def test_lost_session_comes_back_with_its_token_within_grace(transitions: SessionTransitions) -> None:
    sid = opened(transitions.open(opener(1), "t1", now=0)).sid
    assert transitions.lost(1, now=10) is transitions.sessions.get(sid)
    assert transitions.expire(now=129.9) is None
    assert opened_by_token(transitions, "t1", connection=2) == sid
    assert transitions.expire(now=1000) is None


def test_session_ends_when_grace_is_over(transitions: SessionTransitions, journal: Journal) -> None:
    sid = opened(transitions.open(opener(1), "t1", now=0)).sid
    transitions.lost(1, now=0)
    assert expired(transitions, now=120) == [sid]
    assert opened_by_token(transitions, "t1", connection=2) is None
    assert len(transitions.sessions) == 0
    assert stored(journal) == {}


def test_sessions_that_were_lost_together_end_one_after_the_other(transitions: SessionTransitions) -> None:
    for number in range(3):
        opened(transitions.open(opener(number, runtime=f"runtime://alpha.example/{number}"), f"t{number}", now=0))
        transitions.lost(number, now=0)
    assert [transitions.expire(now=120) is not None for _ in range(4)] == [True, True, True, False]
    assert len(transitions.sessions) == 0


def test_clock_that_is_set_back_prolongs_no_grace_and_no_wait(transitions: SessionTransitions) -> None:
    first = opened(transitions.open(opener(1), "t1", now=10_000)).sid
    transitions.lost(1, now=10_000)
    second = opened(transitions.open(opener(2, runtime="runtime://alpha.example/x"), "t2", now=5_000)).sid
    transitions.lost(2, now=5_000)
    assert transitions.expire(now=5_001) is None
    assert expired(transitions, now=5_121) == [first, second]
    opened(transitions.open(opener(3), "t3", now=10_000))
    assert transitions.open(opener(4), "t4", now=10_001) == OpenRefused(Code.ADDRESS_TAKEN, 30, 3)
    assert transitions.open(opener(4), "t4", now=5_000) == OpenRefused(Code.ADDRESS_TAKEN, 30, 3)


@pytest.mark.parametrize("address", [f"{ANA}/wrong", ANA, f"{ANA}/", "t1", f"{ANA}o/t1", f"{ANA}/x/t1", ""])
def test_re_open_needs_the_whole_session_address(transitions: SessionTransitions, address: str) -> None:
    opened(transitions.open(opener(1), "t1", now=0))
    transitions.lost(1, now=0)
    assert transitions.re_open(address, 2, now=1) is None


def test_re_open_of_a_half_open_connection_closes_the_old_one(transitions: SessionTransitions) -> None:
    sid = opened(transitions.open(opener(1), "t1", now=0)).sid
    result = transitions.re_open(f"{ANA}/t1", 2, now=1)
    assert result == Opened(sid, is_resumed=True, replaced=1)
    assert transitions.lost(1, now=2) is None  # the old connection means nothing any more
    assert transitions.sessions.by_connection(2) == sid


def test_re_open_twice_on_one_connection_is_harmless(transitions: SessionTransitions) -> None:
    sid = opened(transitions.open(opener(1), "t1", now=0)).sid
    assert transitions.re_open(f"{ANA}/t1", 1, now=1) == Opened(sid, is_resumed=True, is_renewed=True)


def test_connection_of_one_session_cannot_re_open_another(transitions: SessionTransitions) -> None:
    opened(transitions.open(opener(1), "t1", now=0))
    opened(transitions.open(opener(2, runtime="runtime://alpha.example/eve"), "t2", now=0))
    assert transitions.re_open(f"{ANA}/t1", 2, now=1) is None
    assert transitions.open(opener(2), "t3", now=1) == OpenRefused(Code.DUPLICATE)


def test_second_opener_waits_and_gets_through_only_when_the_first_is_silent(transitions: SessionTransitions) -> None:
    first = opened(transitions.open(opener(1), "t1", now=0)).sid
    assert transitions.open(opener(2), "t2", now=100) == OpenRefused(Code.ADDRESS_TAKEN, 30, 1)
    assert transitions.open(opener(2), "t2", now=129) == OpenRefused(Code.ADDRESS_TAKEN, 1, 1)
    second = opened(transitions.open(opener(2), "t2", now=130))
    assert second.replaced == 1
    assert second.sid != first
    assert transitions.sessions.by_runtime(ANA) == second.sid
    assert transitions.sessions.of_runtime(second.sid) == {first, second.sid}


def test_sign_of_life_of_the_first_session_starts_the_wait_again(transitions: SessionTransitions) -> None:
    first = opened(transitions.open(opener(1), "t1", now=0)).sid
    transitions.open(opener(2), "t2", now=100)
    transitions.heard(first, now=101)
    assert transitions.open(opener(2), "t2", now=140) == OpenRefused(Code.ADDRESS_TAKEN, 30, 1)
    assert transitions.sessions.by_connection(1) == first


def test_displaced_session_takes_its_runtime_back_with_its_token(transitions: SessionTransitions) -> None:
    first = opened(transitions.open(opener(1), "t1", now=0)).sid
    transitions.lost(1, now=1)
    newcomer = opened(transitions.open(opener(2), "t2", now=2))
    assert (newcomer.replaced, newcomer.is_resumed) == (None, False)
    result = transitions.re_open(f"{ANA}/t1", 3, now=3)
    assert result == Opened(first, is_resumed=True, replaced=2, ended=(newcomer.sid,))
    assert transitions.sessions.by_runtime(ANA) == first
    assert transitions.sessions.get(newcomer.sid) is None


def test_displaced_session_ends_with_its_grace_and_leaves_the_newcomer_alone(transitions: SessionTransitions) -> None:
    first = opened(transitions.open(opener(1), "t1", now=0)).sid
    transitions.lost(1, now=1)
    second = opened(transitions.open(opener(2), "t2", now=2)).sid
    assert expired(transitions, now=121) == [first]
    assert transitions.sessions.by_runtime(ANA) == second


def test_runtime_cannot_pile_up_displaced_sessions(transitions: SessionTransitions) -> None:
    for connection in range(PARKED_PER_RUNTIME + 1):
        opened(transitions.open(opener(connection), f"t{connection}", now=0))
        transitions.lost(connection, now=0)
    assert transitions.open(opener(99), "t99", now=1) == OpenRefused(Code.QUOTA, 120)
    assert opened_by_token(transitions, "t0", connection=100) is not None  # the oldest still gets back


def test_valid_credential_resumes_the_session_under_a_new_token(transitions: SessionTransitions) -> None:
    first = opened(transitions.open(opener(1, credential=TOKEN_OF_ANA), "t1", now=0)).sid
    result = opened(transitions.open(opener(2, credential=TOKEN_OF_ANA), "t2", now=1))
    assert result == Opened(first, is_resumed=True, replaced=1)
    assert opened_by_token(transitions, "t1", connection=3) is None
    assert opened_by_token(transitions, "t2", connection=3) == first
    session = transitions.sessions.get(first)
    assert session is not None
    assert session.proof.roles == {"operator"}


def test_resumed_session_is_stored_under_its_new_token(transitions: SessionTransitions, journal: Journal) -> None:
    opened(transitions.open(opener(1), "t1", now=0))
    opened(transitions.open(opener(2, credential=TOKEN_OF_ANA), "t2", now=1))
    after = SessionTransitions(Journal(), transitions.credentials)
    after.restore(stored(journal), now=2)
    assert opened_by_token(after, "t1", connection=3) is None
    assert opened_by_token(after, "t2", connection=3) is not None


@pytest.mark.parametrize("is_parked", [False, True])
def test_session_with_credential_is_never_displaced_by_an_anonymous_opener(
    transitions: SessionTransitions, is_parked: bool
) -> None:
    first = opened(transitions.open(opener(1, credential=TOKEN_OF_ANA), "t1", now=0)).sid
    if is_parked:
        transitions.lost(1, now=1)
    for now in (2, 40, 100):
        refused = transitions.open(opener(2), "t2", now=now)
        assert isinstance(refused, OpenRefused)
        assert refused.code is Code.ADDRESS_TAKEN
    assert transitions.sessions.by_runtime(ANA) == first


def test_re_open_fails_when_the_credential_was_withdrawn(journal: Journal) -> None:
    before = SessionTransitions(journal, Credentials([Credential(TOKEN_OF_ANA, ANA)]))
    opened(before.open(opener(1, credential=TOKEN_OF_ANA), "t1", now=0))
    after = SessionTransitions(Journal(), Credentials())
    after.restore(stored(journal), now=5)
    assert after.re_open(f"{ANA}/t1", 1, now=6) is None


def test_guest_has_no_grace(transitions: SessionTransitions) -> None:
    guest = replace(opener(1), is_guest=True)
    sid = opened(transitions.open(guest, "t1", now=0)).sid
    session = transitions.lost(1, now=1)
    assert session is not None
    assert session.is_guest
    assert transitions.sessions.get(sid) is None


def test_number_of_sessions_is_bounded(journal: Journal) -> None:
    transitions = SessionTransitions(journal, rules=SessionRules(max_sessions=1))
    opened(transitions.open(opener(1), "t1", now=0))
    assert transitions.open(opener(2, runtime="runtime://alpha.example/x"), "t2", now=0) == OpenRefused(Code.OVERLOAD)


def test_restart_parks_every_session_and_knows_its_token(transitions: SessionTransitions, journal: Journal) -> None:
    sid = opened(transitions.open(opener(1), "t1", now=0)).sid
    opened(transitions.open(replace(opener(2, runtime="runtime://beta.example/g"), is_guest=True), "t2", now=0))
    rows = stored(journal)
    after_journal = Journal()
    after = SessionTransitions(after_journal, Credentials(), SessionRules(grace_seconds=120))
    after.restore(rows, now=500)
    session = after.sessions.get(sid)
    assert session is not None
    assert (session.is_live, session.grace_ends) == (False, 620)
    assert len(after.sessions) == 1  # guests end with the process
    assert [(change.key, change.row) for change in after_journal.take()] == [(str(sid + 1), None)]
    assert opened_by_token(after, "t1", connection=1) == sid
    fresh = opened(after.open(opener(9, runtime="runtime://alpha.example/new"), "t9", now=501)).sid
    assert fresh > sid + 1  # numbers are not used again


def test_stored_rows_hold_no_token(transitions: SessionTransitions, journal: Journal) -> None:
    opened(transitions.open(opener(1), "very-secret-token", now=0))
    (row,) = stored(journal).values()
    assert b"very-secret-token" not in row
    assert digest_of("very-secret-token").encode() in row


def test_unreadable_row_is_a_storage_error(transitions: SessionTransitions) -> None:
    with pytest.raises(HostError, check=lambda error: error.code is Code.STORAGE):
        transitions.restore({"1": b"[" * 5000}, now=0)


# Credentials.


@pytest.mark.parametrize(
    ("pattern", "runtime", "is_valid"),
    [
        (ANA, ANA, True),
        ("hyperty-runtime://ALPHA.example/rt-ana", ANA, True),
        ("hyperty-runtime://Alpha.example/*", ANA, True),
        ("runtime://alpha.example/rt-*", ANA, True),
        ("runtime://alpha.example/rt-b*", ANA, False),
        ("runtime://alpha.example/*", "runtime://alpha.example.evil/rt-ana", False),
        (ANA, f"{ANA}2", False),
        ("*", ANA, True),
    ],
)
def test_credential_is_for_the_runtimes_of_its_pattern(pattern: str, runtime: str, is_valid: bool) -> None:
    credentials = Credentials([Credential(digest_of("s"), pattern)], allows_anonymous=False)
    if is_valid:
        assert credentials.check(Offered("s"), runtime, now=0).credential == digest_of("s")
    else:
        with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_TOKEN):
            credentials.check(Offered("s"), runtime, now=0)


def test_missing_credentials_are_refused_where_anonymous_is_off() -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.NO_CREDENTIALS):
        Credentials(allows_anonymous=False).check(Offered(), ANA, now=0)
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_TOKEN):
        Credentials(allows_anonymous=True).check(Offered("\ud800 nonsense"), ANA, now=0)


# Return by address alone, where the operator wants it.

WITHOUT_TOKEN = [dialect for dialect in Dialect if not dialect.has_token]


def by_address(journal: Journal, *, is_on: bool = True) -> SessionTransitions:
    credentials = Credentials([Credential(TOKEN_OF_ANA, ANA)])
    rules = SessionRules(grace_seconds=120, take_over_grace_seconds=30, returns_by_address=is_on)
    return SessionTransitions(journal, credentials, rules)


@pytest.mark.parametrize("second", WITHOUT_TOKEN)
@pytest.mark.parametrize("first", WITHOUT_TOKEN)
def test_lost_session_without_proof_or_token_comes_back_by_its_address(
    journal: Journal, first: Dialect, second: Dialect
) -> None:
    transitions = by_address(journal)
    sid = opened(transitions.open(replace(opener(1), dialect=first), "t1", now=0)).sid
    transitions.lost(1, now=10)
    back = opened(transitions.open(replace(opener(2), dialect=second), "t2", now=20))
    assert (back.sid, back.is_resumed, back.replaced, back.ended) == (sid, True, None, ())
    session = transitions.sessions.get(sid)
    assert session is not None
    assert (session.dialect, session.connection, session.proof.credential) == (second, 2, "")
    assert transitions.expire(now=1_000) is None


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("first", Dialect)
@pytest.mark.parametrize("second", Dialect)
def test_a_token_on_either_side_or_the_switch_off_gives_a_fresh_session(
    journal: Journal, first: Dialect, second: Dialect, is_on: bool
) -> None:
    transitions = by_address(journal, is_on=is_on)
    sid = opened(transitions.open(replace(opener(1), dialect=first), "t1", now=0)).sid
    transitions.lost(1, now=10)
    other = opened(transitions.open(replace(opener(2), dialect=second), "t2", now=20)).sid
    returns = is_on and first in WITHOUT_TOKEN and second in WITHOUT_TOKEN
    assert (other == sid) is returns
    assert transitions.sessions.of_runtime(other) == frozenset({sid, other})


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_proven_session_never_comes_back_by_its_address(journal: Journal, is_lost: bool) -> None:
    transitions = by_address(journal)
    proven = replace(opener(1, credential=TOKEN_OF_ANA), dialect=Dialect.QUERY)
    sid = opened(transitions.open(proven, "t1", now=0)).sid
    if is_lost:
        transitions.lost(1, now=10)
    for now in (20, 60, 100):
        refused = transitions.open(replace(opener(2), dialect=Dialect.QUERY), "t2", now=now)
        assert isinstance(refused, OpenRefused)
        assert refused.code is Code.ADDRESS_TAKEN
    assert transitions.sessions.by_runtime(ANA) == sid


def test_a_live_session_comes_back_by_its_address_only_after_it_left_a_ping_unanswered(journal: Journal) -> None:
    transitions = by_address(journal)
    eve = replace(opener(2), dialect=Dialect.COMMAND_FRAMES)
    sid = opened(transitions.open(replace(opener(1), dialect=Dialect.COMMAND_FRAMES), "t1", now=0)).sid
    assert transitions.open(eve, "t2", now=100) == OpenRefused(Code.ADDRESS_TAKEN, 30.0, 1)
    transitions.heard(sid, now=101)
    assert transitions.open(eve, "t2", now=140) == OpenRefused(Code.ADDRESS_TAKEN, 30.0, 1)
    back = opened(transitions.open(eve, "t2", now=171))
    assert (back.sid, back.replaced, back.is_resumed) == (sid, 1, True)


def test_what_was_stored_comes_back_by_its_address_after_a_restart(journal: Journal) -> None:
    sid = opened(by_address(journal).open(replace(opener(1), dialect=Dialect.QUERY), "t1", now=0)).sid
    again = by_address(Journal())
    again.restore(stored(journal), now=50)
    assert opened(again.open(replace(opener(1), dialect=Dialect.QUERY), "t2", now=60)).sid == sid


# Whose silence is long enough, and what becomes of the one that kept silent.


def test_an_opener_at_the_moment_of_a_sign_of_life_waits_once(transitions: SessionTransitions) -> None:
    first = opened(transitions.open(opener(1), "t1", now=0)).sid
    assert transitions.open(opener(2), "t2", now=0) == OpenRefused(Code.ADDRESS_TAKEN, 30, 1)
    assert opened(transitions.open(opener(2), "t2", now=30)).sid != first


def test_without_a_wait_a_connection_is_still_asked_once(journal: Journal) -> None:
    transitions = SessionTransitions(journal, rules=SessionRules(take_over_grace_seconds=0))
    opened(transitions.open(opener(1), "t1", now=0))
    for _ in range(2):
        assert transitions.open(opener(2), "t2", now=10) == OpenRefused(Code.ADDRESS_TAKEN, 0, 1)
    assert opened(transitions.open(opener(2), "t2", now=10.5)).replaced == 1


def test_a_silent_guest_is_not_displaced_but_ends(transitions: SessionTransitions, journal: Journal) -> None:
    guest = replace(opener(1), is_guest=True)
    first = opened(transitions.open(guest, "t1", now=0)).sid
    transitions.open(replace(guest, connection=2), "t2", now=0)
    result = opened(transitions.open(replace(guest, connection=2), "t2", now=30))
    assert result == Opened(first + 1, replaced=1, ended=(first,))
    assert transitions.sessions.get(first) is None
    assert transitions.sessions.displaced(ANA) == []
    assert stored(journal).keys() == {str(first + 1)}
    assert opened_by_token(transitions, "t1", connection=3, now=31) is None


def test_the_oldest_displaced_session_without_a_token_makes_way_for_another(journal: Journal) -> None:
    transitions = SessionTransitions(journal, rules=SessionRules(grace_seconds=120))
    sids = []
    for number in range(PARKED_PER_RUNTIME + 1):
        dialect = Dialect.QUERY if number in (1, 2) else Dialect.SESSION_MESSAGES
        sids.append(opened(transitions.open(replace(opener(number), dialect=dialect), f"t{number}", now=0)).sid)
        transitions.lost(number, now=0)
    newcomer = opened(transitions.open(opener(98), "t98", now=1))
    assert newcomer.ended == (sids[1],)
    assert [one.sid for one in transitions.sessions.displaced(ANA)] == [sids[0], *sids[2:]]
    transitions.lost(98, now=1)
    assert opened(transitions.open(opener(99), "t99", now=2)).ended == (sids[2],)


def test_a_session_that_was_contested_and_lost_waits_anew_when_it_is_back(transitions: SessionTransitions) -> None:
    opened(transitions.open(opener(1), "t1", now=0))
    transitions.open(opener(2), "t2", now=10)
    opened(transitions.open(opener(2), "t2", now=40))
    assert opened_by_token(transitions, "t1", connection=3, now=50) is not None
    assert transitions.open(opener(4), "t4", now=60) == OpenRefused(Code.ADDRESS_TAKEN, 30, 3)


# One connection, one session.


def test_a_connection_renews_its_own_session_and_takes_no_other(transitions: SessionTransitions) -> None:
    bo = "runtime://alpha.example/rt-bo"
    first = opened(transitions.open(opener(1), "t1", now=0)).sid
    opened(transitions.open(opener(2, runtime=bo), "t2", now=0))
    renewed = transitions.open(opener(1, credential=TOKEN_OF_ANA), "t3", now=1)
    assert renewed == Opened(first, is_resumed=True, is_renewed=True)
    assert transitions.open(opener(2, credential=TOKEN_OF_ANA), "t4", now=1) == OpenRefused(Code.DUPLICATE)
    assert transitions.open(opener(1), "t5", now=1) == OpenRefused(Code.DUPLICATE)
    assert transitions.open(opener(1, runtime="runtime://alpha.example/new"), "t6", now=1) == OpenRefused(
        Code.DUPLICATE
    )
    assert transitions.sessions.by_connection(1) == first


def test_a_displaced_session_comes_back_when_the_newcomer_has_left(transitions: SessionTransitions) -> None:
    first = opened(transitions.open(opener(1), "t1", now=0)).sid
    transitions.lost(1, now=1)
    newcomer = opened(transitions.open(opener(2), "t2", now=2)).sid
    transitions.close(newcomer)
    assert transitions.re_open(f"{ANA}/t1", 3, now=3) == Opened(first, is_resumed=True)
    assert transitions.sessions.by_runtime(ANA) == first


# What ends by decision.


def proven_until(connection: int, ends: float | None, *, login: str = "", runtime: str = ANA) -> Opener:
    return Opener(runtime, runtime, connection, Proven(TOKEN_OF_ANA, frozenset(), ends, is_in_full=True, login=login))


@pytest.mark.parametrize(("ends", "left"), [(None, 50), (90, 50), (40, 40)])
def test_the_end_of_a_login_ends_its_proofs_now_and_prolongs_none(
    transitions: SessionTransitions, journal: Journal, ends: float | None, left: float
) -> None:
    sid = opened(transitions.open(proven_until(1, ends, login="ana@web"), "t1", now=0)).sid
    other = opened(transitions.open(proven_until(2, ends, login="bo@web", runtime=f"{ANA}2"), "t2", now=0)).sid
    transitions.end_login("ana@web", now=50)
    session, kept = transitions.sessions.get(sid), transitions.sessions.get(other)
    assert session is not None
    assert kept is not None
    assert (session.proof.expires_at, kept.proof.expires_at) == (left, ends)
    assert [(one.sid, connection) for one, connection in transitions.overdue(now=50)][:1] == [(sid, 1)]
    assert not session.is_live
    assert transitions.re_open(f"{ANA}/t1", 3, now=51) is None
    again = SessionTransitions(Journal(), transitions.credentials)
    again.restore(stored(journal), now=52)
    assert again.re_open(f"{ANA}/t1", 1, now=53) is None


def test_the_end_of_a_credential_ends_what_it_opened_and_nothing_else(transitions: SessionTransitions) -> None:
    sid = opened(transitions.open(proven_until(1, None), "t1", now=0)).sid
    opened(transitions.open(opener(2, runtime=f"{ANA}2"), "t2", now=0))
    transitions.end_credential(TOKEN_OF_ANA, now=50)
    assert [(one.sid, connection) for one, connection in transitions.overdue(now=50)] == [(sid, 1)]
    assert transitions.overdue(now=50) == []


def test_a_parked_session_whose_login_ends_is_not_overdue(transitions: SessionTransitions) -> None:
    opened(transitions.open(proven_until(1, None, login="ana@web"), "t1", now=0))
    transitions.lost(1, now=10)
    transitions.end_login("ana@web", now=50)
    assert transitions.overdue(now=60) == []
    assert transitions.re_open(f"{ANA}/t1", 3, now=61) is None


# Late replies and signs of life.


def test_the_wish_for_late_replies_is_stored_once_and_survives(
    transitions: SessionTransitions, journal: Journal
) -> None:
    sid = opened(transitions.open(opener(1), "t1", now=0)).sid
    rows = stored(journal)
    transitions.want_late(sid, wants=False)
    transitions.want_late(sid + 1, wants=True)
    transitions.heard(sid + 1, now=1)
    assert list(journal.take()) == []
    transitions.want_late(sid, wants=True)
    rows |= stored(journal)
    again = SessionTransitions(Journal())
    again.restore(rows, now=2)
    session = again.sessions.get(sid)
    assert session is not None
    assert session.wants_late


def test_the_end_of_an_unknown_session_or_connection_is_none(transitions: SessionTransitions) -> None:
    sid = opened(transitions.open(opener(1), "t1", now=0)).sid
    assert transitions.close(sid + 1) is None
    assert transitions.lost(2, now=0) is None
    assert transitions.sessions.by_connection(1) == sid


# A second open takes over, where the operator wants it.

OLD_NODES = [dialect for dialect in Dialect if dialect.is_of_old_nodes]


def taking_over(journal: Journal) -> SessionTransitions:
    credentials = Credentials([Credential(TOKEN_OF_ANA, ANA)])
    return SessionTransitions(journal, credentials, SessionRules(grace_seconds=120, second_open_takes_over=True))


@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize("first", OLD_NODES)
@pytest.mark.parametrize("second", OLD_NODES)
def test_a_second_open_takes_over_live_and_lost_sessions_in_every_dialect_of_the_old_nodes(
    journal: Journal, first: Dialect, second: Dialect, is_lost: bool
) -> None:
    transitions = taking_over(journal)
    sid = opened(transitions.open(replace(opener(1), dialect=first), "t1", now=0)).sid
    if is_lost:
        transitions.lost(1, now=10)
    result = opened(transitions.open(replace(opener(2), dialect=second), "t2", now=20))
    assert (result.sid, result.is_resumed, result.replaced) == (sid, True, None if is_lost else 1)
    assert transitions.sessions.by_connection(1) is None
    assert transitions.sessions.by_session_address(f"{ANA}/t1") is None
    assert transitions.sessions.by_session_address(f"{ANA}/t2") is not None


def test_a_second_open_on_the_same_connection_renews_the_session(journal: Journal) -> None:
    transitions = taking_over(journal)
    sid = opened(transitions.open(opener(1), "t1", now=0)).sid
    result = opened(transitions.open(opener(1), "t2", now=20))
    assert (result.sid, result.is_renewed, result.replaced) == (sid, True, None)
    other = transitions.open(opener(1, runtime="runtime://alpha.example/rt-bo"), "t3", now=20)
    assert other == OpenRefused(Code.DUPLICATE)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_session_that_proved_something_is_never_taken_over_by_address(journal: Journal, is_lost: bool) -> None:
    transitions = taking_over(journal)
    sid = opened(transitions.open(opener(1, credential=TOKEN_OF_ANA), "t1", now=0)).sid
    if is_lost:
        transitions.lost(1, now=10)
    for now in (20, 60, 100):
        refused = transitions.open(opener(2), "t2", now=now)
        assert isinstance(refused, OpenRefused)
        assert refused.code is Code.ADDRESS_TAKEN
    assert transitions.sessions.by_runtime(ANA) == sid


@pytest.mark.parametrize("is_in_full", [True, False])
@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize("takes_over", [True, False])
@pytest.mark.parametrize("dialect", Dialect)
def test_a_proof_brings_back_what_was_opened_without_one_whether_or_not_second_opens_take_over(
    journal: Journal, dialect: Dialect, takes_over: bool, is_lost: bool, is_in_full: bool
) -> None:
    rules = SessionRules(second_open_takes_over=takes_over)
    transitions = SessionTransitions(journal, Credentials([Credential(TOKEN_OF_ANA, ANA)]), rules)
    sid = opened(transitions.open(replace(opener(1), dialect=dialect), "t1", now=0)).sid
    if is_lost:
        transitions.lost(1, now=10)
    proven = Proven(TOKEN_OF_ANA, is_in_full=is_in_full)
    result = opened(transitions.open(replace(opener(2), proven=proven), "t2", now=20))
    assert (result.sid, result.is_resumed, result.replaced) == (sid, True, None if is_lost else 1)
    refused = transitions.open(opener(3), "t3", now=30)
    assert isinstance(refused, OpenRefused), "the session has a proof now, so its address alone takes nothing"


@pytest.mark.parametrize("dialect", [Dialect.HTTPS, Dialect.MQTT])
def test_sessions_of_newer_bindings_are_not_taken_over(journal: Journal, dialect: Dialect) -> None:
    transitions = taking_over(journal)
    opened(transitions.open(replace(opener(1), dialect=dialect), "t1", now=0))
    assert isinstance(transitions.open(opener(2), "t2", now=10), OpenRefused)
    transitions = taking_over(Journal())
    opened(transitions.open(opener(1), "t1", now=0))
    assert isinstance(transitions.open(replace(opener(2), dialect=dialect), "t2", now=10), OpenRefused)


def test_a_long_grace_is_given_only_while_there_is_room(journal: Journal) -> None:
    rules = SessionRules(grace_seconds=86_400, max_sessions=20, second_open_takes_over=True)
    transitions = SessionTransitions(journal, Credentials(), rules)
    names = [f"runtime://alpha.example/rt-{number}" for number in range(20)]
    for number, name in enumerate(names):
        opened(transitions.open(opener(number + 1, runtime=name), f"t{number}", now=0))
    for number in range(15):
        transitions.lost(number + 1, now=number)
    assert transitions.expire(now=119.9) is None
    ended = []
    while (session := transitions.expire(now=200)) is not None:
        ended.append(session.runtime_key)
    assert ended == names[:2]  # the longest lost, until nine tenths are left
    assert transitions.open(opener(99, runtime=f"{ANA}-new"), "t99", now=201) != OpenRefused(Code.OVERLOAD)


@pytest.mark.parametrize("taken", [20, 18])
def test_live_sessions_and_those_lost_a_moment_ago_do_not_make_room(journal: Journal, taken: int) -> None:
    transitions = SessionTransitions(journal, Credentials(), SessionRules(grace_seconds=86_400, max_sessions=20))
    for number in range(taken):
        opened(transitions.open(opener(number + 1, runtime=f"{ANA}-{number}"), f"t{number}", now=0))
    assert transitions.expire(now=10_000) is None
    transitions.lost(1, now=10_000)
    assert transitions.expire(now=10_119) is None
    assert (transitions.expire(now=10_121) is None) is (taken == 18)
