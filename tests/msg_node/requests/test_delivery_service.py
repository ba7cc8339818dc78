"""The services `delivery` and `inbox` under whatever strangers send: an answer with a code, no fault, no change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msg_node.kernel.credentials import Credential, digest_of
from msg_node.requests.core.inbox import Notice
from msg_node.requests.core.parked import Sender, Submission
from protofly import codec
from protofly.limits import PAGE_ENTRIES, RESOURCES_ENTRIES
from tests.support.state_rig import DOMAIN, StateRig

DELIVERY = f"domain://msg-node.{DOMAIN}/delivery"
INBOX = f"domain://msg-node.{DOMAIN}/inbox"
OWNER = f"runtime://{DOMAIN}/rt-owner"
AGENT = f"thing://{DOMAIN}/agent-4"

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just("d-1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["resource", "resources", "criteria", "page", "requestId", "status", "to", "from"])
BODIES = st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES, max_size=3), max_size=4)


def a_rig() -> StateRig:
    """One open request and one inbox entry of an owner."""
    rig = StateRig()
    rig.open("rt-owner", 1)
    sender = Sender(OWNER)
    request = codec.build(id=1, type="execute", from_=OWNER, to=f"{AGENT}/lamp/actions/x", body={"class": "action"})
    tables = rig.state.delivery
    entry = tables.parking.submit(Submission(request, AGENT, sender, "d-1", 1e6), rig.now)
    tables.parking.store(entry)
    tables.inboxes.deposit(Notice(OWNER, sender, "d-2", AGENT, b'{"code":200,"status":"completed"}', True), 1.0)
    return rig


@pytest.mark.parametrize("to", [DELIVERY, INBOX])
@settings(max_examples=200, deadline=None)
@given(type_=st.sampled_from(["read", "delete", "update", "execute"]), body=BODIES)
def test_strangers_get_a_code_for_anything_and_change_nothing(to: str, type_: str, body: dict[str, object]) -> None:
    rig = a_rig()
    sid, _ = rig.open("rt-eve", 2)
    reply = rig.reply(sid, to, type_, body)
    assert reply["code"] in (200, 400, 404, 405, 413, 501)
    assert reply.get("value") in (None, [], {"acknowledged": 0})
    assert len(rig.state.delivery.parking) == 1
    assert len(rig.state.delivery.inboxes) == 1


@settings(max_examples=200, deadline=None)
@given(type_=st.sampled_from(["read", "delete"]), body=BODIES)
def test_the_owner_gets_a_code_for_anything_as_well(type_: str, body: dict[str, object]) -> None:
    rig = a_rig()
    sid = rig.state.sessions.by_runtime(OWNER)
    assert sid is not None
    for to in (DELIVERY, INBOX):
        assert rig.reply(sid, to, type_, body)["code"] in (200, 400, 404, 405, 409, 413, 501)


def asked(rig: StateRig, to: str, type_: str, body: dict[str, object], who: str = OWNER) -> tuple[object, object]:
    """Code and value of the answer to a runtime."""
    sid = rig.state.sessions.by_runtime(who)
    assert sid is not None
    reply = rig.reply(sid, to, type_, body)
    return reply["code"], reply.get("value")


def parked(rig: StateRig, request_id: str, to: str = f"{AGENT}/lamp/actions/x") -> None:
    parking = rig.state.delivery.parking
    request = codec.build(id=request_id, type="execute", from_=OWNER, to=to, body={})
    queue = to.rpartition("/lamp")[0]
    parking.store(parking.submit(Submission(request, queue, Sender(OWNER), request_id, 1e6), rig.now))


@pytest.mark.parametrize(
    ("criteria", "is_shown"),
    [
        ({}, True),
        ({"to": AGENT}, True),
        ({"to": f"{AGENT}/lamp/actions/x"}, True),
        ({"to": f"{AGENT}/lamp"}, False),
        ({"from": OWNER}, True),
        ({"from": AGENT}, False),
        ({"status": "queued"}, True),
        ({"status": "delivered"}, False),
        ({"to": AGENT, "from": OWNER, "status": "Pending"}, True),
        ({"to": AGENT, "from": AGENT, "status": "pending"}, False),
    ],
    ids=repr,
)
def test_the_senders_list_holds_the_open_requests_that_are_asked_for(
    criteria: dict[str, object], is_shown: bool
) -> None:
    code, value = asked(a_rig(), DELIVERY, "read", {"criteria": criteria})
    shown = {"requestId": "d-1", "status": "pending", "from": OWNER, "to": f"{AGENT}/lamp/actions/x"}
    assert (code, value) == (200, [shown | {"expires": 1_604_800}] if is_shown else [])


@pytest.mark.parametrize("criteria", [{"status": "soon"}, {"status": 5}, {"to": 5}, {"from": []}], ids=repr)
def test_criteria_that_are_not_understood_are_refused(criteria: dict[str, object]) -> None:
    assert asked(a_rig(), DELIVERY, "read", {"criteria": criteria})[0] == 400


def test_lists_come_in_pages_that_count_from_one() -> None:
    rig = StateRig()
    rig.open("rt-owner", 1)
    names = [f"d-{number}" for number in range(PAGE_ENTRIES + 1)]
    for name in names:
        parked(rig, name)

    def page(**body: object) -> list[str]:
        code, value = asked(rig, DELIVERY, "read", body)
        assert code == 200
        assert isinstance(value, list)
        return [one["requestId"] for one in value]

    assert page() == page(page=1) == page(page=0) == names[:-1]
    assert page(page=2) == names[-1:]
    assert page(page=3) == []
    for wrong in (True, -1, "1", 1.5, None):
        assert asked(rig, DELIVERY, "read", {"page": wrong})[0] == 400


def test_a_cancelled_request_is_final_and_can_still_be_read() -> None:
    rig = a_rig()
    assert asked(rig, DELIVERY, "delete", {}) == (400, None)
    assert asked(rig, DELIVERY, "delete", {"resource": "d-1"}) == (
        200,
        {"requestId": "d-1", "status": "cancelled"},
    )
    code, value = asked(rig, DELIVERY, "read", {"resource": "d-1"})
    assert isinstance(value, dict)
    assert (code, value["requestId"], value["status"], value["to"]) == (200, "d-1", "cancelled", AGENT)
    assert asked(rig, DELIVERY, "read", {}) == (200, [])
    assert asked(rig, DELIVERY, "delete", {"resource": "d-1"})[0] == 409
    assert asked(rig, DELIVERY, "delete", {"resource": "d-9"})[0] == 404


def test_a_result_that_waits_in_the_inbox_is_shown_as_the_requests_state() -> None:
    rig = a_rig()
    rig.open("rt-eve", 2)
    shown = {"to": AGENT, "from": OWNER, "code": 200, "status": "completed"}
    assert asked(rig, DELIVERY, "read", {"requestId": "d-2"}) == (200, shown)
    assert asked(rig, DELIVERY, "read", {"requestId": "d-2"}, f"runtime://{DOMAIN}/rt-eve")[0] == 404


def test_the_inbox_shows_results_until_they_are_acknowledged() -> None:
    rig = a_rig()
    code, value = asked(rig, INBOX, "read", {})
    assert isinstance(value, list)
    [entry] = value
    number = entry["id"]
    assert (code, entry) == (200, {"id": number, "to": f"{OWNER}/inbox", "code": 200, "status": "completed"})
    assert asked(rig, INBOX, "read", {"criteria": {"status": "completed"}})[1] == [entry]
    assert asked(rig, INBOX, "read", {"criteria": {"status": "failed"}})[1] == []
    for wrong in (True, None, "x", "1" * 20, [], [number, None], [1] * (RESOURCES_ENTRIES + 1)):
        assert asked(rig, INBOX, "delete", {"resources": wrong})[0] == 400
    assert asked(rig, INBOX, "delete", {"resources": [number + 1] * RESOURCES_ENTRIES}) == (200, {"acknowledged": 0})
    assert asked(rig, INBOX, "delete", {"resource": "1" * 19}) == (200, {"acknowledged": 0})
    assert asked(rig, INBOX, "delete", {"resource": str(number)}) == (200, {"acknowledged": 1})
    assert asked(rig, INBOX, "read", {}) == (200, [])


def test_statistics_count_what_waits() -> None:
    rig = a_rig()
    parked(rig, "d-3", f"thing://{DOMAIN}/agent-5/lamp/x")
    counted = rig.state.delivery.statistics()
    assert counted.pop("open_bytes") > 0
    assert counted == {"open": 2, "queues": 2, "inbox_entries": 1, "inbox_dropped": 0}


BETA = "runtime://beta.example/mn-1"


@pytest.fixture
def several() -> StateRig:
    """Requests for an agent of ours: `d-1` of a runtime of ours, `d-2` of the domain `beta.example`."""
    rig = StateRig(credentials=[Credential(digest_of("ops"), f"runtime://{DOMAIN}/ops", frozenset({"operator"}))])
    rig.open("rt-owner", 1)
    agent, _ = rig.open("rt-agent", 2)
    rig.open("rt-eve", 3)
    rig.open("ops", 4, {"credentials": {"token": "ops"}})
    rig.state.owners.claim(agent, AGENT)
    parked(rig, "d-1")
    parking = rig.state.delivery.parking
    request = codec.build(id="d-2", type="execute", from_=BETA, to=f"{AGENT}/lamp/actions/x", body={})
    parking.store(parking.submit(Submission(request, AGENT, Sender("", domain="beta.example"), "d-2", 1e6), rig.now))
    return rig


SEEN_BY: list[tuple[str, set[str]]] = [
    ("rt-owner", {"d-1"}),
    ("rt-agent", {"d-1", "d-2"}),
    ("ops", {"d-1", "d-2"}),
    ("rt-eve", set()),
    ("beta.example", {"d-2"}),
    ("gamma.example", set()),
]


def spoken(rig: StateRig, who: str, type_: str, body: dict[str, object]) -> dict[str, object]:
    """The answer to a runtime of ours, or to the node of another domain."""
    if who.endswith(".example"):
        return rig.reply(rig.state.links.number(who), DELIVERY, type_, body, from_=f"runtime://{who}/mn-1")
    sid = rig.state.sessions.by_runtime(f"runtime://{DOMAIN}/{who}")
    assert sid is not None
    return rig.reply(sid, DELIVERY, type_, body)


@pytest.mark.parametrize(("who", "seen"), SEEN_BY)
def test_a_request_is_shown_to_its_sender_its_agent_and_operators(several: StateRig, who: str, seen: set[str]) -> None:
    value = spoken(several, who, "read", {})["value"]
    assert isinstance(value, list)
    assert [one["requestId"] for one in value] == sorted(seen)
    for name in ("d-1", "d-2"):
        assert spoken(several, who, "read", {"resource": name})["code"] == (200 if name in seen else 404)


def test_a_request_of_another_domain_with_the_same_id_hides_none(several: StateRig) -> None:
    parking = several.state.delivery.parking
    for domain, number in (("beta.example", 1), ("gamma.example", 2), ("delta.example", 2)):
        agent = AGENT if number == 1 else f"{OWNER}/thing"
        for name in ("d-1",) if domain == "beta.example" else ("d-1", "d-2"):
            request = codec.build(id=name, type="execute", from_=f"runtime://{domain}/rt", to=f"{agent}/x", body={})
            sender = Sender("", domain=domain)
            parking.store(parking.submit(Submission(request, agent, sender, name, 1e6), several.now))
    for who, name, from_ in (("rt-owner", "d-1", OWNER), ("rt-agent", "d-2", BETA)):
        value = spoken(several, who, "read", {"resource": name})["value"]
        assert isinstance(value, dict)
        assert value["from"] == from_


def test_who_has_no_session_sees_no_requests_and_no_inbox(several: StateRig) -> None:
    body = {"resources": [1]}
    for number in (99, several.state.links.number("beta.example")):
        for to, type_, value in ((INBOX, "read", []), (INBOX, "delete", {"acknowledged": 0})):
            reply = several.reply(number, to, type_, body, from_="runtime://beta.example/mn-1")
            assert (reply["code"], reply["value"]) == (200, value)
    assert several.reply(99, DELIVERY, "read", {})["value"] == []


@pytest.mark.parametrize(("who", "seen"), SEEN_BY)
def test_a_request_is_cancelled_by_whom_it_is_shown_to(several: StateRig, who: str, seen: set[str]) -> None:
    for name in ("d-1", "d-2"):
        assert spoken(several, who, "delete", {"resource": name})["code"] == (200 if name in seen else 404)
    assert len(several.state.delivery.parking) == 2 - len(seen)
    assert [is_sender for _, is_sender in several.state.delivery.cancelled] == [who not in ("rt-agent", "ops")] * len(
        seen
    )


@pytest.mark.parametrize(
    ("who", "seen"),
    [("rt-owner", {"d-1"}), ("rt-agent", {"d-1"}), ("ops", {"d-1"}), ("rt-eve", set()), ("beta.example", {"d-2"})],
)
def test_what_was_cancelled_is_final_for_whom_it_was_shown_to(several: StateRig, who: str, seen: set[str]) -> None:
    for name in ("d-1", "d-2"):
        assert spoken(several, "ops", "delete", {"resource": name})["code"] == 200
    for name in ("d-1", "d-2"):
        assert spoken(several, who, "delete", {"resource": name})["code"] == (409 if name in seen else 404)
        assert spoken(several, who, "read", {"resource": name})["code"] == (200 if name in seen else 404)


def test_an_inbox_shows_and_forgets_only_what_the_same_credential_may_see() -> None:
    rig = StateRig()
    rig.open("rt-owner", 1)
    inboxes = rig.state.delivery.inboxes
    for number, credential in enumerate(("", "another"), 1):
        notice = Notice(OWNER, Sender(OWNER, credential), f"d-{number}", AGENT, b'{"code":200,"status":"failed"}', True)
        inboxes.deposit(notice, 1.0)
    both = [entry.number for entry in inboxes.of_owner(OWNER)]
    code, value = asked(rig, INBOX, "read", {})
    assert isinstance(value, list)
    assert (code, [one["id"] for one in value]) == (200, both[:1])
    assert asked(rig, INBOX, "delete", {"resources": both}) == (200, {"acknowledged": 1})
    assert [entry.number for entry in inboxes.of_owner(OWNER)] == both[1:]


def test_a_notice_that_is_not_final_is_not_the_state_of_a_request() -> None:
    rig = a_rig()
    notice = Notice(OWNER, Sender(OWNER), "d-7", AGENT, b'{"code":100,"status":"delivered"}', False)
    rig.state.delivery.inboxes.deposit(notice, 1.0)
    assert asked(rig, DELIVERY, "read", {"resource": "d-7"})[0] == 404


def test_a_request_under_an_address_that_has_another_owner_now_is_listed_to_that_one_only() -> None:
    rig, own = StateRig(), f"hyperty://{DOMAIN}/own"
    rig.open("rt-owner", 1)
    eve, _ = rig.open("rt-eve", 2)
    parking = rig.state.delivery.parking
    request = codec.build(id=1, type="execute", from_=own, to=f"{AGENT}/lamp/actions/x", body={})
    parking.store(parking.submit(Submission(request, AGENT, Sender(OWNER), "d-1", 1e6), rig.now))
    assert [len(value) for _, value in (asked(rig, DELIVERY, "read", {}),) if isinstance(value, list)] == [1]
    rig.state.owners.claim(eve, own)
    assert asked(rig, DELIVERY, "read", {}) == (200, [])
