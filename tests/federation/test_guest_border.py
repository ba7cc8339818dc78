"""A runtime of another domain is judged as that domain's link: whatever the policy, the lists and the rates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.core.carried import NODE_FLAGS
from federation.links.decision_records import DecisionRecords
from federation.links.guest_border import GuestBorder, GuestContext
from federation.links.link_context import BorderRules, Identified, OurNames
from federation.links.link_records import Recording
from federation.links.visitors import greeting, may_talk
from policy.core.engine import CompiledPolicies, Mode, Rule
from policy.core.gate import Gate, PeerRule
from policy.core.rates import RateLimit, TypeRate
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.message import Message
from protofly.records import DecisionRecord, MessageRecord, Record
from tests.support.policies import deny, one_policy, permit, test, unrecorded
from tests.support.sides import Bus, inbound, node_of

OURS: Final = "a.example"
THEIRS: Final = "b.example"
ROLES: Final = frozenset({"operator"})


def border_of(gate: Gate, records: list[Record], *, verified: bool = False) -> GuestBorder:
    return GuestBorder(
        GuestContext(
            BorderRules(
                OurNames(OURS, node_of(OURS)),
                gate,
                (lambda _message, _domain, _now: Identified(True, "bo@b.example", "idp.example")) if verified else None,
            ),
            Recording(OURS, gate, records.append),
            DecisionRecords(gate, records.append),
        )
    )


@dataclass(frozen=True)
class Setting:
    """What an operator may have said."""

    policies: CompiledPolicies
    peers: dict[str, PeerRule]
    allow: tuple[str, ...] | None
    deny: tuple[str, ...]

    def gate(self) -> Gate:
        return Gate(self.policies, self.peers, allow=self.allow, deny=self.deny)


CONDITIONS: Final = st.one_of(
    st.sampled_from(["in", "out", "local", "peer"]).map(lambda word: test("hook", "equals", word)),
    st.sampled_from(["srcSPDomain", "dstSPDomain", "linkDomain"]).flatmap(
        lambda name: st.sampled_from([OURS, THEIRS, "c.example"]).map(lambda domain: test(name, "equals", domain))
    ),
    st.sampled_from(["create", "read", "update", "response"]).map(lambda word: test("actionType", "equals", word)),
    st.integers(0, 400).map(lambda size: test("size", "moreThan", size)),
    st.integers(0, 3).map(lambda hops: test("viaLength", "moreThan", hops)),
    st.just(test("session.roles", "contains", "operator")),
    st.just(test("identity.verified", "equals", True)),
    st.just(test("resource", "equals", "x")),
    st.booleans().map(lambda verdict: test("auth", "equals", verdict)),
)
RULES: Final = st.builds(
    lambda number, is_deny, condition, mode: (deny if is_deny else permit)(f"r{number}", condition, mode=mode),
    st.integers(0, 9),
    st.booleans(),
    CONDITIONS,
    st.sampled_from(list(Mode)),
)


def distinct(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    return tuple({rule.id: rule for rule in rules}.values())


LIMITS: Final = st.sampled_from(
    [RateLimit(), RateLimit(messages_per_second=0.01, burst_seconds=200.0), RateLimit(bytes_per_second=1.0)]
)
PEERS: Final = st.dictionaries(
    st.sampled_from([THEIRS, "*.example", "*"]),
    st.builds(
        lambda default, rate, typed, p2p: PeerRule(
            default=default,
            rate=rate,
            rates=(TypeRate(types=("create",), limit=RateLimit(messages_per_second=0.01, burst_seconds=100.0)),)
            if typed
            else (),
            p2p=p2p,
        ),
        st.sampled_from(["permit", "deny"]),
        LIMITS,
        st.booleans(),
        st.booleans(),
    ),
)
NAMES: Final = st.sampled_from([THEIRS, "*.example", "c.example"])
SETTINGS: Final = st.builds(
    Setting,
    st.lists(RULES, max_size=4).map(lambda rules: one_policy(*distinct(rules))),
    PEERS,
    st.one_of(st.none(), st.lists(NAMES, max_size=2, unique=True).map(tuple)),
    st.lists(NAMES, max_size=1).map(tuple),
)
BODIES: Final = st.fixed_dictionaries(
    {},
    optional={
        "value": st.just("x" * 100),
        "resource": st.sampled_from(["x", "y"]),
        "via": st.sampled_from([[], ["runtime://c.example/mn-1"], ["x", "y"], [node_of(OURS)], 7, ["x"] * 20]),
        "auth": st.just(True),
        "sessionToken": st.just("t"),
        "trace": st.just("t-1"),
    },
)


@st.composite
def messages(draw: st.DrawFn, *, from_domain: str, to_domain: str) -> bytes:
    type_ = draw(st.sampled_from(["create", "read", "update", "response", "event", "frobnicate", "forward"]))
    path = draw(st.sampled_from(["h", "p2phandler/1"]))
    message: dict[str, object] = {
        "id": draw(st.integers(1, 3)),
        "type": type_,
        "from": f"hyperty://{from_domain}/{path}",
        "to": draw(st.sampled_from([f"hyperty://{to_domain}/h", f"comm://{to_domain}/room/children/m"])),
        "body": draw(BODIES),
    }
    return json.dumps(message, separators=(",", ":")).encode()


def as_reported(records: Sequence[Record]) -> list[tuple[object, ...]]:
    """What the records say about messages and decisions, but for ids, times and the way."""
    rows: list[tuple[object, ...]] = []
    for one in records:
        if isinstance(one, MessageRecord):
            if one.reason == "node":
                continue  # our link's own words; a guest is answered on its connection
            rows.append(
                (
                    *(one.role, one.decision, one.outcome, one.outcome_code, one.rule_id, one.reason, one.policy_rev),
                    *(one.src_domain, one.dst_domain, one.src_key, one.dst_key, one.msg_type, one.digest, one.facts),
                )
            )
        elif isinstance(one, DecisionRecord):
            rows.append(
                (
                    *(one.hook, one.effect, one.permitted, one.rule_id, one.reason, one.src_domain, one.dst_domain),
                    *(one.link_domain, one.src_key, one.dst_key, one.msg_type, one.shadow, one.obligations),
                )
            )
    return rows


@given(setting=SETTINGS, raws=st.lists(messages(from_domain=THEIRS, to_domain=OURS), min_size=1, max_size=5))
def test_what_a_guest_sends_gets_the_verdict_of_its_link(setting: Setting, raws: list[bytes]) -> None:
    bus = Bus(OURS, gate=setting.gate())
    bus.link_to(THEIRS).inbound(inbound(*raws), "s")
    records: list[Record] = []
    border = border_of(setting.gate(), records)
    passed: list[tuple[bytes, bool | None]] = []
    for raw in raws:
        (message,) = codec.decode(raw)
        try:
            entered = border.enter(THEIRS, message, 1.0)
        except PeerError:
            continue
        entered.arrived(None)
        passed.append((entered.message.raw, entered.message.verdict))
    assert [(message.raw, message.verdict) for message in bus.delivered] == passed
    assert sorted(map(repr, as_reported(records))) == sorted(map(repr, as_reported(bus.records)))


@given(
    setting=SETTINGS,
    raws=st.lists(messages(from_domain=OURS, to_domain=THEIRS), min_size=1, max_size=5),
    roles=st.sampled_from([frozenset(), ROLES]),
    verdict=st.sampled_from([None, True, False]),
)
def test_what_a_guest_is_sent_gets_the_verdict_of_its_link(
    setting: Setting, raws: list[bytes], roles: frozenset[str], verdict: bool | None
) -> None:
    bus = Bus(OURS, gate=setting.gate())
    link = bus.link_to(THEIRS)
    records: list[Record] = []
    given_: list[Message] = []
    border = border_of(setting.gate(), records)
    for raw in raws:
        (message,) = codec.decode(raw)
        if verdict is not None:
            message.judged(verdict)
        gate_codes = Code.POLICY, Code.DOMAIN_BLOCKED, Code.RATE
        refusal = link.send(message, roles)
        code = border.leave(THEIRS, message, given_.append, roles)
        verdicts = [one if one in gate_codes else None for one in (code, None if refusal is None else refusal.code)]
        assert verdicts[0] == verdicts[1]
        assert (code is None) == bool(given_)
        for one in given_:
            assert (one.id, one.type, one.from_, one.to) == (message.id, message.type, message.from_, message.to)
            assert not codec.body_members(one.body).keys() & set(NODE_FLAGS)
        given_.clear()
    decided = [[one for one in rows if isinstance(one, DecisionRecord)] for rows in (records, bus.records)]
    assert as_reported(decided[0]) == as_reported(decided[1])


@given(setting=SETTINGS)
def test_a_guest_opens_its_session_where_its_domain_may_link(setting: Setting) -> None:
    records: list[Record] = []
    opening = greeting(f"runtime://{THEIRS}/rt", node_of(OURS))
    if may_talk(unrecorded(setting.gate()), THEIRS, opening):
        border_of(setting.gate(), records).open(THEIRS, opening)
        assert all(one.permitted for one in records if isinstance(one, DecisionRecord))  # of rules in report mode
        return
    with pytest.raises(PeerError) as refused:
        border_of(setting.gate(), records).open(THEIRS, opening)
    assert refused.value.code in (Code.DOMAIN_BLOCKED, Code.POLICY)
    named = [(one.hook, one.msg_id) for one in records if isinstance(one, DecisionRecord)]
    assert named == [("peer", refused.value.msg_id)]


def test_a_guest_and_the_link_of_its_domain_share_one_rate() -> None:
    rate = RateLimit(messages_per_second=0.01, burst_seconds=400.0)
    gate = Gate(peers={THEIRS: PeerRule(rate=rate)})
    bus = Bus(OURS, gate=gate)
    link, border = bus.link_to(THEIRS), border_of(gate, bus.records)
    raw = b'{"id":1,"type":"read","from":"hyperty://b.example/h","to":"hyperty://a.example/h"}'
    (message,) = codec.decode(raw)
    link.inbound(inbound(raw, raw), "s")
    border.enter(THEIRS, message, bus.message_records[0].ts_us / 1e6)
    border.enter(THEIRS, message, bus.message_records[0].ts_us / 1e6)
    with pytest.raises(PeerError) as refused:
        border.enter(THEIRS, message, bus.message_records[0].ts_us / 1e6)
    assert refused.value.code is Code.RATE
    link.inbound(inbound(raw, first=3), "s")
    assert len(bus.delivered) == 2


@pytest.mark.parametrize("domain", ["localhost", "b.example:99", "[::1]", "192.0.2.1"])
def test_what_is_no_domain_opens_nothing(domain: str) -> None:
    gate = Gate(peers={"*": PeerRule()})
    with pytest.raises(PeerError):
        border_of(gate, []).open(domain, greeting(f"runtime://{domain}/rt", node_of(OURS)))


def test_a_leased_address_of_ours_does_not_make_a_guest_one_of_us() -> None:
    gate = Gate(one_policy(permit("ours", test("srcSPDomain", "equals", OURS))), {"*": PeerRule(default="deny")})
    raw = b'{"id":1,"type":"read","from":"hyperty://a.example/leased","to":"hyperty://a.example/h"}'
    (message,) = codec.decode(raw)
    with pytest.raises(PeerError) as refused:
        border_of(gate, []).enter(THEIRS, message, 1.0)
    assert refused.value.code is Code.DOMAIN_BLOCKED


def test_who_sends_is_what_this_node_has_verified() -> None:
    records: list[Record] = []
    gate = Gate(one_policy(permit("known", test("identity.verified", "equals", True))), {})
    raw = b'{"id":1,"type":"read","from":"hyperty://b.example/h","to":"hyperty://a.example/h"}'
    (message,) = codec.decode(raw)
    border_of(gate, records, verified=True).enter(THEIRS, message, 1.0).arrived(None)
    with pytest.raises(PeerError):
        border_of(gate, records).enter(THEIRS, message, 1.0)


def test_guests_of_a_listed_alias_are_judged_as_the_link_of_the_main_domain() -> None:
    gate = Gate(one_policy(permit("link", test("linkDomain", "equals", THEIRS))), {})
    records: list[Record] = []
    context = GuestContext(
        BorderRules(OurNames(OURS, node_of(OURS)), gate),
        Recording(OURS, gate, records.append),
        unrecorded(gate),
        {"alias.example": THEIRS},
    )
    raw = b'{"id":1,"type":"read","from":"hyperty://alias.example/h","to":"hyperty://a.example/h"}'
    (message,) = codec.decode(raw)
    border = GuestBorder(context)
    border.open("alias.example", greeting("runtime://alias.example/rt", node_of(OURS)))
    border.enter("alias.example", message, 1.0).arrived(None)
    assert border.leave("alias.example", message, lambda _: None) is None
    assert {one.src_domain for one in records if isinstance(one, MessageRecord)} == {THEIRS, OURS}
