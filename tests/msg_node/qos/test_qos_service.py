"""The service of the QoS broker as values: what is asked, what is refused before, what an answer means, what it leaves.

The broker is a table of answers by call; `tests/msg_node/qos/test_qos_broker.py` has the real conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from msg_node.kernel.changes import Journal, Table
from msg_node.kernel.rest_calls import Answered, Call, Calls
from msg_node.kernel.service import Answer, Caller, Event, Inquiry, ServiceRequest
from msg_node.qos.core import leases as leases_module
from msg_node.qos.core import qos_service
from msg_node.qos.core.leases import Amounts, Lease, Leases, QosKind
from msg_node.qos.core.qos_rest import check_done, read_credentials, read_providers, read_turn, read_usage
from msg_node.qos.core.qos_service import QosService
from protofly import codec
from protofly.errors import Code, HostError, PeerError
from protofly.limits import QOS_CALL_SECONDS, QOS_LEASE_MAX_SECONDS, QOS_LEASE_SECONDS, QOS_LEASES_PER_SESSION
from tests.support.state_rig import ALLOCATION, DOMAIN, SM, StateRig, apply_changes

ADDRESS = f"domain://qos.{DOMAIN}"
CHANGES = f"{ADDRESS}/quotas/p/changes"
WANTED = {"cspId": "p", "clientName": "ana", "audio": 64, "video": 500}


def said(document: object, status: int = 200) -> Answered:
    return Answered(status, json.dumps(document).encode(), "application/json")


class Broker:
    """A broker with one provider, and the service in front of it."""

    def __init__(self) -> None:
        self.rig = StateRig()
        self.ana, _ = self.rig.open("ana", 1)
        self.bo, _ = self.rig.open("bo", 2)
        self.service = QosService(self.rig.state, max_lease_seconds=1000)
        self.quotas: dict[str, Amounts] = {"p": Amounts(1000, 1000, 0)}
        self.usage = Amounts()
        self.calls: list[str] = []
        self.lanes: list[str] = []
        self.answers: dict[str, Answered] = {}
        self.seeds = 0

    @property
    def leases(self) -> Leases:
        return self.rig.state.leases

    def answer(self, call: Call) -> Answered:
        name = call.path.partition("?")[0]
        self.calls.append(f"{call.method} {call.path}")
        if name in self.answers:
            return self.answers[name]
        match name:
            case "/getAllCspInfo":
                return said(
                    [
                        {"csp": key, **{f"{kind.value}Quota": str(of.of(kind)) for kind in QosKind}}
                        for key, of in self.quotas.items()
                    ]
                )
            case "/getCspConso":
                return said(self.usage._asdict())
            case "/getAppropriateTurn":
                return said(["192.0.2.1:1", f"c-{len(self.calls)}"])
            case "/getCredentials":
                return said(["c", "secret"])
            case _:
                return said({})

    def request(self, type_: str, body: Mapping[str, object], caller: Caller) -> ServiceRequest:
        self.seeds += 1
        message = codec.build(id=1, type=type_, from_=f"runtime://{DOMAIN}/ana", to=ADDRESS, body=body)
        return ServiceRequest(message, caller, DOMAIN, self.rig.now, bytes([self.seeds]) * 32)

    def ask(
        self, type_: str, body: Mapping[str, object], *, number: int = 0, is_operator: bool = False, ends: int = -1
    ) -> Answer:
        """The whole conversation; see `to_the_end`."""
        caller = Caller(number or self.ana, is_operator=is_operator)
        return self.to_the_end(self.service(self.request(type_, body, caller)), ends=ends)

    def to_the_end(self, step: Answer | Inquiry, *, ends: int = -1) -> Answer:
        """Answer all calls; after `ends` inquiries ana's session is closed."""
        count = 0
        while isinstance(step, Inquiry):
            assert isinstance(step.question, Calls)
            self.lanes.append(step.lane)
            answers = tuple(self.answer(call) for call in step.question.calls)
            count += 1
            if count == ends:
                self.rig.state.lifecycle.close(self.ana, now=self.rig.now)
            step = step.conclude(answers, self.rig.now)
        return step

    def reserve(self, number: int = 0, *, ends: int = -1, **members: Any) -> Answer:
        body = {"resource": "/reservations", "value": {**WANTED, **members}}
        return self.ask("create", body, number=number, ends=ends)

    def reserved(self, number: int = 0, **members: Any) -> Lease:
        value: Any = self.reserve(number, **members).value
        lease = self.leases.get(value["reservation"])
        assert lease is not None
        return lease


@pytest.fixture
def broker() -> Broker:
    return Broker()


def refused(broker: Broker, type_: str, body: Mapping[str, object], **more: Any) -> Code:
    before = len(broker.calls)
    with pytest.raises(PeerError) as error:
        broker.ask(type_, body, **more)
    assert len(broker.calls) == before
    return error.value.code


# Which requests there are.


@pytest.mark.parametrize("resource", ["/turn", "turn", "/turn/", "//turn//"])
def test_a_resource_may_be_written_with_or_without_slashes_around_it(broker: Broker, resource: str) -> None:
    broker.ask("read", {"resource": resource, "criteria": {"cspId": "p", "clientName": "a"}})
    assert broker.calls == ["GET /getAppropriateTurn?cspId=p&clientName=a"]


@pytest.mark.parametrize(
    ("type_", "resource", "code"),
    [
        ("read", "/quotas", Code.BAD_TYPE),
        ("delete", "/turn", Code.BAD_TYPE),
        ("update", "/credentials", Code.BAD_TYPE),
        ("update", "/usage/p", Code.BAD_TYPE),
        ("update", "/providers", Code.BAD_TYPE),
        ("delete", "/reservations", Code.BAD_TYPE),
        ("delete", "/reservations/r/1", Code.BAD_TYPE),
        ("read", "/turn/x", Code.BAD_TYPE),
        ("read", "", Code.NO_SUCH_SERVICE),
        ("read", "/else", Code.NO_SUCH_SERVICE),
        ("read", "/else/turn", Code.NO_SUCH_SERVICE),
    ],
)
def test_what_is_not_served_is_refused_without_a_call(broker: Broker, type_: str, resource: str, code: Code) -> None:
    assert refused(broker, type_, {"resource": resource}, is_operator=True) is code


@pytest.mark.parametrize(
    "caller", [Caller(-1, "beta.example", is_operator=True), Caller(1, is_guest=True), Caller(1, "", True, True)]
)
def test_another_domain_is_refused_whatever_it_asks(broker: Broker, caller: Caller) -> None:
    for type_, resource in (("read", "/providers"), ("delete", "/reservations/r"), ("read", "/else")):
        with pytest.raises(PeerError) as error:
            broker.service(broker.request(type_, {"resource": resource}, caller))
        assert error.value.code is Code.POLICY


OPERATIONS: list[tuple[str, dict[str, object], str]] = [
    (
        "create",
        {"resource": "/providers", "value": {"servicename": "q", "audio": 1, "video": 2, "data": 3}},
        "POST /provRequest",
    ),
    ("delete", {"resource": "/providers/p"}, "DELETE /deleteCSP?cspkey=p"),
    (
        "update",
        {"resource": "/quotas", "value": {"cspkey": "p", "audio": 1, "video": 2, "data": 3}},
        "PUT /changeQuotas?cspKey=p&audioQuota=1&videoQuota=2&dataQuota=3",
    ),
]


@pytest.mark.parametrize(("type_", "body", "call"), OPERATIONS)
def test_operations_are_for_operators(broker: Broker, type_: str, body: dict[str, object], call: str) -> None:
    assert refused(broker, type_, body) is Code.POLICY
    assert broker.ask(type_, body, is_operator=True).code == 200
    assert broker.calls == [call]


def test_a_new_provider_is_sent_as_a_form(broker: Broker) -> None:
    step = broker.service(broker.request("create", OPERATIONS[0][1], Caller(broker.ana, is_operator=True)))
    assert isinstance(step, Inquiry)
    assert isinstance(step.question, Calls)
    assert step.question.calls[0].form == {"servicename": "q", "audio": "1", "video": "2", "qdata": "3"}
    assert (step.lane, step.seconds) == ("", QOS_CALL_SECONDS)


@pytest.mark.parametrize(
    ("status", "tries"), [(200, 1), (302, 1), (404, 2), (405, 2), (501, 2), (400, 1), (500, 1), (502, 1)]
)
def test_a_broker_without_put_is_asked_with_get(broker: Broker, status: int, tries: int) -> None:
    broker.answers["/changeQuotas"] = said({}, status)
    if status in (200, 302):
        broker.ask(*OPERATIONS[2][:2], is_operator=True)
    else:
        with pytest.raises(PeerError):
            broker.ask(*OPERATIONS[2][:2], is_operator=True)
    assert [call.partition(" ")[0] for call in broker.calls] == ["PUT", "GET"][:tries]


def test_changed_quotas_count_at_once(broker: Broker) -> None:
    broker.usage = Amounts(0, 900, 0)
    broker.ask("read", {"resource": "/providers"})
    broker.ask("read", {"resource": "/usage", "criteria": {"cspkey": "p"}})
    body = {"resource": "/quotas", "value": {"cspkey": "p", "audio": 5, "video": 900}}
    (event,) = broker.ask("update", body, is_operator=True).events
    assert event == Event(ADDRESS, CHANGES, {"value": {"kind": "video", "used": 900, "limit": 900}})


# What is given.


@pytest.mark.parametrize(("text", "is_good"), [("x", True), ("x" * 256, True), ("", False), ("x" * 257, False)])
@pytest.mark.parametrize("name", ["cspId", "clientName"])
def test_names_have_so_many_characters(broker: Broker, name: str, text: str, is_good: bool) -> None:
    body = {"resource": "/turn", "criteria": {"cspId": "p", "clientName": "a", name: text}}
    if is_good:
        assert broker.ask("read", body).code == 200
    else:
        assert refused(broker, "read", body) is Code.BAD_BODY


def test_a_name_that_cannot_be_printed_is_refused(broker: Broker) -> None:
    for text in ("a\nb", "a\u202eb"):
        assert refused(broker, "read", {"resource": "/usage", "criteria": {"cspkey": text}}) is Code.BAD_BODY


@pytest.mark.parametrize(
    ("amount", "is_good"),
    [(0, True), (10**12, True), (10**12 + 1, False), (-1, False), (True, False), (1.0, False), ("1", False)],
)
def test_amounts_are_whole_numbers_within_bounds(broker: Broker, amount: object, is_good: bool) -> None:
    body = {"resource": "/providers", "value": {"servicename": "q", "data": amount}}
    if is_good:
        assert broker.ask("create", body, is_operator=True).code == 200
    else:
        assert refused(broker, "create", body, is_operator=True) is Code.BAD_BODY


@pytest.mark.parametrize("ttl", [True, "600", None, 0, 0.5, -1, -(10**400), float("-inf")])
def test_a_time_that_is_no_number_of_seconds_is_refused(broker: Broker, ttl: object) -> None:
    body = {"resource": "/reservations", "value": {**WANTED, "ttl": ttl}}
    if ttl == float("-inf"):
        body = {"resource": "/reservations", "value": {**WANTED, "ttl": -1e300}}
    assert refused(broker, "create", body) is Code.BAD_BODY


@pytest.mark.parametrize(
    ("ttl", "seconds"), [(1, 1), (2.5, 2.5), (1000, 1000), (1001, 1000), (1e300, 1000), (10**400, 1000)]
)
def test_a_reservation_lasts_as_long_as_asked_up_to_the_longest(broker: Broker, ttl: float, seconds: float) -> None:
    assert broker.reserved(ttl=ttl).expires_at == broker.rig.now + seconds


def test_without_a_time_a_reservation_lasts_the_usual_time() -> None:
    broker = Broker()
    broker.service = QosService(broker.rig.state)
    assert broker.reserved().expires_at == broker.rig.now + QOS_LEASE_SECONDS
    assert broker.reserved(ttl=1e300).expires_at == broker.rig.now + QOS_LEASE_MAX_SECONDS


# Passwords.


def test_a_password_is_for_whom_the_client_was_named_to_or_leased_to_and_for_operators(broker: Broker) -> None:
    body = {"resource": "/credentials", "criteria": {"clientId": "c-1"}}
    assert refused(broker, "read", body) is Code.NOT_OWNER
    broker.ask("read", {"resource": "/turn", "criteria": {"cspId": "p", "clientName": "a"}})
    assert broker.ask("read", body).value == {"clientId": "c", "password": "secret"}
    assert refused(broker, "read", body, number=broker.bo) is Code.NOT_OWNER
    assert broker.ask("read", body, number=broker.bo, is_operator=True).code == 200
    lease = broker.reserved(broker.bo)
    leased = {"resource": "/credentials", "criteria": {"clientId": lease.client_id}}
    assert refused(broker, "read", leased) is Code.NOT_OWNER
    assert broker.ask("read", leased, number=broker.bo).code == 200


def test_only_so_many_named_clients_are_remembered_and_the_oldest_go_first(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qos_service, "_CLIENTS_REMEMBERED", 2)
    for _ in range(3):
        broker.ask("read", {"resource": "/turn", "criteria": {"cspId": "p", "clientName": "a"}})
    codes = []
    for number in (1, 2, 3):
        body = {"resource": "/credentials", "criteria": {"clientId": f"c-{number}"}}
        try:
            codes.append(broker.ask("read", body).code)
        except PeerError as exc:
            codes.append(exc.code.status)
    assert codes == [403, 200, 200]


# Reservations.


def test_a_reservation_asks_four_things_in_the_lane_of_its_provider(broker: Broker) -> None:
    lease = broker.reserved()
    assert broker.calls == [
        "GET /getAllCspInfo",
        "GET /getCspConso?cspkey=p",
        "GET /getAppropriateTurn?cspId=p&clientName=ana",
        f"GET /getCredentials?clientId={lease.client_id}",
    ]
    assert broker.lanes == ["qos p"] * 3
    assert (lease.sid, lease.provider, lease.amounts) == (broker.ana, "p", Amounts(64, 500, 0))
    assert (lease.name[:2], len(lease.name)) == ("r-", 26)


def test_the_answer_names_reservation_server_and_password(broker: Broker) -> None:
    answer = broker.reserve(ttl=600.5)
    value: Any = answer.value
    (name,) = broker.leases._leases
    assert value == {
        "reservation": name,
        "expires": int(broker.rig.now + 600),
        "server": "192.0.2.1:1",
        "clientId": "c-3",
        "password": "secret",
    }


@pytest.mark.parametrize(
    ("usage", "wanted", "code"),
    [
        (Amounts(0, 500, 0), {"video": 500}, 200),
        (Amounts(0, 501, 0), {"video": 500}, 429),
        (Amounts(936, 0, 0), {"video": 0}, 200),
        (Amounts(937, 0, 0), {"video": 0}, 429),
        (Amounts(0, 2000, 0), {"video": 0}, 200),  # nothing of it is wanted
        (Amounts(), {"data": 1}, 429),
    ],
)
def test_no_more_of_a_quota_is_reserved_than_is_left(
    broker: Broker, usage: Amounts, wanted: dict[str, int], code: int
) -> None:
    broker.usage = usage
    answer = broker.reserve(**wanted)
    assert (answer.code, len(broker.leases)) == (code, code == 200)
    assert answer.reason == ("" if code == 200 else "quota")
    assert len(broker.calls) == (4 if code == 200 else 2)


def test_what_is_used_is_what_is_counted_or_reserved_whichever_is_more(broker: Broker) -> None:
    broker.reserved(video=300)
    broker.reserved(video=300)
    assert broker.reserve(video=401).value == {"kind": "video", "used": 600, "limit": 1000}
    broker.usage = Amounts(0, 650, 0)
    assert broker.reserve(video=401).value == {"kind": "video", "used": 650, "limit": 1000}
    broker.reserved(video=350)


def test_an_unknown_provider_is_refused_after_asking_for_all(broker: Broker) -> None:
    with pytest.raises(PeerError) as error:
        broker.reserve(cspId="q")
    assert error.value.code is Code.NOT_REGISTERED
    assert len(broker.leases) == 0


def test_a_session_that_ends_meanwhile_holds_nothing(broker: Broker) -> None:
    with pytest.raises(PeerError) as error:
        broker.reserve(ends=3)
    assert error.value.code is Code.NOT_CONNECTED
    assert len(broker.leases) == 0


def test_a_reservation_is_for_an_object_that_somebody_has(broker: Broker) -> None:
    value: Any = broker.rig.reply(broker.ana, ALLOCATION, "create", {"scheme": "comm", "value": {"number": 1}})["value"]
    (room,) = value["allocated"]
    assert broker.reserved(object=room.replace(DOMAIN, DOMAIN.upper())).object_key == room
    body = {"resource": "/reservations", "value": {**WANTED, "object": f"comm://{DOMAIN}/nobody-s"}}
    assert refused(broker, "create", body) is Code.BAD_BODY
    assert broker.reserved(audio=0, video=0).object_key == ""


@pytest.mark.parametrize("is_full_for", ["a session", "all"])
def test_reservations_are_bounded_before_the_broker_is_asked_and_again_at_the_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_full_for: str
) -> None:
    name = "QOS_LEASES_PER_SESSION" if is_full_for == "a session" else "QOS_LEASES"
    monkeypatch.setattr(leases_module, name, 2)
    code = Code.QUOTA if is_full_for == "a session" else Code.OVERLOAD
    wanted = {"audio": 0, "video": 0}
    broker.reserved(**wanted)
    body = {"resource": "/reservations", "value": {**WANTED, **wanted}}
    one, other = (broker.service(broker.request("create", body, Caller(broker.ana))) for _ in range(2))
    broker.to_the_end(one)
    with pytest.raises(PeerError) as error:
        broker.to_the_end(other)
    assert error.value.code is code
    assert "getCredentials" in broker.calls[-1]
    assert len(broker.leases) == 2
    assert refused(broker, "create", body) is code
    if is_full_for == "a session":
        broker.reserved(broker.bo, **wanted)


def test_a_reservation_is_released_by_its_holder_or_an_operator(broker: Broker) -> None:
    first, second = broker.reserved(video=1), broker.reserved(video=1)
    body = {"resource": f"/reservations/{first.name}"}
    assert refused(broker, "delete", {"resource": "/reservations/r-unknown"}) is Code.NOT_REGISTERED
    assert refused(broker, "delete", body, number=broker.bo) is Code.NOT_OWNER
    assert broker.ask("delete", body).code == 200
    assert refused(broker, "delete", body) is Code.NOT_REGISTERED
    operated = {"resource": f"/reservations/{second.name}"}
    assert broker.ask("delete", operated, number=broker.bo, is_operator=True).code == 200
    assert len(broker.leases) == 0


# Quota events.


def test_each_quota_is_said_once_when_it_is_used_up_and_once_when_it_no_longer_is(broker: Broker) -> None:
    assert broker.reserve(audio=0, video=999).events == []
    answer = broker.reserve(audio=1000, video=1)
    assert [(one.from_, one.to, one.body) for one in answer.events] == [
        (ADDRESS, CHANGES, {"value": {"kind": "audio", "used": 1000, "limit": 1000}}),
        (ADDRESS, CHANGES, {"value": {"kind": "video", "used": 1000, "limit": 1000}}),
    ]
    assert broker.reserve(audio=1, video=0).events == []
    value: Any = answer.value
    released = broker.ask("delete", {"resource": f"/reservations/{value['reservation']}"})
    assert [one.body["value"] for one in released.events] == [
        {"kind": "audio", "used": 0, "limit": 1000},
        {"kind": "video", "used": 999, "limit": 1000},
    ]


def test_a_quota_of_nothing_is_never_used_up(broker: Broker) -> None:
    broker.quotas["p"] = Amounts()
    broker.ask("read", {"resource": "/providers"})
    broker.usage = Amounts(5, 5, 5)
    assert broker.ask("read", {"resource": "/usage", "criteria": {"cspkey": "p"}}).events == []


def test_usage_of_an_unknown_provider_makes_no_event(broker: Broker) -> None:
    broker.usage = Amounts(5, 5, 5)
    answer = broker.ask("read", {"resource": "/usage", "criteria": {"cspkey": "q"}})
    assert (answer.value, answer.events) == ({"audio": 5, "video": 5, "data": 5}, [])


def test_leases_end_by_time_and_by_their_object_and_say_so(broker: Broker) -> None:
    value: Any = broker.rig.reply(broker.ana, ALLOCATION, "create", {"scheme": "comm", "value": {"number": 1}})["value"]
    (room,) = value["allocated"]
    timed, held = broker.reserved(video=500, ttl=10), broker.reserved(video=500, ttl=1000, object=room)
    assert broker.service.sweep(DOMAIN, timed.expires_at - 1) == []
    (event,) = broker.service.sweep(DOMAIN, timed.expires_at)
    assert event.body["value"] == {"kind": "video", "used": 500, "limit": 1000}
    assert (broker.leases.get(timed.name), broker.leases.get(held.name)) == (None, held)
    broker.rig.reply(broker.ana, ALLOCATION, "delete", {"resource": room})
    assert broker.service.sweep(DOMAIN, timed.expires_at) == []
    assert len(broker.leases) == 0


def test_providers_are_watched_where_somebody_listens_at_any_of_our_domains(broker: Broker) -> None:
    broker.quotas["q"] = Amounts(1)
    answers = (broker.answer(Call("GET", "/getAllCspInfo")),)
    assert broker.service.providers_seen(answers) == []
    broker.rig.reply(broker.bo, SM, "subscribe", {"resources": ["domain://qos.alias.example/quotas/q/changes"]})
    assert broker.service.providers_seen(answers) == ["q"]
    broker.rig.reply(broker.bo, SM, "subscribe", {"resources": [CHANGES]})
    assert broker.service.providers_seen(answers) == ["p", "q"]
    (event,) = broker.service.usage_seen(DOMAIN, "q", (said({"audio": 1}),))
    assert event.body["value"] == {"kind": "audio", "used": 1, "limit": 1}


# A broker that cannot be reached.


@pytest.mark.parametrize("code", [Code.CONNECT_FAILED, Code.FETCH_TIMEOUT, Code.GATEWAY_TIMEOUT, Code.DNS_FAILED])
def test_a_broker_without_contact_is_a_timeout(broker: Broker, code: Code) -> None:
    step = broker.service(broker.request("read", {"resource": "/providers"}, Caller(broker.ana)))
    assert isinstance(step, Inquiry)
    assert step.failed is not None
    answer = step.failed(HostError(code, "no contact"), 0.0)
    assert isinstance(answer, Answer)
    assert (answer.code, answer.reason) == (504, Code.GATEWAY_TIMEOUT.word)


def test_another_failure_keeps_its_code(broker: Broker) -> None:
    step = broker.service(broker.request("read", {"resource": "/providers"}, Caller(broker.ana)))
    assert isinstance(step, Inquiry)
    assert step.failed is not None
    with pytest.raises(PeerError) as error:
        step.failed(HostError(Code.OVERLOAD, "busy"), 0.0)
    assert error.value.code is Code.OVERLOAD


# What its answers mean.

PAIRS = [
    (["a", "b"], ("a", "b")),
    ([1, "b"], ("1", "b")),
    (["x" * 256, "b"], ("x" * 256, "b")),
]
NO_PAIRS: list[object] = [
    [],
    ["a"],
    ["a", "b", "c"],
    {},
    "ab",
    7,
    ["", "b"],
    ["x" * 257, "b"],
    [True, "b"],
    ["a", "\n"],
]


@pytest.mark.parametrize(("document", "pair"), PAIRS)
def test_a_pair_is_read_as_a_list_or_by_its_names(document: list[object], pair: tuple[str, str]) -> None:
    assert read_turn(said(document)) == read_credentials(said(document)) == pair
    first, second = document
    assert read_turn(said({"server": first, "clientId": second})) == pair
    assert read_credentials(said({"clientId": first, "password": second})) == pair


@pytest.mark.parametrize("document", NO_PAIRS)
@pytest.mark.parametrize("read", [read_turn, read_credentials])
def test_what_is_no_pair_of_texts_is_a_bad_reply(read: Any, document: object) -> None:
    with pytest.raises(PeerError) as error:
        read(said(document))
    assert error.value.code is Code.BAD_REPLY


@pytest.mark.parametrize(
    ("amount", "number"),
    [(0, 0), ("17", 17), (2.9, 2), ("9" * 15, 10**15 - 1), (10**15 - 1, 10**15 - 1), ("007", 7)],
)
def test_amounts_are_read_as_numbers_or_texts(amount: object, number: int) -> None:
    assert read_usage(said({"video": amount})) == Amounts(0, number, 0)
    assert read_providers(said([{"csp": "p", "videoQuota": amount}])) == {"p": Amounts(0, number, 0)}


@pytest.mark.parametrize(
    "amount", ["", "-1", "1.5", "9" * 16, "0" * 16, "9" * 5_000, "\u0663", -1, 10**15, True, None, [], "x"]
)
def test_what_is_no_amount_is_a_bad_reply(amount: object) -> None:
    with pytest.raises(PeerError) as error:
        read_usage(said({"audio": amount}))
    assert error.value.code is Code.BAD_REPLY


@pytest.mark.parametrize(
    ("read", "document"),
    [(read_usage, []), (read_usage, 1), (read_providers, {}), (read_providers, [1]), (read_providers, [{}])],
)
def test_another_shape_is_a_bad_reply(read: Any, document: object) -> None:
    with pytest.raises(PeerError) as error:
        read(said(document))
    assert error.value.code is Code.BAD_REPLY


def test_a_broker_lists_so_many_providers() -> None:
    many = [{"csp": str(number)} for number in range(1001)]
    assert len(read_providers(said(many[:1000]))) == 1000
    with pytest.raises(PeerError) as error:
        read_providers(said(many))
    assert error.value.code is Code.BAD_REPLY


@pytest.mark.parametrize("read", [read_turn, read_credentials, read_usage, read_providers])
@pytest.mark.parametrize(
    ("status", "code"),
    [(404, Code.NOT_REGISTERED), (201, Code.BAD_REPLY), (302, Code.REDIRECT_REFUSED), (400, Code.BAD_BODY)],
)
def test_a_status_without_a_result_is_its_refusal(read: Any, status: int, code: Code) -> None:
    with pytest.raises(PeerError) as error:
        read(said(["a", "b"], status))
    assert error.value.code is code


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (199, Code.BAD_REPLY),
        (200, None),
        (204, None),
        (302, None),
        (399, None),
        (400, Code.BAD_BODY),
        (404, Code.NOT_REGISTERED),
        (500, Code.BAD_REPLY),
    ],
)
def test_an_operation_is_done_by_a_result_or_a_redirect(status: int, code: Code | None) -> None:
    if code is None:
        check_done(said({}, status), what="nothing")
        return
    with pytest.raises(PeerError) as error:
        check_done(said({}, status), what="nothing")
    assert error.value.code is code


# The leases themselves.


def lease(name: str, *, sid: int = 1, provider: str = "p", expires_at: float = 10, **more: Any) -> Lease:
    return Lease(
        name,
        sid,
        provider,
        more.get("amounts", Amounts(1, 2, 3)),
        "s",
        f"c-{name}",
        more.get("object_key", ""),
        expires_at,
    )


def test_what_moves_in_is_held_for_the_session_that_is_here_once() -> None:
    held = Leases(Journal())
    held.add(lease("a", sid=1))
    assert held.move_in([lease("a", sid=9), lease("b", sid=9)], 5) == [lease("b", sid=5)]
    assert (held.of_session(5), held.of_session(1)) == ([lease("b", sid=5)], [lease("a", sid=1)])
    assert held.reserved("p") == Amounts(2, 4, 6)


def test_a_lease_counts_for_its_session_and_provider_until_it_ends() -> None:
    held = Leases(Journal())
    for one in (lease("a"), lease("b"), lease("c", sid=2), lease("d", provider="q")):
        held.add(one)
    assert held.reserved("p") == Amounts(3, 6, 9)
    assert held.knows_client(1, "c-a")
    assert not held.knows_client(1, "c-c")
    assert held.end("unknown") is None
    assert held.end("a") == lease("a")
    assert held.end("a") is None
    assert (held.reserved("p"), len(held)) == (Amounts(2, 4, 6), 3)
    held.end_session(1)
    held.end_session(9)
    assert (held.reserved("p"), held.reserved("q"), len(held)) == (Amounts(1, 2, 3), Amounts(), 1)
    assert held.take_ended() == ["p", "q"]
    assert held.take_ended() == []
    held.end("c")
    assert (held._by_sid, held._by_provider) == ({}, {}), "nothing is kept of those who have none"


def test_leases_expire_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "SWEPT_AT_ONCE", 2)
    held = Leases(Journal())
    for number in range(3):
        held.add(lease(str(number), expires_at=10))
    held.add(lease("later", expires_at=20))
    counts = []
    for now in (9, 10, 10, 10):
        held.sweep(now=now)
        counts.append(len(held))
    assert counts == [4, 2, 1, 1]


def test_leases_for_objects_are_looked_after_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "SWEPT_AT_ONCE", 2)
    held = Leases(Journal())
    for name in "abc":
        held.add(lease(name, object_key=f"comm://{DOMAIN}/{name}"))
    held.add(lease("none"))
    seen = [[one.name for one in held.objects_to_look_after()] for _ in range(3)]
    assert seen == [["a", "b"], ["c", "a"], ["b", "c"]]
    held.end("a")
    assert [[one.name for one in held.objects_to_look_after()] for _ in range(2)] == [["b"], ["c", "b"]]


def test_leases_of_sessions_that_are_no_more_end_with_a_restart() -> None:
    journal = Journal()
    held = Leases(journal)
    held.add(lease("kept"))
    held.add(lease("lost", sid=2))
    rows: dict[Table, dict[str, bytes]] = {table: {} for table in Table}
    apply_changes(rows, journal.take())
    again_journal = Journal()
    again = Leases(again_journal)
    again.restore(rows[Table.QOS_LEASES], sids={1})
    apply_changes(rows, again_journal.take())
    assert (again.get("kept"), again.get("lost")) == (lease("kept"), None)
    assert rows[Table.QOS_LEASES].keys() == {"kept"}
    again.sweep(now=10)
    assert len(again) == 0


def test_a_session_has_room_for_so_many() -> None:
    held = Leases(Journal())
    for number in range(QOS_LEASES_PER_SESSION):
        held.check_room(1)
        held.add(lease(str(number)))
    held.check_room(2)
    with pytest.raises(PeerError) as error:
        held.check_room(1)
    assert error.value.code is Code.QUOTA
