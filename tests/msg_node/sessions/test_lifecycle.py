"""Sessions with what they hold: who answers for a runtime's address, what is freed when, and how much at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from msg_node.kernel.changes import Journal
from msg_node.kernel.credentials import Credentials
from msg_node.kernel.registrations import Status, StatusChange
from msg_node.kernel.session import Opened, Opener, Session
from msg_node.sessions.core import lifecycle as lifecycle_module
from msg_node.sessions.core.guests import Guests
from msg_node.sessions.core.lifecycle import HeldTables, Holdings, SessionLifecycle
from msg_node.sessions.core.transitions import SessionRules, SessionTransitions

ANA, BO, GUEST = "runtime://alpha.example/ana", "runtime://alpha.example/bo", "runtime://beta.example/g"
GRACE_SECONDS, LEASE_SECONDS, SILENCE_SECONDS = 120.0, 60.0, 30.0


class Held(HeldTables):
    """Holdings in memory. Each session has one registry entry, which is disconnected when it ends."""

    def __init__(self) -> None:
        self.speakers: dict[str, int] = {}
        self.holdings = Holdings(0, 0)
        self.released: list[int] = []

    def count(self, _sid: int) -> Holdings:
        return self.holdings

    def bind(self, runtime_key: str, sid: int) -> None:
        self.speakers[runtime_key] = sid

    def unbind(self, runtime_key: str, sid: int) -> None:
        if self.speakers.get(runtime_key) == sid:
            del self.speakers[runtime_key]

    def release(self, sid: int, *, now: float) -> list[StatusChange]:  # noqa: ARG002
        self.released.append(sid)
        return [disconnected(sid)]


def disconnected(sid: int) -> StatusChange:
    url = f"hyperty://alpha.example/of-{sid}"
    return StatusChange(url, url, Status.DISCONNECTED)


class Rig:
    """A lifecycle over such tables."""

    def __init__(self) -> None:
        rules = SessionRules(GRACE_SECONDS, SILENCE_SECONDS, LEASE_SECONDS)
        self.held, self.guests = Held(), Guests(10, lambda _sid: 0, {"alpha.example"})
        transitions = SessionTransitions(Journal(), Credentials(), rules)
        self.lifecycle = SessionLifecycle(transitions, self.guests, self.held)

    def open(self, runtime: str, connection: int, *, now: float = 0.0) -> tuple[int, list[StatusChange]]:
        opener = Opener(runtime, runtime, connection, is_guest=runtime == GUEST)
        result, changes = self.lifecycle.open(opener, f"token-{connection}", now=now)
        assert isinstance(result, Opened), result
        return result.sid, changes


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_session_answers_for_its_runtime_while_it_is_live_or_parked(rig: Rig) -> None:
    sid, changes = rig.open(ANA, 1)
    assert (rig.held.speakers, changes) == ({ANA: sid}, [])
    assert rig.lifecycle.lost(1, now=1) == (sid, [])
    assert (rig.held.speakers, rig.held.released) == ({ANA: sid}, [])


@pytest.mark.parametrize(
    "end",
    [
        lambda lifecycle, sid: lifecycle.close(sid, now=1),
        lambda lifecycle, _sid: (lifecycle.lost(1, now=1), lifecycle.expire(now=1 + GRACE_SECONDS))[1][1],
    ],
)
def test_what_a_session_held_is_freed_once_and_reported_when_it_ends(
    rig: Rig, end: Callable[[SessionLifecycle, int], list[StatusChange]]
) -> None:
    sid, _ = rig.open(ANA, 1)
    other, _ = rig.open(BO, 2)
    assert end(rig.lifecycle, sid) == [disconnected(sid)]
    assert (rig.held.speakers, rig.held.released) == ({BO: other}, [sid])
    assert rig.lifecycle.close(sid, now=2) == []
    assert rig.held.released == [sid]


@pytest.mark.parametrize(
    "end",
    [
        lambda lifecycle: lifecycle.lost(1, now=1)[1],
        lambda lifecycle: lifecycle.overdue(now=LEASE_SECONDS)[1],
    ],
)
def test_the_session_of_a_guest_ends_with_its_connection_and_that_of_a_runtime_of_ours_does_not(
    end: Callable[[SessionLifecycle], list[StatusChange]],
) -> None:
    guests, ours = Rig(), Rig()
    sid, _ = guests.open(GUEST, 1)
    assert guests.guests.domain(sid) == "beta.example"
    assert end(guests.lifecycle) == [disconnected(sid)]
    assert (guests.held.speakers, guests.guests.domains()) == ({}, [])
    sid, _ = ours.open(ANA, 1)
    assert end(ours.lifecycle) == []
    assert (ours.held.speakers, ours.held.released) == ({ANA: sid}, [])


def test_all_guests_that_are_overdue_end_and_are_reported(rig: Rig) -> None:
    sids = []
    for connection in (1, 2):
        opener = Opener(f"{GUEST}{connection}", f"{GUEST}{connection}", connection, is_guest=True)
        result, _ = rig.lifecycle.open(opener, f"token-{connection}", now=0)
        assert isinstance(result, Opened)
        sids.append(result.sid)
    ana, _ = rig.open(ANA, 3)
    lost, changes = rig.lifecycle.overdue(now=LEASE_SECONDS)
    assert [(session.sid, connection) for session, connection in lost] == [*zip(sids, (1, 2), strict=True), (ana, 3)]
    assert changes == [disconnected(sid) for sid in sids]


@pytest.mark.parametrize(
    ("holdings", "at_once"), [((0, 0), 10), ((1, 0), 5), ((0, 1), 5), ((4, 0), 2), ((2, 2), 2), ((50, 50), 1)]
)
def test_sessions_expire_in_slices_that_are_bounded_by_what_they_held(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, holdings: tuple[int, int], at_once: int
) -> None:
    monkeypatch.setattr(lifecycle_module, "RELEASED_AT_ONCE", 10)
    rig.held.holdings = Holdings(*holdings)
    for connection in range(1, 13):
        rig.open(f"{ANA}-{connection}", connection)
        rig.lifecycle.lost(connection, now=0)
    slices = []
    while (slice_ := rig.lifecycle.expire(now=GRACE_SECONDS))[0]:
        slices.append(slice_)
    assert len(slices[0][0]) == at_once
    ended = [(session.sid, held) for sessions, _ in slices for session, held in sessions]
    assert ended == [(sid, holdings) for sid in range(1, 13)]
    assert [change for _, changes in slices for change in changes] == [disconnected(sid) for sid in range(1, 13)]


def test_who_comes_back_by_token_ends_the_newcomer_with_all_that_it_held(rig: Rig) -> None:
    older, _ = rig.open(ANA, 1)
    rig.lifecycle.open(Opener(ANA, ANA, 2), "token-2", now=0)
    newcomer, changes = rig.open(ANA, 2, now=SILENCE_SECONDS)
    assert (rig.held.speakers, changes) == ({ANA: newcomer}, [])
    result, changes = rig.lifecycle.re_open(f"{ANA}/token-1", 3, now=40)
    assert result is not None
    assert (result.sid, result.ended) == (older, (newcomer,))
    assert (rig.held.speakers, rig.held.released, changes) == ({ANA: older}, [newcomer], [disconnected(newcomer)])
    assert rig.lifecycle.re_open(f"{ANA}/token-2", 4, now=40) == (None, [])


def test_a_guest_that_was_silent_makes_room_with_all_that_it_held(rig: Rig) -> None:
    first, _ = rig.open(GUEST, 1)
    rig.lifecycle.open(Opener(GUEST, GUEST, 2, is_guest=True), "token-2", now=0)
    second, changes = rig.open(GUEST, 2, now=SILENCE_SECONDS)
    assert (rig.held.speakers, rig.held.released, changes) == ({GUEST: second}, [first], [disconnected(first)])
    assert set(rig.guests.of("beta.example")) == {second}


def test_restored_sessions_answer_for_their_runtimes_and_displaced_ones_do_not(rig: Rig) -> None:
    older, _ = rig.open(ANA, 1)
    rig.lifecycle.open(Opener(ANA, ANA, 2), "token-2", now=0)
    newcomer, _ = rig.open(ANA, 2, now=SILENCE_SECONDS)
    found = {session.sid: session for session in rig.lifecycle.sessions}
    for order in ((older, newcomer), (newcomer, older)):
        again = Rig()
        for sid in order:
            again.lifecycle.sessions.add(stored(found[sid]))
        again.lifecycle.restored()
        assert again.held.speakers == {ANA: newcomer}


def stored(session: Session) -> Session:
    return session.row().parked_session(frozenset(), now=0.0)
