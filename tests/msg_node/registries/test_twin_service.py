"""Requests to the twin as plain decisions: who may, what is understood, which things a page shows."""

from __future__ import annotations

from typing import Any

import pytest

from msg_node.addresses.core.expulsions import ExpulsionRow
from msg_node.kernel.service import Caller, ServiceRequest
from msg_node.registries.core import twin_service
from msg_node.registries.core.twin_service import TwinService
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import PAGE_ENTRIES
from protofly.message import Message
from tests.support.state_rig import DOMAIN, StateRig

TWIN = f"domain://msg-node.{DOMAIN}/twin"
AGENT = f"thing://{DOMAIN}/agent-4"
LAMP = f"{AGENT}/lamp-1"
QUEUE = {"expires": 60, "max": 3}


@pytest.fixture
def rig() -> StateRig:
    rig = StateRig()
    rig.open("agent", 1)
    rig.open("other", 2)
    return rig


def ask(rig: StateRig, type_: str, number: Any = 1, **body: Any) -> dict[str, Any]:
    return rig.reply(number, TWIN, type_, body)


def described(rig: StateRig, name: str, kind: object, *, now: float) -> None:
    rig.now = now
    assert ask(rig, "create", resource=f"{AGENT}/{name}", value={"@type": kind})["code"] == 200


def names(rig: StateRig, **body: Any) -> list[str]:
    value = ask(rig, "read", 2, **body)["value"]
    assert value["total"] >= len(value["things"])
    return [one["resource"].rpartition("/")[2] for one in value["things"]]


@pytest.mark.parametrize("caller", [Caller(1, is_guest=True), Caller(-1)])
def test_the_twin_is_for_runtimes_of_this_domain(rig: StateRig, caller: Caller) -> None:
    service = TwinService(rig.state, rig.state.delivery.queues)
    message = codec.build(id=1, type="read", from_="runtime://beta.example/x", to=TWIN, body={})
    with pytest.raises(PeerError, check=lambda error: error.code is Code.POLICY):
        service(ServiceRequest(message, caller, DOMAIN, rig.now, bytes(32)))


@pytest.mark.parametrize("resource", [AGENT, LAMP])
def test_an_agent_announces_its_queue_without_a_description(rig: StateRig, resource: str) -> None:
    assert ask(rig, "create", resource=resource, queue=QUEUE)["value"] == {"resource": resource, "queue": QUEUE}
    assert rig.state.owners.owner(AGENT) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"resource": LAMP}, "bad-body"),
        ({"resource": LAMP, "value": None}, "bad-body"),
        ({"resource": LAMP, "value": [1]}, "bad-body"),
        ({"resource": AGENT, "value": {}}, "bad-body"),
        ({"resource": f"thing://{DOMAIN}", "queue": QUEUE}, "not-owner"),
        ({"resource": "thing://beta.example/a/b", "value": {}}, "not-owner"),
        ({"resource": f"comm://{DOMAIN}/room", "queue": QUEUE}, "not-owner"),
    ],
)
def test_what_is_no_thing_or_agent_of_ours_is_refused(rig: StateRig, body: dict[str, Any], reason: str) -> None:
    assert ask(rig, "create", **body)["reason"] == reason
    assert rig.state.owners.owner(AGENT) is None
    assert ask(rig, "read")["value"]["total"] == 0


@pytest.mark.parametrize("type_", ["create", "update"])
def test_a_description_without_any_body_is_refused(rig: StateRig, type_: str) -> None:
    assert rig.reply(1, TWIN, type_, None)["reason"] == "bad-body"


def test_of_an_agent_beyond_the_quota_nothing_is_kept() -> None:
    rig = StateRig(addresses_per_session=1)
    rig.open("agent", 1)
    first = ask(rig, "create", resource=LAMP, value={})
    second = ask(rig, "create", resource=f"thing://{DOMAIN}/agent-5/lamp", value={})
    assert [(one["code"], one.get("reason")) for one in (first, second)] == [(200, None), (429, "quota")]
    assert names(rig) == ["lamp-1"]


def test_only_who_was_not_taken_off_an_object_reads_its_values(rig: StateRig) -> None:
    described(rig, "lamp-1", "Lamp", now=1.0)
    other = f"runtime://{DOMAIN}/other"
    rig.state.observer_rights.expulsions.expel(ExpulsionRow(LAMP, other, other, ""))
    assert ask(rig, "read", 2, resource=LAMP)["reason"] == "policy"
    assert ask(rig, "read", 1, resource=LAMP)["code"] == 200


def test_a_page_shows_the_things_of_a_type_that_changed_since_a_time(rig: StateRig) -> None:
    for number, (name, kind) in enumerate((("a", "Lamp"), ("b", ["Lamp", "Fan"]), ("c", "Fan")), 10):
        described(rig, name, kind, now=float(number))
    assert names(rig) == names(rig, criteria={}) == ["a", "b", "c"]
    assert [names(rig, criteria={"since": since}) for since in (10, 10.5, 12, 13)] == [
        ["a", "b", "c"],
        ["b", "c"],
        ["c"],
        [],
    ]
    assert [names(rig, criteria={"type": kind}) for kind in ("Lamp", "Fan", "x")] == [["a", "b"], ["b", "c"], []]
    assert names(rig, criteria={"type": "Lamp", "since": 11}) == ["b"]
    assert names(rig, resource=AGENT, criteria={"type": "Fan"}) == ["b", "c"]


def test_body_of_any_depth_is_taken_or_refused(rig: StateRig) -> None:
    """The body is read twice; what was not too deep the first time must not be the second time."""
    service = TwinService(rig.state, rig.state.delivery.queues)
    codes = set()
    for depth in range(800, 1_010):
        value = b'{"a":' * depth + b"1" + b"}" * depth
        body = b'{"resource":"' + LAMP.encode() + b'","value":' + value + b"}"
        message = Message(b"1", "create", f"runtime://{DOMAIN}/agent", TWIN, body, body)
        try:
            service(ServiceRequest(message, Caller(1), DOMAIN, rig.now, bytes(32)))
        except PeerError as exc:
            codes.add(exc.code)
    assert codes == {Code.BAD_BODY}


def test_pages_count_from_one(rig: StateRig) -> None:
    for number in range(PAGE_ENTRIES + 1):
        described(rig, f"n{number}", "Lamp", now=1.0)
    assert [len(names(rig, **body)) for body in ({}, {"page": 1}, {"page": 2}, {"page": 3})] == [50, 50, 1, 0]


@pytest.mark.parametrize(("left", "is_whole"), [(1, True), (0, False)])
def test_a_page_shows_a_thing_in_whole_while_there_is_room(
    rig: StateRig, monkeypatch: pytest.MonkeyPatch, left: int, is_whole: bool
) -> None:
    described(rig, "lamp-1", "Lamp", now=1.0)
    size = rig.state.twin.size_of(LAMP, has_values=False)
    monkeypatch.setattr(twin_service, "TWIN_PAGE_BYTES", size + left)
    (shown,) = ask(rig, "read")["value"]["things"]
    assert ("status" in shown) is is_whole


@pytest.mark.parametrize(("wanted", "has_values"), [(True, True), (False, False), (1, False), (None, False)])
def test_a_page_has_values_for_those_who_ask_for_them(rig: StateRig, wanted: object, *, has_values: bool) -> None:
    described(rig, "lamp-1", "Lamp", now=1.0)
    (shown,) = ask(rig, "read", criteria={"values": wanted})["value"]["things"]
    assert ("values" in shown) is has_values


WRONGS: list[tuple[str, list[object]]] = [
    ("page", [True, False, "1", 1.5, 0, -1, None]),
    ("criteria", [[], "x", 7, {"since": True}, {"since": "x"}, {"since": None}]),
]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONGS for value in values])
def test_pages_and_criteria_that_are_none_are_refused(rig: StateRig, name: str, value: object) -> None:
    assert ask(rig, "read", **{name: value})["reason"] == "bad-body"
