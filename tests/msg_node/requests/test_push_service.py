"""Push subscriptions as plain decisions: for whom, to which places, until when, and how many."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from msg_node.kernel.changes import Journal
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.service import Answer, Caller, ServiceRequest
from msg_node.requests.core import push_targets
from msg_node.requests.core.push_service import PushService
from msg_node.requests.core.push_targets import PushTarget, PushTargets
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import (
    PUSH_ENDPOINT_CHARS,
    PUSH_MAX_SECONDS,
    PUSH_TARGETS_PER_ADDRESS,
    PUSH_TARGETS_PER_RUNTIME,
)
from tests.support.state_rig import DOMAIN, StateRig

TO = f"domain://msg-node.{DOMAIN}/push"
ANA = f"runtime://{DOMAIN}/rt-ana"
OWN = f"hyperty://{DOMAIN}/own"
ENDPOINT = "https://push.example/v1/abc"


class Rig:
    def __init__(self) -> None:
        self.rig = StateRig()
        self.ana, _ = self.rig.open("rt-ana", 1)
        self.rig.state.owners.claim(self.ana, OWN)
        origins = ["https://push.example", "http://127.0.0.1:8090"]
        self.service = PushService(self.rig.state, public_key="key", origins=origins)

    def ask(self, type_: str, body: dict[str, object], number: int = 0) -> Answer:
        message = codec.build(id=1, type=type_, from_=ANA, to=TO, body=body)
        return self.service(ServiceRequest(message, Caller(number or self.ana), DOMAIN, self.rig.now, bytes(32)))

    def create(self, endpoint: object = ENDPOINT, *resources: str, **value: object) -> Answer:
        body: dict[str, object] = {"value": {"endpoint": endpoint, **value}}
        return self.ask("create", {**body, "resources": list(resources)} if resources else body)

    def kept(self, *resources: str) -> list[tuple[str, str]]:
        value: Any = self.ask("read", {"resources": list(resources)} if resources else {}).value
        assert value["publicKey"] == "key"
        return [(one["resource"], one["endpoint"]) for one in value["subscriptions"]]

    def refused(self, action: str, *arguments: Any, **more: Any) -> Code:
        with pytest.raises(PeerError) as refused:
            getattr(self, action)(*arguments, **more)
        return refused.value.code


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_subscription_is_for_the_runtime_or_for_the_addresses_that_are_named(rig: Rig) -> None:
    rig.create()
    rig.create(f"{ENDPOINT}d", OWN, f"{ANA}/sm")
    assert rig.kept() == [(ANA, ENDPOINT)]
    assert rig.kept(OWN, ANA) == [(OWN, f"{ENDPOINT}d"), (ANA, ENDPOINT)]
    rig.ask("delete", {"resource": OWN, "value": {"endpoint": ENDPOINT}})
    assert rig.kept(OWN) == [(OWN, f"{ENDPOINT}d")]
    rig.ask("delete", {"resource": OWN})
    assert (rig.kept(OWN), rig.kept()) == ([], [(ANA, ENDPOINT)])


def test_subscriptions_are_there_after_a_restart_and_count_and_end_as_before() -> None:
    journal = Journal()
    before = PushTargets(journal)
    for number in range(2):
        before.add(PushTarget(ANA, f"{ENDPOINT}{number}", ANA, 100.0))
    again = PushTargets(Journal())
    again.restore({change.key: msgspec.json.encode(change.row) for change in journal.take()})
    assert again.of(ANA) == before.of(ANA)
    again.gone(f"{ENDPOINT}0")
    assert [one.endpoint for one in again.of(ANA)] == [f"{ENDPOINT}1"]
    again.sweep(now=101.0)
    assert list(again) == list(again.of(ANA)) == []


def test_what_all_nodes_have_stored_replaces_what_is_known_here() -> None:
    targets, elsewhere = PushTargets(Journal()), PushTargets(journal := Journal())
    targets.add(target(1))
    elsewhere.add(target(2, key=ANA))
    targets.follow_all({change.key: msgspec.json.encode(change.row) for change in journal.take()})
    assert (list(targets), len(targets)) == ([target(2, key=ANA)], 1)


@pytest.mark.parametrize("type_", ["read", "create", "delete"])
@pytest.mark.parametrize(
    "address", [f"hyperty://{DOMAIN}/free", f"runtime://{DOMAIN}/rt-bo", "hyperty://beta.example/h"]
)
def test_nobody_subscribes_for_an_address_that_is_not_its_own(rig: Rig, type_: str, address: str) -> None:
    body: dict[str, object] = {"resources": [OWN, address], "value": {"endpoint": ENDPOINT}}
    assert rig.refused("ask", type_, body) is Code.NOT_OWNER
    assert rig.kept(OWN) == []


def test_only_sessions_of_this_domain_are_served_and_three_types_understood(rig: Rig) -> None:
    assert rig.refused("ask", "read", {}, 99) is Code.POLICY
    assert rig.refused("ask", "read", {}, rig.rig.state.links.number("beta.example")) is Code.POLICY
    assert rig.refused("ask", "update", {}) is Code.BAD_TYPE


LONGEST = "https://push.example/" + "x" * (PUSH_ENDPOINT_CHARS - 21)


@pytest.mark.parametrize("endpoint", [ENDPOINT, LONGEST, "https://PUSH.example/x", "http://127.0.0.1:8090/x?y=z"])
def test_an_endpoint_is_a_url_of_a_push_service_that_is_allowed(rig: Rig, endpoint: str) -> None:
    rig.create(endpoint)
    assert rig.kept() == [(ANA, endpoint)]


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [
        ("", Code.BAD_BODY),
        (7, Code.BAD_BODY),
        (LONGEST + "x", Code.BAD_BODY),
        ("https://push.example/é", Code.BAD_BODY),
        ("https://push.example/\x7f", Code.BAD_BODY),
        ("https://push.example/a b", Code.BAD_BODY),
        ("https://push.example/#x", Code.BAD_BODY),
        ("https://me@push.example/x", Code.BAD_BODY),
        ("https://push.example:0/x", Code.BAD_BODY),
        ("https://push.example:99999/x", Code.BAD_BODY),
        ("https://push.example:x/", Code.BAD_BODY),
        ("https://[::1/x", Code.BAD_BODY),
        ("ftp://push.example/x", Code.BAD_BODY),
        ("https:///x", Code.BAD_BODY),
        ("push.example/x", Code.BAD_BODY),
        ("http://push.example/x", Code.POLICY),
        ("https://push.example:444/x", Code.POLICY),
        ("https://push.example:1/x", Code.POLICY),
        ("https://push.example.evil/x", Code.POLICY),
        ("http://127.0.0.1/x", Code.POLICY),
    ],
)
def test_what_is_no_endpoint_of_an_allowed_push_service_is_refused(rig: Rig, endpoint: object, code: Code) -> None:
    assert rig.refused("create", endpoint) is code
    assert rig.kept() == []


@pytest.mark.parametrize(
    ("expiration", "seconds"),
    [
        (None, PUSH_MAX_SECONDS),
        ("soon", PUSH_MAX_SECONDS),
        (True, PUSH_MAX_SECONDS),
        (1_000_001_000, 1.0),
        (1_000_001_500.5, 1.5005),  # swept at the next whole second
        (1e300, PUSH_MAX_SECONDS),
        (10**400, PUSH_MAX_SECONDS),
        (1_000_000_000, None),
        (-(10**400), None),
        (0, None),
        (-5, None),
    ],
)
def test_a_subscription_ends_when_it_says_and_at_its_longest(
    rig: Rig, expiration: object, seconds: float | None
) -> None:
    if seconds is None:
        assert rig.refused("create", ENDPOINT, expirationTime=expiration) is Code.BAD_BODY
        return
    rig.create(ENDPOINT, expirationTime=expiration)
    [target] = rig.rig.state.push.of(ANA)
    assert target.expires_at - rig.rig.now == pytest.approx(seconds, abs=1e-6)
    rig.rig.state.push.sweep(now=target.expires_at - 0.0001)
    assert len(rig.rig.state.push) == 1
    rig.rig.state.push.sweep(now=math.ceil(target.expires_at))
    assert len(rig.rig.state.push) == 0


# The table.


def target(number: int, *, key: str = OWN, runtime: str = ANA) -> PushTarget:
    return PushTarget(key, f"{ENDPOINT}/{number}", runtime, 100.0)


def refused(targets: PushTargets, one: PushTarget) -> Code:
    with pytest.raises(PeerError) as refused:
        targets.add(one)
    return refused.value.code


def test_an_address_a_runtime_and_the_node_have_so_many_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = PushTargets(Journal())
    for number in range(PUSH_TARGETS_PER_RUNTIME):
        targets.add(target(number, key=f"{OWN}{number // PUSH_TARGETS_PER_ADDRESS}"))
    assert refused(targets, target(999)) is Code.QUOTA
    targets.add(target(0, key=f"{OWN}0"))  # the same again takes no place
    for number in range(PUSH_TARGETS_PER_ADDRESS):
        targets.add(target(number, runtime="runtime://x/y"))
    assert refused(targets, target(999, runtime="runtime://x/y")) is Code.QUOTA
    assert len(targets) == PUSH_TARGETS_PER_RUNTIME + PUSH_TARGETS_PER_ADDRESS
    monkeypatch.setattr(push_targets, "PUSH_TARGETS", len(targets))
    assert refused(targets, target(1, key="k", runtime="r")) is Code.OVERLOAD
    targets.gone(f"{ENDPOINT}/1")
    targets.add(target(1, key="k", runtime="r"))


def test_a_new_runtime_of_an_address_ends_the_subscriptions_of_the_old_one() -> None:
    targets = PushTargets(Journal())
    targets.add(target(1))
    targets.add(target(2))
    targets.add(target(2, key="other"))
    targets.add(target(3, runtime="runtime://x/y"))
    assert [one.endpoint for one in targets.of(OWN)] == [f"{ENDPOINT}/3"]
    assert [one.endpoint for one in targets.of("other")] == [f"{ENDPOINT}/2"]
    targets.remove(OWN, f"{ENDPOINT}/9")
    assert len(targets) == 2
    targets.gone(f"{ENDPOINT}/2")
    assert (len(targets), targets.of("other")) == (1, [])
    targets.remove(OWN)
    assert (len(targets), targets._of_runtime, targets._by_key, targets._by_endpoint) == (0, {}, {}, {})


def test_a_guest_is_not_served() -> None:
    rig = Rig()
    rig.rig = StateRig(credentials=[Credential(digest_of("b"), "runtime://beta.example/*")], allows_guests=True)
    rig.rig.session_verb("open", "runtime://beta.example/rt", 1, {"credentials": {"token": "b"}})
    number = rig.rig.state.sessions.by_connection(1)
    assert number is not None
    rig.service = PushService(rig.rig.state, public_key="key", origins=["https://push.example"])
    assert rig.refused("ask", "read", {}, number) is Code.POLICY
