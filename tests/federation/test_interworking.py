"""Interworking stubs: who is admitted, whose an address is, what passes the border in the name of a legacy."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from federation.core.border import InwardBorder, Speaker
from federation.core.interworking import Admission, Interworking
from federation.links.link_context import Refusal
from policy.core.gate import Gate, PeerRule
from protofly.codec import build
from protofly.documents import Abi, Manifest, ModuleReference, Permissions
from protofly.errors import Code, PeerError
from protofly.legacy_range import parse_range
from protofly.message import Message
from tests.federation.test_router import Rig, claims_of
from tests.support.policies import both, deny, one_policy
from tests.support.policies import test as condition
from tests.support.sides import Bus, MemoryCarrier, body_of, decoded, everybody, inbound, text

STUB = "sip.legacy.example"
BO = "sip://bo@legacy.example"
ANA = "hyperty://a.example/ana"
MOMENT = datetime(2031, 1, 1, tzinfo=UTC)


def manifest(*ranges: str, domain: str = STUB) -> Manifest:
    return Manifest(
        spec="rmn-stub/1",
        domain=domain,
        name="sipStub",
        serial=1,
        version="1",
        released=MOMENT,
        expires=MOMENT,
        module=ModuleReference(sha256="0" * 64, size=8, urls=["https://x.example/m"]),
        abi=Abi(name="trapezoid-stub", version="1"),
        permissions=Permissions(ranges=list(ranges)),
        interworking=bool(ranges),
    )


def admitted(*ranges: str, domain: str = STUB) -> Admission:
    return Admission(domain=domain, ranges=tuple(map(parse_range, ranges)))


def interworking(*signed: str, granted: tuple[str, ...] = ("sip://legacy.example", "tel:+4930*")) -> Interworking:
    """A node that admits one stub; with `signed`, its manifest has been verified."""
    made = Interworking([admitted(*granted)], own_domains={"a.example"})
    if signed:
        made.verified(manifest(*signed))
    return made


def message(to: str = BO, *, type_: str = "create", from_: str = ANA, **body: object) -> Message:
    return build(id=7, type=type_, from_=from_, to=to, body={"value": 1, **body})


# Who is admitted, and whose an address is.


def test_interworking_stub_without_an_entry_is_refused_and_claims_nothing() -> None:
    made = Interworking()
    with pytest.raises(PeerError, check=lambda error: error.code is Code.INTERWORKING_OFF):
        made.verified(manifest("sip://legacy.example"))
    assert made.stub_of(BO) == made.granted_to(BO) == ""
    assert made.destination_of(BO) == "legacy.example"


def test_address_leads_to_the_stub_before_it_is_verified_and_is_legacy_after() -> None:
    made = interworking()
    assert (made.granted_to(BO), made.destination_of(BO), made.stub_of(BO)) == (STUB, STUB, "")
    made.verified(manifest("sip://legacy.example"))
    assert made.stub_of(BO) == STUB
    made.withdrawn(STUB)
    assert (made.granted_to(BO), made.stub_of(BO)) == (STUB, "")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (BO, STUB),
        ("tel:+49301", STUB),
        ("tel:+4931", ""),
        ("sip://bo@other.example", ""),
        ("slack://bo@legacy.example", ""),
        (f"hyperty://{STUB}/bo", ""),
    ],
)
def test_legacy_is_what_descriptor_and_grant_cover_and_nothing_that_looks_like_it(address: str, expected: str) -> None:
    made = interworking("sip://legacy.example", "sip://other.example", "slack://legacy.example", "tel:*")
    assert made.stub_of(address) == expected
    assert [str(one) for one in made.effective(STUB)] == ["sip://legacy.example", "tel:+4930*"]


@pytest.mark.parametrize(
    ("signed", "effective"),
    [
        ((), ()),
        (("tel:+49301*",), ("tel:+49301*",)),
        (("tel:+49*",), ("tel:+4930*",)),
        (("tel:+33*",), ()),
        (("sip://legacy.example",), ("sip://legacy.example",)),
        (("sip://other.example", "tel:+49305*", "tel:+4*"), ("tel:+49305*", "tel:+4930*")),
    ],
)
def test_a_stub_speaks_for_the_parts_of_its_claims_that_are_granted(
    signed: tuple[str, ...], effective: tuple[str, ...]
) -> None:
    assert tuple(map(str, interworking(*signed).effective(STUB))) == effective
    assert interworking(*signed).effective("other.example") == ()


def test_addresses_of_our_own_domain_are_no_legacys_whatever_was_granted() -> None:
    made = interworking("sip://a.example", granted=("sip://a.example",))
    assert made.granted_to("sip://ana@a.example") == ""


def test_stub_whose_manifest_does_not_say_so_has_no_ranges() -> None:
    made = interworking()
    made.verified(manifest())
    assert made.stub_of(BO) == ""
    with pytest.raises(PeerError, check=lambda error: error.code is Code.NO_ROUTE):
        made.check_sent(STUB, message())
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_TYPE):
        made.check_sent(STUB, message(f"hyperty://{STUB}/bo", type_="init"))


def test_only_an_admitted_stub_comes_and_it_goes_once() -> None:
    made = interworking()
    for domain in ("other.example", STUB):
        assert not made.went(domain)
        made.came(domain)
    assert (made.is_live(STUB), made.is_live("other.example")) == (True, False)
    assert (made.went(STUB), made.is_live(STUB), made.went(STUB)) == (True, False, False)


def test_what_is_of_no_granted_scheme_is_nobodys_whatever_it_looks_like() -> None:
    assert interworking("sip://legacy.example").stub_of("a b") == ""


# The border.


def border(made: Interworking, domain: str) -> InwardBorder:
    return InwardBorder(
        "runtime://a.example/mn-1",
        Speaker(frozenset({domain}), is_theirs=lambda one: made.speaks_for(domain, one)),
    )


@pytest.mark.parametrize(
    ("sender", "is_taken"),
    [
        (BO, True),
        ("sip:bo@legacy.example", True),
        ("tel:+49301", True),
        (f"hyperty://{STUB}/bo", True),
        (f"comm://{STUB}/room", True),
        ("tel:+4931", False),
        ("sip://bo@legacy.example.evil", False),
        ("sip://bo@x.legacy.example", False),
        ("slack://bo@legacy.example", False),
        (ANA, False),
        ("sip://ana@a.example", False),
        ("user://a.example/ana", False),
        ("domain://registry.a.example", False),
    ],
)
def test_stub_speaks_for_its_ranges_and_its_domain_only(sender: str, is_taken: bool) -> None:
    made = interworking("sip://legacy.example", "tel:+4930*", "slack://legacy.example")
    for said in (decoded(text(from_=sender)), decoded(text(from_=BO, body=f'{{"source":"{sender}"}}'))):
        if is_taken:
            border(made, STUB).check_sender(said)
        else:
            with pytest.raises(PeerError, check=lambda error: error.code is Code.SPOOFED_SOURCE):
                border(made, STUB).check_sender(said)


@pytest.mark.parametrize("sender", ["sip://legacy.example/bo", "sip://bo@legacy.example"])
def test_domain_of_the_host_does_not_speak_for_what_was_granted_to_a_stub(sender: str) -> None:
    made = interworking("sip://legacy.example")
    with pytest.raises(PeerError, check=lambda error: error.code is Code.SPOOFED_SOURCE):
        border(made, "legacy.example").check_sender(decoded(text(from_=sender)))
    border(made, "legacy.example").check_sender(decoded(text(from_="hyperty://legacy.example/bo")))


@given(sender=st.from_regex(r"\A(sip|tel|slack|hyperty):(//)?[a-z+@.0-9/]{1,24}\Z"))
def test_a_sender_that_passes_is_of_the_domain_or_of_a_range(sender: str) -> None:
    made = interworking("sip://legacy.example", "tel:+4930*")
    try:
        border(made, STUB).check_sender(decoded(text(from_=sender)))
    except PeerError:
        return
    assert made.stub_of(sender) == STUB or sender.split("/")[2] == STUB


# The link.


def linked(made: Interworking) -> tuple[Bus, MemoryCarrier]:
    bus = Bus("a.example", interworking=made)
    return bus, MemoryCarrier(bus.link_to(STUB))


def test_what_waited_for_the_stub_goes_when_it_is_its_and_is_answered_when_it_is_not() -> None:
    bus, carrier = linked(interworking(granted=("sip://legacy.example", "tel:*")))
    link = carrier.near
    assert link.send(message()) is None
    assert link.send(message("tel:110")) is None
    assert link.send(message(f"hyperty://{STUB}/bo", type_="init")) is None
    bus.interworking.verified(manifest("sip://legacy.example"))
    link.stub_verified()
    assert (bus.answer_codes, [one.from_ for one in bus.answers]) == ([Code.NO_ROUTE], ["tel:110"])
    carrier.open()
    assert [one.message.to for one in carrier.on_the_way] == [BO, f"hyperty://{STUB}/bo"]
    assert link.send(message("tel:110")) == Refusal(Code.NO_ROUTE)


def test_types_of_interworking_go_to_such_stubs_only_and_come_from_nobody() -> None:
    bus, carrier = linked(interworking("sip://legacy.example"))
    carrier.open()
    assert carrier.near.send(message(type_="register")) is None
    assert bus.link_to("b.example").send(message("hyperty://b.example/bo", type_="register")) == Refusal(Code.BAD_TYPE)
    raw = build(id=9, type="init", from_=BO, to=ANA, body={}).raw
    carrier.near.inbound(inbound(raw), "5" * 32)
    assert bus.delivered == []
    carrier.near.flush()
    assert body_of(decoded(carrier.on_the_way[-1].wire))["reason"] == "bad-type"


def test_stub_that_speaks_for_others_is_counted_and_closed_and_nothing_of_it_arrives() -> None:
    bus, carrier = linked(interworking("sip://legacy.example"))
    carrier.open()
    foreign = [text(from_=one) for one in ("sip://eve@victim.example", ANA, "tel:+49301")]
    with pytest.raises(PeerError, check=lambda error: error.code is Code.SPOOFED_SOURCE):
        carrier.near.inbound(inbound(text(from_=BO), *foreign), "5" * 32)
    assert [one.from_ for one in bus.delivered] == [BO]
    assert (carrier.near.counters["spoofed"], bus.events.count("spoofed")) == (3, 3)


def test_gate_and_records_take_a_legacy_address_for_its_stubs_domain() -> None:
    executed = both(condition("srcSPDomain", "equals", STUB), condition("actionType", "equals", "execute"))
    gate = Gate(one_policy(deny("no", executed)), {STUB: PeerRule()})
    bus = Bus("a.example", gate=gate, interworking=interworking("tel:+4930*", "sip://legacy.example"))
    carrier = MemoryCarrier(bus.link_to(STUB))
    carrier.open()
    denied = [build(id=9, type="execute", from_=one, to=ANA, body={}).raw for one in ("tel:+49301", BO)]
    carrier.near.inbound(inbound(*denied, text(from_="tel:+49301")), "5" * 32)
    assert [one.from_ for one in bus.delivered] == ["tel:+49301"]
    assert {(one.src_domain, one.dst_domain) for one in bus.message_records} == {(STUB, "a.example")}
    assert {one.src_domain for one in bus.decisions} == {STUB}


def test_stub_that_comes_back_with_fewer_ranges_speaks_for_fewer() -> None:
    bus, carrier = linked(interworking("sip://legacy.example", "tel:+4930*"))
    carrier.open()
    carrier.near.inbound(inbound(text(from_="tel:+49301")), "5" * 32)
    carrier.cut()
    bus.interworking.verified(manifest("sip://legacy.example"))
    again = MemoryCarrier(carrier.near)
    again.open()
    again.near.inbound(inbound(text(from_="tel:+49301"), text(from_=BO), first=2), "5" * 32)
    assert [one.from_ for one in bus.delivered] == ["tel:+49301", BO]


# Who is let in.


async def test_admitted_stub_runs_from_the_start_and_is_never_idle(nursery: trio.Nursery) -> None:
    rig = Rig(everybody(), interworking=interworking())
    await nursery.start(rig.federation.run)
    [link] = rig.federation.links
    assert link.domain == STUB
    assert link.need.has_arisen
    assert not link.is_idle


async def test_domain_of_an_interworking_stub_cannot_link_to_us_itself(nursery: trio.Nursery) -> None:
    rig = Rig(everybody(), interworking=interworking("sip://legacy.example"))
    await nursery.start(rig.federation.run)
    with pytest.raises(PeerError, check=lambda error: error.code is Code.AUTH_POLICY):
        rig.federation.admit(claims_of(STUB))
    [link] = rig.federation.links
    assert link.domain == STUB
    assert link.machine.carriers == []


async def test_stub_whose_domain_is_blocked_costs_the_node_nothing(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(Gate(), interworking=interworking())
    await nursery.start(rig.federation.run)
    assert rig.federation.links == []
    assert "domain-blocked" in caplog.text
