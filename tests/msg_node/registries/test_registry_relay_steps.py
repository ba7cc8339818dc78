"""The relay to a domain registry as values: who may write before and after the registry was asked, what each answer
means, what stays of it here.

The registry is the independent one of `tests/peers/domain_registry`, called without a socket;
`tests/msg_node/registries/test_registry_relay.py` has the real conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from msg_node.kernel.registrations import Status
from msg_node.kernel.rest_calls import Answered, Call, Calls
from msg_node.kernel.service import Answer, Caller, Inquiry, ServiceRequest
from msg_node.registries.core import registry_relay, registry_service
from msg_node.registries.core.registry_relay import RegistryRelay
from protofly import codec
from protofly.errors import Code, HostError, PeerError
from protofly.limits import REGISTRY_RAW_BYTES
from tests.peers.domain_registry import DomainRegistryPeer
from tests.support.registry_entries import DOMAIN, HYPERTY, ROOM, USER, hyperty, room
from tests.support.registry_rig import ADDRESS
from tests.support.rest_server import Asked
from tests.support.state_rig import ALLOCATION, StateRig

OTHER = f"hyperty://{DOMAIN}/h-other"
NO_CONTACT = [Code.CONNECT_FAILED, Code.FETCH_TIMEOUT, Code.GATEWAY_TIMEOUT, Code.DNS_FAILED]


class Relay:
    """A relay over the state of a rig, in front of a registry."""

    def __init__(self, *, cache_seconds: float = 0.0) -> None:
        self.rig = StateRig()
        self.ana, _ = self.rig.open("rt-ana", 1)
        self.bo, _ = self.rig.open("rt-bo", 2)
        self.peer = DomainRegistryPeer(lambda: self.rig.now)
        self.service = RegistryRelay(self.rig.state, cache_seconds=cache_seconds)
        self.calls: list[str] = []
        self.instead: dict[int, Answered] = {}

    @property
    def registry(self) -> Any:
        return self.rig.state.registry

    def answer(self, call: Call) -> Answered:
        self.calls.append(call.method)
        instead = self.instead.get(len(self.calls))
        if instead is not None:
            return instead
        body = b"" if call.document is None else json.dumps(call.document).encode()
        said = self.peer(Asked(call.method, call.path, body))
        return Answered(said.status, said.body, said.content_type)

    def request(self, type_: str, body: Mapping[str, object], caller: Caller) -> ServiceRequest:
        message = codec.build(id=1, type=type_, from_=f"runtime://{DOMAIN}/rt-ana", to=ADDRESS, body=body)
        return ServiceRequest(message, caller, DOMAIN, self.rig.now, bytes(32))

    def ask(
        self, type_: str, body: Mapping[str, object], number: int = 0, *, closes_after: int = 0, **caller: Any
    ) -> Answer:
        """The whole conversation. `closes_after`: so many calls, and the session of the caller ends."""
        del self.calls[:]
        step = self.service(self.request(type_, body, Caller(number or self.ana, **caller)))
        while isinstance(step, Inquiry):
            assert isinstance(step.question, Calls)
            answers = tuple(self.answer(call) for call in step.question.calls)
            if closes_after and len(self.calls) >= closes_after:
                self.rig.state.lifecycle.close(number or self.ana, now=self.rig.now)
            step = step.conclude(answers, self.rig.now)
        return step

    def refused(self, type_: str, body: Mapping[str, object], number: int = 0, **more: Any) -> tuple[Code, int]:
        """The code of a refusal, and how many calls were made before it."""
        with pytest.raises(PeerError) as error:
            self.ask(type_, body, number, **more)
        return error.value.code, len(self.calls)

    def created(self, value: Mapping[str, object], number: int = 0) -> Answer:
        answer = self.ask("create", {"value": value}, number)
        assert answer.code == 200
        return answer

    def elsewhere(self, url: str, *, runtime: str = f"runtime://{DOMAIN}/rt-far", **members: object) -> None:
        """Another node of the domain has written an entry."""
        record = {**hyperty(url, runtime=runtime), "hypertyID": url, "userID": USER, **members}
        self.peer._put(self.peer.hyperties, url, record, None)
        self.peer._users.setdefault(USER, []).append(url)


@pytest.fixture
def relay() -> Relay:
    return Relay()


# Writes.


def test_an_address_that_somebody_owns_is_registered_with_one_call_and_another_is_read_first(relay: Relay) -> None:
    value: Any = relay.rig.reply(relay.ana, ALLOCATION, "create", {"scheme": "hyperty", "value": {"number": 1}})[
        "value"
    ]
    relay.created(hyperty(value["allocated"][0]))
    assert relay.calls == ["PUT"]
    relay.created(hyperty())
    assert relay.calls == ["GET", "PUT"]
    relay.created(hyperty())
    assert relay.calls == ["PUT"]
    assert len(relay.registry) == 2


@pytest.mark.parametrize(
    ("type_", "body", "code"),
    [
        ("create", {"value": {}}, Code.BAD_BODY),
        ("create", {}, Code.BAD_BODY),
        ("update", {"value": {}}, Code.BAD_BODY),
        ("update", {}, Code.BAD_BODY),
        ("delete", {"value": {}}, Code.BAD_BODY),
        ("delete", {}, Code.BAD_BODY),
    ],
)
def test_a_write_that_names_no_entry_is_refused_without_a_call(
    relay: Relay, type_: str, body: dict[str, object], code: Code
) -> None:
    assert relay.refused(type_, body) == (code, 0)


def test_an_update_without_an_address_is_refused_as_such(relay: Relay) -> None:
    with pytest.raises(PeerError) as refused:
        relay.ask("update", {"attribute": "status", "value": "live"})
    assert (refused.value.code, refused.value.detail) == (Code.BAD_BODY, "no entry is named")


def test_a_write_of_members_without_an_address_is_refused_without_a_call(relay: Relay) -> None:
    nameless = {name: value for name, value in hyperty().items() if name != "url"}
    assert relay.refused("create", {"value": nameless}) == (Code.BAD_BODY, 0)
    assert relay.refused("update", {"value": {"resources": ["video"]}}) == (Code.BAD_BODY, 0)


def test_an_address_of_one_s_own_that_is_not_registered_is_asked_for_before_it_is_changed(relay: Relay) -> None:
    relay.rig.state.owners.claim(relay.ana, OTHER)
    for type_ in ("update", "delete"):
        assert relay.refused(type_, {"resource": OTHER}) == (Code.NOT_REGISTERED, 1)


def test_what_belongs_to_somebody_else_is_refused_without_a_call(relay: Relay) -> None:
    relay.created(hyperty())
    for type_, body in (
        ("create", {"value": hyperty()}),
        ("update", {"resource": HYPERTY}),
        ("delete", {"resource": HYPERTY}),
        ("delete", {"value": {"url": HYPERTY}}),
    ):
        assert relay.refused(type_, body, relay.bo) == (Code.NOT_OWNER, 0)


@pytest.fixture
def full(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> Relay:
    """A session has as many entries as it may, and owns an address that is registered and not known here."""
    relay.created(hyperty())
    relay.elsewhere(OTHER)
    relay.rig.state.owners.claim(relay.ana, OTHER)
    monkeypatch.setattr(relay.registry._held, "_per_session", 1)
    return relay


def test_who_has_all_entries_it_may_have_adds_none_and_changes_and_deletes_those_that_there_are(full: Relay) -> None:
    assert full.refused("create", {"value": hyperty(OTHER)}) == (Code.QUOTA, 0)
    assert full.refused("update", {"resource": OTHER}) == (Code.QUOTA, 1), "it would be one more here"
    assert full.calls == ["GET"]
    full.created(hyperty())
    assert full.ask("update", {"resource": HYPERTY}).code == 200
    assert full.ask("delete", {"resource": OTHER}).code == 200
    assert full.calls == ["GET", "DELETE"]


def test_of_two_that_are_registered_at_once_the_one_too_many_is_not_written(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay.registry._held, "_per_session", 1)
    asked = []
    for url in (HYPERTY, OTHER):
        step = relay.service(relay.request("create", {"value": hyperty(url)}, Caller(relay.ana)))
        assert isinstance(step, Inquiry)
        asked.append(step)
    relay.created(hyperty())
    nothing = Answered(404, b"{}", "application/json")
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        asked[1].conclude((nothing,), relay.rig.now)
    assert isinstance(asked[0].conclude((nothing,), relay.rig.now), Inquiry)


def test_an_entry_of_another_node_s_runtime_is_refused_once_it_was_read(relay: Relay) -> None:
    relay.elsewhere(OTHER)
    for type_, body in (
        ("create", {"value": hyperty(OTHER)}),
        ("update", {"resource": OTHER}),
        ("delete", {"resource": OTHER}),
    ):
        assert relay.refused(type_, body) == (Code.NOT_OWNER, 1)
    assert len(relay.registry) == 0


@pytest.mark.parametrize("type_", ["update", "delete"])
def test_an_entry_that_nobody_has_is_neither_changed_nor_deleted(relay: Relay, type_: str) -> None:
    assert relay.refused(type_, {"resource": OTHER}) == (Code.NOT_REGISTERED, 1)


def test_the_registry_s_refusal_of_a_new_entry_is_that_of_its_owner(relay: Relay) -> None:
    relay.created(hyperty())
    relay.instead = {1: Answered(404, b"{}", "application/json")}
    assert relay.refused("create", {"value": hyperty()}) == (Code.NOT_OWNER, 1)


def test_an_update_changes_both_and_adopts_what_was_not_known_here(relay: Relay) -> None:
    relay.elsewhere(OTHER, runtime=f"runtime://{DOMAIN}/rt-ana", status="disconnected")
    answer = relay.ask("update", {"resource": OTHER, "attribute": "status", "value": "live"})
    assert (answer.code, relay.calls) == (200, ["GET", "PUT"])
    entry = relay.registry.get(OTHER)
    assert (entry.sid, entry.status) == (relay.ana, Status.LIVE)
    assert relay.peer.hyperties[OTHER]["status"] == "live"
    changes = relay.ask("update", {"resource": OTHER, "attribute": "status", "value": "disconnected"}).status_changes
    assert [(one.url, one.status) for one in changes] == [(OTHER, Status.DISCONNECTED)]
    assert relay.calls == ["PUT"]


@pytest.mark.parametrize("type_", ["update", "delete"])
def test_what_the_registry_has_forgotten_is_forgotten_here_and_said(relay: Relay, type_: str) -> None:
    relay.created(hyperty())
    relay.peer.hyperties.clear()
    answer = relay.ask(type_, {"resource": HYPERTY})
    assert (answer.code, answer.reason) == (404, "not-registered")
    assert [(one.url, one.status) for one in answer.status_changes] == [(HYPERTY, Status.DISCONNECTED)]
    assert relay.registry.get(HYPERTY) is None


@pytest.mark.parametrize(("status", "count"), [("live", 1), ("disconnected", 0)])
def test_what_was_not_known_here_and_vanishes_is_said_if_it_was_connected(
    relay: Relay, status: str, count: int
) -> None:
    relay.elsewhere(OTHER, runtime=f"runtime://{DOMAIN}/rt-ana", status=status)
    relay.instead = {2: Answered(404, b"{}", "application/json")}
    answer = relay.ask("delete", {"resource": OTHER})
    assert (answer.code, len(answer.status_changes)) == (404, count)


def test_a_deleted_entry_is_disconnected_for_everybody(relay: Relay) -> None:
    relay.created(hyperty())
    answer = relay.ask("delete", {"resource": HYPERTY})
    assert [(one.url, one.status) for one in answer.status_changes] == [(HYPERTY, Status.DISCONNECTED)]
    assert relay.peer.hyperties[HYPERTY]["status"] == "disconnected"


def test_the_one_data_object_of_a_name_is_deleted_by_its_holder(relay: Relay) -> None:
    assert relay.refused("delete", {"value": {"name": "Room 51"}}) == (Code.NOT_REGISTERED, 1)
    relay.created(hyperty())
    relay.created(room())
    assert relay.refused("delete", {"value": {"name": "Room 51"}}, relay.bo) == (Code.NOT_OWNER, 1)
    relay.created(room(f"{ROOM}-2"))
    assert relay.refused("delete", {"value": {"name": "Room 51"}}) == (Code.DUPLICATE, 1)
    del relay.peer.objects[f"{ROOM}-2"]
    relay.instead = {2: Answered(200, b"{}", "application/json")}
    assert relay.ask("delete", {"value": {"name": "Room 51"}}).code == 200
    assert relay.calls[0] == "GET"


@pytest.mark.parametrize(("type_", "calls"), [("create", 1), ("update", 1)])
def test_what_a_session_writes_in_its_last_moment_does_not_stay_connected(relay: Relay, type_: str, calls: int) -> None:
    relay.created(hyperty())
    body: dict[str, object] = {"value": hyperty()} if type_ == "create" else {"resource": HYPERTY}
    answer = relay.ask(type_, body, closes_after=calls)
    entry = relay.registry.get(HYPERTY)
    assert entry is None or not entry.is_connected
    assert [one.status for one in answer.status_changes][-1:] == [Status.DISCONNECTED]


# Reads.


def test_an_answer_is_given_again_unless_the_raw_one_is_wanted() -> None:
    keeping = Relay(cache_seconds=5.0)
    keeping.created(hyperty())
    first = keeping.ask("read", {"resource": USER}).value
    assert keeping.calls == ["GET"]
    assert keeping.ask("read", {"resource": USER}).value == first
    assert keeping.calls == []
    keeping.ask("read", {"resource": USER, "raw": True})
    assert keeping.calls == ["GET"]
    keeping.ask("update", {"resource": HYPERTY, "value": {"resources": ["video"]}})
    keeping.ask("read", {"resource": USER})
    assert keeping.calls == ["GET"]


def test_an_entry_that_changes_its_name_ends_the_answers_about_both_names() -> None:
    keeping = Relay(cache_seconds=5.0)
    keeping.created(hyperty())
    for url, name in ((ROOM, "Room 51"), (f"{ROOM}-2", "Room 51"), (f"{ROOM}-3", "Room 52")):
        keeping.created({**room(url), "name": name})
    by_name = [{"resource": f"/dataObject/name/{name}"} for name in ("Room 51", "Room 52")]
    for body in by_name * 2:
        keeping.ask("read", body)
    assert keeping.calls == []
    keeping.ask("update", {"resource": ROOM, "value": {"name": "Room 52"}})
    for body in by_name:
        keeping.ask("read", body)
        assert keeping.calls == ["GET"]


@pytest.mark.parametrize("wanted", [True, False, "true", 1, None])
def test_the_raw_answer_is_for_our_own_who_say_true(relay: Relay, wanted: object) -> None:
    relay.created(hyperty())
    members = relay.ask("read", {"resource": USER, "raw": wanted}).members or {}
    assert ("raw" in members) is (wanted is True)
    guest = relay.ask("read", {"resource": USER, "raw": True}, is_guest=True)
    assert "raw" not in (guest.members or {})
    link = relay.ask("read", {"resource": USER, "raw": True}, -1, domain="beta.example")
    assert "raw" not in (link.members or {})


def test_who_wants_the_raw_answer_still_learns_that_there_are_more(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_service, "REGISTRY_ANSWER_CHARS", 1)
    relay.created(hyperty())
    relay.created(hyperty(OTHER))
    members: Any = relay.ask("read", {"resource": USER, "raw": True}).members
    assert (members["more"], len(members["raw"])) == (1, 1)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"a":1}', ["code", "value"]),
        (b"no JSON \xff", ["code", "text"]),
        (b'"' + b"x" * (REGISTRY_RAW_BYTES - 2) + b'"', ["code", "value"]),
        (b'"' + b"x" * (REGISTRY_RAW_BYTES - 1) + b'"', ["code"]),
    ],
)
def test_a_raw_answer_is_shown_as_json_or_text_unless_it_is_very_long(
    relay: Relay, body: bytes, shown: list[str]
) -> None:
    relay.created(hyperty())
    relay.instead = {1: Answered(200, body, "application/json")}
    step = relay.service(relay.request("update", {"resource": HYPERTY, "raw": True}, Caller(relay.ana)))
    assert isinstance(step, Inquiry)
    answer = step.conclude((Answered(200, body),), relay.rig.now)
    assert isinstance(answer, Answer)
    raw: Any = (answer.members or {})["raw"]
    assert [sorted(one) for one in raw] == [sorted(shown)]


def test_data_objects_of_a_person_are_those_that_its_hyperties_report(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = {"resource": f"/comm/user/{USER}"}
    assert (relay.ask("read", search).code, relay.calls) == (404, ["GET"])
    relay.created(hyperty())
    relay.created(hyperty(OTHER))
    relay.created(room())
    value: Any = relay.ask("read", search).value
    assert (list(value), len(relay.calls)) == ([ROOM], 3)
    monkeypatch.setattr(registry_relay, "REGISTRY_PERSONS_FOLLOWED", 1)
    relay.ask("read", search)
    assert len(relay.calls) == 2


def test_requests_of_a_session_keep_their_order_and_reads_go_together(relay: Relay) -> None:
    relay.created(hyperty())

    def lane(type_: str, caller: Caller) -> tuple[str, bool]:
        step = relay.service(relay.request(type_, {"resource": HYPERTY}, caller))
        assert isinstance(step, Inquiry)
        return step.lane, step.is_sharing

    own = f"registry {relay.ana}"
    assert lane("update", Caller(relay.ana)) == (own, False)
    assert lane("read", Caller(relay.ana)) == (own, True)
    assert lane("read", Caller(-1, "beta.example")) == ("", True)


@pytest.mark.parametrize("code", [*NO_CONTACT, Code.OVERLOAD])
def test_a_registry_without_contact_is_a_timeout_and_another_failure_keeps_its_code(relay: Relay, code: Code) -> None:
    step = relay.service(relay.request("read", {"resource": USER}, Caller(relay.ana)))
    assert isinstance(step, Inquiry)
    assert step.failed is not None
    if code in NO_CONTACT:
        answer = step.failed(HostError(code, "away"), 0.0)
        assert isinstance(answer, Answer)
        assert (answer.code, answer.reason) == (504, Code.GATEWAY_TIMEOUT.word)
        return
    with pytest.raises(PeerError) as error:
        step.failed(HostError(code, "busy"), 0.0)
    assert error.value.code is code


# What the registry reports by itself.


def news(relay: Relay, *urls: str) -> list[tuple[str, Status]]:
    answer = Answered(200, json.dumps({url: relay.peer.hyperties[url] for url in urls}).encode())
    return [(one.url, one.status) for one in relay.service.observe(answer, relay.rig.now)]


def test_a_status_of_another_node_s_entry_is_said_when_it_changes(relay: Relay) -> None:
    relay.elsewhere(OTHER)
    assert news(relay, OTHER) == [(OTHER, Status.LIVE)]
    assert news(relay, OTHER) == []
    relay.peer.hyperties[OTHER]["status"] = "disconnected"
    assert news(relay, OTHER) == [(OTHER, Status.DISCONNECTED)]


def test_so_many_statuses_of_others_are_remembered(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_relay, "REGISTRY_STATUSES_REMEMBERED", 2)
    urls = [f"{OTHER}-{number}" for number in range(3)]
    for url in urls:
        relay.elsewhere(url)
        assert len(news(relay, url)) == 1
    assert [len(news(relay, url)) for url in reversed(urls)] == [0, 0, 1]


def test_a_status_of_our_own_entry_is_taken_over(relay: Relay) -> None:
    relay.created(hyperty())
    assert news(relay, HYPERTY) == []
    relay.peer.hyperties[HYPERTY]["status"] = "disconnected"
    assert news(relay, HYPERTY) == [(HYPERTY, Status.DISCONNECTED)]
    assert not relay.registry.get(HYPERTY).is_connected


def test_the_end_of_a_session_is_reported_once_and_older_news_change_nothing(relay: Relay) -> None:
    relay.created(hyperty())
    assert relay.service.unreported(relay.rig.now) == []
    relay.rig.state.lifecycle.close(relay.ana, now=relay.rig.now)
    (entry,) = relay.service.unreported(relay.rig.now)
    assert entry.url == HYPERTY
    assert news(relay, HYPERTY) == []  # it says live, since it got no news yet
    relay.service.reported(entry)
    assert relay.service.unreported(relay.rig.now) == []
    assert news(relay, HYPERTY) == [(HYPERTY, Status.LIVE)]
    assert relay.registry.get(HYPERTY) is None


def test_what_has_a_holder_again_or_has_expired_is_not_reported(relay: Relay) -> None:
    relay.created(hyperty(expires=3600))
    relay.created(hyperty(OTHER, expires=60))
    relay.rig.state.lifecycle.close(relay.ana, now=relay.rig.now)
    assert len(relay.service.unreported(relay.rig.now)) == 2
    relay.ana, _ = relay.rig.open("rt-ana", 3)
    assert relay.ask("update", {"resource": HYPERTY, "attribute": "status", "value": "live"}).code == 200
    assert [one.url for one in relay.service.unreported(relay.rig.now + 59)] == [OTHER]
    assert relay.service.unreported(relay.rig.now + 60) == []
    assert relay.service.unreported(relay.rig.now) == []  # it is not looked at again


def test_who_is_not_registered_has_no_objects_that_could_be_asked_for(relay: Relay) -> None:
    step = relay.service(relay.request("read", {"resource": f"/comm/user/{USER}"}, Caller(relay.ana)))
    assert isinstance(step, Inquiry)
    answer = step.conclude((Answered(404, b"{}", "application/json"),), relay.rig.now)
    assert isinstance(answer, Answer)
    assert answer.code == 404


def test_what_is_deleted_here_is_not_reported_to_the_registry(relay: Relay) -> None:
    relay.registry.unreported.add(OTHER)
    assert relay.service.unreported(relay.rig.now) == []
    assert OTHER not in relay.registry.unreported
