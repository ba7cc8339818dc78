"""What a message has to fulfil beyond its sender: whom its body names as source, its time, its levels."""

from __future__ import annotations

import pytest

from federation.core.border import HopBound
from msg_node.addresses.core.subscriptions import Subscription
from msg_node.bus.core.admission import Admission, check_named_source, check_passable, is_refusal_sent
from msg_node.bus.core.router import Learned
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.credentials import Credential, digest_of
from protofly import codec, limits
from protofly.counters import Counters
from protofly.errors import Code, PeerError
from tests.msg_node.bus.test_router import ROOM, SM, Rig
from tests.support.runtime_rig import DOMAIN, FOREIGN, Json, a_message, parsed
from tests.support.state_rig import StateRig

OWN = f"hyperty://{DOMAIN}/ana"
THEIRS = f"hyperty://{DOMAIN}/bo"


def refusal_of(type_: str, to: str, source: object) -> Code | None:
    """What a session that owns one address gets when its message names a source."""
    rig = Rig()
    ana, bo = rig.session("ana"), rig.session("bo")
    rig.state.owners.claim(ana, OWN)
    rig.state.owners.claim(bo, THEIRS)
    try:
        check_named_source(rig.state, ana, parsed(a_message(type_, OWN, to, {"source": source}, id_=1)))
    except PeerError as exc:
        return exc.code
    return None


@pytest.mark.parametrize("type_", ["create", "update", "subscribe", "event"])
@pytest.mark.parametrize("to", [ROOM, SM])
@pytest.mark.parametrize(
    ("source", "code"),
    [
        (OWN, None),
        (OWN.upper().replace("ANA", "ana"), None),
        (f"{OWN}/below", None),
        ("plain-name", None),
        ("", None),
        (7, None),
        (THEIRS, Code.SPOOFED_SOURCE),
        (f"{THEIRS}/below", Code.SPOOFED_SOURCE),
        ("hyperty://beta.example/ben", Code.SPOOFED_SOURCE),
        (f"domain://{DOMAIN}", Code.SPOOFED_SOURCE),
        ("hyperty://[::1", Code.BAD_BODY),
    ],
)
def test_a_message_names_no_source_but_what_its_session_may_speak_as(
    type_: str, to: str, source: object, code: Code | None
) -> None:
    assert refusal_of(type_, to, source) is code


@pytest.mark.parametrize(
    ("type_", "to", "code"),
    [
        ("unsubscribe", SM, None),
        ("unsubscribe", ROOM, Code.SPOOFED_SOURCE),
        ("unsubscribe", f"{ROOM}/changes", Code.SPOOFED_SOURCE),
        ("subscribe", SM, Code.SPOOFED_SOURCE),
    ],
)
def test_only_who_unsubscribes_names_the_observer_that_it_takes_off(type_: str, to: str, code: Code | None) -> None:
    assert refusal_of(type_, to, THEIRS) is code


@pytest.mark.parametrize(("ttl", "is_over"), [(0, True), (1, False), (30, False)])
@pytest.mark.parametrize(("to", "class_"), [(f"thing://{DOMAIN}/lamp/actions/on", "action"), (ROOM, "x")])
def test_a_message_whose_time_is_over_goes_no_further(ttl: int, is_over: bool, to: str, class_: str) -> None:
    message = parsed(a_message("execute", OWN, to, {"ttl": ttl, "class": class_}, id_=1))
    if not is_over:
        check_passable(message)
        return
    with pytest.raises(PeerError) as refused:
        check_passable(message)
    assert refused.value.code is (Code.EXPIRED if class_ == "action" else Code.TIMEOUT)


@pytest.mark.parametrize(
    ("type_", "id_", "code", "is_notified"),
    [
        ("update", 1, Code.NOT_OWNER, True),
        ("update", 1, Code.SCHEMA, True),
        ("update", 0, Code.SCHEMA, True),
        ("update", 1, Code.NO_ROUTE, False),
        ("update", None, Code.NOT_OWNER, False),
        ("event", 1, Code.NOT_OWNER, False),
        ("response", 1, Code.NOT_OWNER, False),
        ("pong", 1, Code.SCHEMA, False),
    ],
)
def test_who_hears_that_its_change_was_refused(type_: str, id_: object, code: Code, is_notified: bool) -> None:
    assert is_refusal_sent(parsed(a_message(type_, OWN, f"{ROOM}/changes", {}, id_=id_)), code) is is_notified


class NothingAsked:
    def was_asked(self, _key: str, /) -> bool:
        return False


@pytest.mark.parametrize(
    ("from_", "source", "code"),
    [
        (f"hyperty://{FOREIGN}/h", None, None),
        (f"runtime://{FOREIGN}/rt", f"hyperty://{FOREIGN}/other", None),
        ("hyperty://gamma.example/h", None, Code.SPOOFED_SOURCE),
        (OWN, None, Code.SPOOFED_SOURCE),
        ("plain", None, Code.SPOOFED_SOURCE),
        (f"runtime://{FOREIGN}/rt", "hyperty://gamma.example/h", Code.SPOOFED_SOURCE),
        (f"runtime://{FOREIGN}/rt", "hyperty://[::1", Code.BAD_BODY),
        (f"runtime://{FOREIGN}/rt", "", Code.BAD_BODY),
    ],
)
def test_a_guest_speaks_in_names_of_its_domain(from_: str, source: str | None, code: Code | None) -> None:
    rig = StateRig(credentials=[Credential(digest_of("b"), f"runtime://{FOREIGN}/*")], allows_guests=True)
    rig.session_verb("open", f"runtime://{FOREIGN}/rt", 1, {"credentials": {"token": "b"}})
    number = rig.state.sessions.by_connection(1)
    assert number is not None
    admission = Admission(
        rig.state, Learned(), Counters(NodeCount), node="runtime://alpha.example/mn", max_hops=HopBound(20)
    )
    message = parsed(a_message("read", from_, SM, {} if source is None else {"source": source}, id_=1))
    if code is None:
        admission.check_guest(message, number, FOREIGN, now=rig.now)
        return
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        admission.check_guest(message, number, FOREIGN, now=rig.now)


@pytest.mark.parametrize("type_", ["response", "read"])
@pytest.mark.parametrize("name", ["hyperty://gamma.example/h", f"{OWN}/changes"])
def test_a_guest_answers_in_no_name_in_which_it_may_not_ask(type_: str, name: str) -> None:
    rig = StateRig(credentials=[Credential(digest_of("b"), f"runtime://{FOREIGN}/*")], allows_guests=True)
    (number,) = guests(rig, "rt")
    admission = Admission(
        rig.state, Learned(), Counters(NodeCount), node="runtime://alpha.example/mn", max_hops=HopBound(20)
    )
    message = parsed(a_message(type_, name, SM, id_=1))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.SPOOFED_SOURCE):
        admission.check_guest(message, number, FOREIGN, now=rig.now)


def admission_of(rig: StateRig, learned: Learned | None = None, *, max_hops: int = 20) -> Admission:
    counters = Counters(NodeCount)
    return Admission(
        rig.state, learned or Learned(), counters, node=f"runtime://{DOMAIN}/mn", max_hops=HopBound(max_hops)
    )


@pytest.mark.parametrize(
    ("type_", "from_", "is_learned"),
    [
        ("read", f"hyperty://{DOMAIN}/free", True),
        ("response", f"hyperty://{DOMAIN}/free", True),
        ("read", OWN, False),
        ("read", f"{OWN}/below", False),
        ("read", "plain-name", False),
        ("response", f"{ROOM}/changes", False),
    ],
)
def test_only_an_address_that_nobody_owns_is_learned(type_: str, from_: str, is_learned: bool) -> None:
    rig, learned = StateRig(), Learned()
    sid, _ = rig.open("rt", 1)
    rig.state.owners.claim(sid, OWN)
    rig.state.listeners.add(sid, [Subscription(f"{ROOM}/changes", f"{ROOM}/changes", "")])
    admission_of(rig, learned).admit(parsed(a_message(type_, from_, SM, id_=1)), sid, NothingAsked(), rig.now)
    assert learned.find(from_, rig.now) == (sid if is_learned else None)


@pytest.mark.parametrize(("type_", "code"), [("read", Code.SPOOFED_SOURCE), ("response", None)])
def test_the_source_of_a_request_is_checked_and_that_of_a_response_is_its_own_affair(
    type_: str, code: Code | None
) -> None:
    rig = StateRig()
    ana, _ = rig.open("ana", 1)
    bo, _ = rig.open("bo", 2)
    rig.state.owners.claim(ana, OWN)
    rig.state.owners.claim(bo, THEIRS)
    message = parsed(a_message(type_, OWN, SM, {"source": THEIRS}, id_=1))
    if code is None:
        assert admission_of(rig).admit(message, ana, NothingAsked(), rig.now) is message
        return
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        admission_of(rig).admit(message, ana, NothingAsked(), rig.now)


def test_a_session_sends_nothing_whose_time_is_over() -> None:
    rig = StateRig()
    sid, _ = rig.open("rt", 1)
    for ttl in (1, 0):
        message = parsed(a_message("read", f"runtime://{DOMAIN}/rt", SM, {"ttl": ttl}, id_=1))
        if ttl:
            assert admission_of(rig).admit(message, sid, NothingAsked(), rig.now) is message
            continue
        with pytest.raises(PeerError, check=lambda error: error.code is Code.TIMEOUT):
            admission_of(rig).admit(message, sid, NothingAsked(), rig.now)


@pytest.mark.parametrize(
    ("via", "code"),
    [
        ([], None),
        (["runtime://beta.example/mn", "runtime://gamma.example/mn"], None),
        ([f"runtime://{DOMAIN}/mn"], Code.LOOP),
        (["runtime://beta.example/mn", f"runtime://{DOMAIN}/mn"], Code.LOOP),
        ([f"runtime://{name}.example/mn" for name in ("beta", "gamma", "delta")], Code.HOP_LIMIT),
    ],
)
def test_a_message_that_was_here_before_or_passed_too_many_nodes_is_refused(via: list[str], code: Code | None) -> None:
    rig = StateRig()
    sid, _ = rig.open("rt", 1)
    message = parsed(a_message("read", f"runtime://{DOMAIN}/rt", SM, {"via": via}, id_=1))
    admission = admission_of(rig, max_hops=2)
    if code is None:
        assert admission.admit(message, sid, NothingAsked(), rig.now) is message
        return
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        admission.admit(message, sid, NothingAsked(), rig.now)


@pytest.mark.parametrize("flags", [{}, {"auth": True}, {"sessionToken": "x"}, {"auth": False, "sessionToken": "x"}])
def test_members_that_only_nodes_set_are_taken_off_what_sessions_send(flags: dict[str, object]) -> None:
    rig = StateRig()
    sid, _ = rig.open("rt", 1)
    admission = Admission(
        rig.state, Learned(), Counters(NodeCount), node="runtime://alpha.example/mn", max_hops=HopBound(20)
    )
    message = parsed(a_message("read", f"runtime://{DOMAIN}/rt", SM, {"value": 1, **flags}, id_=1))
    admitted = admission.admit(message, sid, NothingAsked(), rig.now)
    assert codec.body_members(admitted.body) == {"value": 1}
    assert (admitted is message) is (not flags)


def guests(rig: StateRig, *names: str) -> list[int]:
    """Numbers of sessions of runtimes of another domain."""
    numbers = []
    for connection, name in enumerate(names, 1):
        rig.session_verb("open", f"runtime://{FOREIGN}/{name}", connection, {"credentials": {"token": "b"}})
        number = rig.state.sessions.by_connection(connection)
        assert number is not None
        numbers.append(number)
    return numbers


@pytest.mark.parametrize(
    ("type_", "code"), [("read", Code.TIMEOUT), ("execute", Code.TIMEOUT), ("forward", Code.TOO_DEEP)]
)
def test_a_guest_sends_nothing_that_is_late_or_wrapped_too_often(type_: str, code: Code) -> None:
    rig = StateRig(credentials=[Credential(digest_of("b"), f"runtime://{FOREIGN}/*")], allows_guests=True)
    (number,) = guests(rig, "rt")
    admission = Admission(
        rig.state, Learned(), Counters(NodeCount), node="runtime://alpha.example/mn", max_hops=HopBound(20)
    )
    name = f"hyperty://{FOREIGN}/h"
    body: Json = {"ttl": 0}
    if code is Code.TOO_DEEP:
        body = {"message": a_message("read", name, OWN, id_=1)}
        for _ in range(limits.FORWARD_LEVELS):
            body = {"message": a_message("forward", name, OWN, body, id_=1)}
    message = parsed(a_message(type_, name, SM, body, id_=1))
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        admission.check_guest(message, number, FOREIGN, now=rig.now)


def test_a_guest_speaks_in_no_name_of_another_guest_and_in_those_of_ours_that_it_leases() -> None:
    rig = StateRig(credentials=[Credential(digest_of("b"), f"runtime://{FOREIGN}/*")], allows_guests=True)
    first, second = guests(rig, "rt", "other")
    rig.state.owners.claim(first, OWN)
    admission = Admission(
        rig.state, Learned(), Counters(NodeCount), node="runtime://alpha.example/mn", max_hops=HopBound(20)
    )

    def code_of(number: int, from_: str) -> Code | None:
        try:
            message = parsed(a_message("read", from_, SM, id_=1))
            admission.check_guest(message, number, FOREIGN, now=rig.now)
        except PeerError as exc:
            return exc.code
        return None

    name = f"hyperty://{FOREIGN}/h"
    assert [code_of(number, name) for number in (first, first, second)] == [None, None, Code.NOT_OWNER]
    assert [code_of(number, OWN) for number in (first, second)] == [None, Code.NOT_OWNER]
    assert code_of(first, f"runtime://{FOREIGN}/rt") is None
    assert code_of(second, f"runtime://{FOREIGN}/rt") is not None


def test_a_session_speaks_in_no_name_of_another_and_is_counted() -> None:
    rig = StateRig()
    ana, _ = rig.open("ana", 1)
    bo, _ = rig.open("bo", 2)
    rig.state.owners.claim(bo, THEIRS)
    counters = Counters(NodeCount)
    admission = Admission(rig.state, Learned(), counters, node="runtime://alpha.example/mn", max_hops=HopBound(20))
    message = parsed(a_message("read", THEIRS, SM, id_=1))
    assert admission.admit(message, bo, NothingAsked(), rig.now) is message
    with pytest.raises(PeerError):
        admission.admit(message, ana, NothingAsked(), rig.now)
    assert counters[NodeCount.REFUSED_SOURCES] == 1


@pytest.mark.parametrize(
    ("from_", "is_learned"), [(f"{OWN}/leased", False), (f"{OWN}/leased/sub", False), (f"hyperty://{FOREIGN}/h", True)]
)
def test_only_names_of_its_own_domain_are_learned_of_a_guest(from_: str, *, is_learned: bool) -> None:
    rig = StateRig(credentials=[Credential(digest_of("b"), f"runtime://{FOREIGN}/*")], allows_guests=True)
    rig.session_verb("open", f"runtime://{FOREIGN}/rt", 1, {"credentials": {"token": "b"}})
    number = rig.state.sessions.by_connection(1)
    assert number is not None
    rig.state.owners.claim(number, f"{OWN}/leased")
    learned = Learned()
    admission = Admission(
        rig.state, learned, Counters(NodeCount), node="runtime://alpha.example/mn", max_hops=HopBound(20)
    )
    admission.check_guest(parsed(a_message("read", from_, SM, {}, id_=1)), number, FOREIGN, now=rig.now)
    assert learned.find(from_, rig.now) == (number if is_learned else None)
