"""The inventory of hosted stubs: what a line says, and who may read it."""

from __future__ import annotations

import pytest

from federation.core.stub_status import StubStatus
from msg_node.addresses.core.subscriptions import Listeners, Subscription
from msg_node.kernel.changes import Journal
from msg_node.kernel.service import Caller, ServiceRequest
from msg_node.registries.core.stub_inventory import StubInventory, state_events
from protofly import codec
from protofly.errors import Code, PeerError

DOMAIN = "alpha.example"
STUBS = f"domain://msg-node.{DOMAIN}/stubs"
URL = f"runtime://{DOMAIN}/mn-1/protostub/b7c1"
OPS = Caller(1, is_operator=True)
MOMENT = 1_932_796_800.0  # 2031-04-01T08:00:00Z


def request(caller: Caller, type_: str = "read") -> ServiceRequest:
    message = codec.build(id=9, type=type_, from_=f"runtime://{DOMAIN}/rt-ops", to=STUBS)
    return ServiceRequest(message, caller, DOMAIN, MOMENT, b"s" * 32)


def hosted(domain: str = "beta.example") -> StubStatus:
    stub = StubStatus(URL, domain)
    stub.verified(module_sha256="2b8f" * 16, version="1.4.0")
    stub.became("live", now=MOMENT)
    return stub


def test_a_line_is_what_the_specification_shows() -> None:
    inventory = StubInventory()
    inventory.connect(lambda: [hosted()])
    assert inventory(request(OPS)).value == [
        {
            "url": URL,
            "domain": "beta.example",
            "package": "sha256-" + "2b8f" * 16,
            "version": "1.4.0",
            "signature": "valid",
            "state": "live",
            "since": "2031-04-01T08:00:00Z",
        }
    ]


def test_since_is_when_the_state_began_and_not_when_it_was_reported_again() -> None:
    stub = hosted()
    stub.became("live", "reported again", now=MOMENT + 60)
    assert (stub.line()["since"], stub.line()["desc"]) == ("2031-04-01T08:00:00Z", "reported again")
    stub.became("failed", "connection refused", now=MOMENT + 61)
    assert (stub.line()["since"], stub.line()["desc"]) == ("2031-04-01T08:01:01Z", "connection refused")


def test_what_was_refused_has_no_package_and_no_signature() -> None:
    stub = hosted()
    stub.refused()
    stub.became("verify-failed", now=MOMENT)
    assert {name: stub.line()[name] for name in ("package", "version", "signature")} == {
        "package": "",
        "version": "",
        "signature": "unverified",
    }


def test_lines_stand_in_the_order_of_their_domains_and_before_the_links_there_are_none() -> None:
    inventory = StubInventory()
    assert inventory(request(OPS)).value == []
    inventory.connect(lambda: [hosted("c.example"), hosted("b.example")])
    lines = inventory(request(OPS)).value
    assert isinstance(lines, list)
    assert [line["domain"] for line in lines] == ["b.example", "c.example"]


@pytest.mark.parametrize("caller", [Caller(1), Caller(1, is_guest=True), Caller(-1, "beta.example")])
def test_others_than_operators_are_refused(caller: Caller) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.POLICY):
        StubInventory()(request(caller))


@pytest.mark.parametrize("caller", [OPS, Caller(1)])
def test_the_inventory_is_only_read(caller: Caller) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_TYPE):
        StubInventory()(request(caller, "delete"))


@pytest.mark.parametrize("heard", [[], [f"{URL}/status"], ["runtime://alpha.example/mn-1/status"]])
def test_states_are_events_for_those_who_listen_and_for_nobody_else(heard: list[str]) -> None:
    listeners = Listeners(Journal())
    listeners.add(1, [Subscription(key, key, "") for key in heard])
    events = state_events(hosted(), f"runtime://{DOMAIN}/mn-1", listeners)
    assert [event.to for event in events] == heard
