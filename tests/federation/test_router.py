"""The way to other domains: one link per domain, opened when policy lets it, supervised once, ticked."""

from __future__ import annotations

import time
from itertools import groupby

import pytest
import trio
import trio.testing

from federation.core import auth
from federation.core.auth import Claims
from federation.core.carrier import Accepted
from federation.core.interworking import Interworking
from federation.core.peer_terms import PeerTerms
from federation.core.stub_status import StubAddresses
from federation.links.decision_records import DecisionRecords
from federation.links.domain_link import DomainLink
from federation.links.link_context import Refusal
from federation.links.router import Federation
from federation.links.visitors import greeting, may_talk
from policy.core.gate import Gate, PeerRule
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.limits import ANSWERED_AT_ONCE, DECISIONS_PER_SOURCE
from protofly.records import DecisionRecord
from tests.support.policies import deny, one_policy
from tests.support.policies import test as condition
from tests.support.sides import Bus, Clock, MemoryCarrier, chat, everybody, node_of, request


class Supervisors:
    """Stands in for the supervisors of stubs: remembers which links have one."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running: list[str] = []

    async def supervise(self, link: DomainLink) -> None:
        self.started.append(link.domain)
        self.running.append(link.domain)
        try:
            await trio.sleep_forever()
        finally:
            self.running.remove(link.domain)


class Rig:
    def __init__(
        self,
        gate: Gate,
        *,
        max_links: int = 256,
        interworking: Interworking | None = None,
        terms: PeerTerms | None = None,
    ) -> None:
        self.bus = Bus("a.example", gate=gate, interworking=interworking or Interworking(), terms=terms or PeerTerms())
        self.supervisors = Supervisors()
        self.federation = Federation(
            self.bus.context,
            DecisionRecords(gate, self.bus.records.append),
            StubAddresses(node_of("a.example"), b"a.example"),
            supervise=self.supervisors.supervise,
            max_links=max_links,
        )


async def _rig(nursery: trio.Nursery, gate: Gate, *, max_links: int = 256) -> Rig:
    rig = Rig(gate, max_links=max_links)
    await nursery.start(rig.federation.run)
    return rig


@pytest.fixture
async def rig(nursery: trio.Nursery) -> Rig:
    return await _rig(nursery, everybody())


def claims_of(domain: str, *, node: str = "") -> Claims:
    asked = auth.TokenRequest("a.example", "wss://mn.a.example/link", "none", b"")
    issuer = auth.Issuer(domain, node or node_of(domain), [domain])
    return auth.new_claims(issuer, asked, "n", now=time.time(), random_bytes=bytes(48))


async def test_the_first_message_opens_the_link_and_starts_one_supervisor(rig: Rig) -> None:
    for number in range(1, 4):
        assert rig.federation.send("b.example", chat(number)) is None
    await trio.testing.wait_all_tasks_blocked()
    assert rig.supervisors.started == ["b.example"]
    [link] = rig.federation.links
    assert (link.domain, link.queue.waiting, link.need.has_arisen) == ("b.example", 3, True)


async def test_each_domain_has_a_link_and_a_stream_of_its_own(rig: Rig) -> None:
    for domain in ("b.example", "c.example"):
        rig.federation.send(domain, chat(1, to=domain))
    b, c = rig.federation.links
    assert b.queue.stream != c.queue.stream
    assert b.stub.url != c.stub.url
    assert len(b.queue.stream) == 32


@pytest.mark.parametrize("domain", ["b.example.", "B.example", "b", "", "b.example:443", "127.0.0.1", "x" * 300])
async def test_what_is_no_domain_name_gets_no_link(rig: Rig, domain: str) -> None:
    assert rig.federation.send(domain, chat(1)) == Refusal(Code.NAME_INVALID)
    assert rig.federation.links == []


async def test_a_domain_that_no_entry_names_gets_no_link_and_no_look_up(nursery: trio.Nursery) -> None:
    rig = await _rig(nursery, Gate(peers={"b.example": PeerRule()}))
    refusal = rig.federation.send("c.example", chat(1, to="c.example"))
    [decision] = rig.bus.records
    assert isinstance(decision, DecisionRecord)
    assert refusal == Refusal(Code.DOMAIN_BLOCKED, {"msgId": decision.msg_id})
    assert rig.federation.barred_messages == 1
    await trio.testing.wait_all_tasks_blocked()
    assert (rig.federation.links, rig.supervisors.started) == ([], [])


async def test_a_flush_hands_over_once_per_round_whatever_was_sent(rig: Rig) -> None:
    rig.federation.send("b.example", chat(1))
    [link] = rig.federation.links
    carrier = MemoryCarrier(link)
    carrier.open()
    pumps = carrier.pumps
    for number in range(2, 12):
        rig.federation.send("b.example", chat(number))
    rig.federation.flush()
    rig.federation.flush()
    assert carrier.pumps == pumps + 1
    assert len(carrier.on_the_way) == 11


async def test_a_refused_message_flushes_nothing(rig: Rig) -> None:
    rig.federation.send("b.example", chat(1))
    [link] = rig.federation.links
    carrier = MemoryCarrier(link)
    carrier.open()
    rig.federation.flush()
    pumps = carrier.pumps
    link.machine.refusal = None
    assert rig.federation.send("b.example", request(2, via=1)) is not None
    rig.federation.flush()
    assert carrier.pumps == pumps


async def test_waiting_messages_are_answered_while_the_node_runs(
    rig: Rig, autojump_clock: trio.testing.MockClock
) -> None:
    rig.federation.send("b.example", request(1))
    later = time.monotonic() + 60
    rig.bus.clock = Clock(monotonic=lambda: later)
    await trio.sleep(1)
    assert rig.bus.answer_codes == [Code.DEPLOY_TIMEOUT]


async def test_links_with_very_much_to_answer_take_turns(rig: Rig, autojump_clock: trio.testing.MockClock) -> None:
    many = 2 * ANSWERED_AT_ONCE + 1
    for domain in ("b.example", "c.example"):
        rig.federation.send(domain, request(0, to=domain))
        link = rig.federation.links[-1]
        MemoryCarrier(link).open()
        for number in range(1, many):
            rig.federation.send(domain, request(number, to=domain))
        link.flush()
        link.handle(Accepted(many))  # and then nobody answers
    later = time.monotonic() + 60
    rig.bus.clock = Clock(monotonic=lambda: later)
    await trio.sleep(1)
    assert rig.bus.answer_codes == [Code.GATEWAY_TIMEOUT] * 2 * many
    answered = [domain_of(message.from_) for message in rig.bus.answers]
    turns = [(domain, len(list(some))) for domain, some in groupby(answered)]
    b, c = "b.example", "c.example"
    assert turns == [(b, ANSWERED_AT_ONCE), (c, ANSWERED_AT_ONCE)] * 2 + [(b, 1), (c, 1)]


async def test_a_node_that_proved_its_domain_gets_the_link_that_exists(rig: Rig) -> None:
    rig.federation.send("b.example", chat(1))
    port = rig.federation.admit(claims_of("b.example"))
    assert rig.federation.links == [port]
    assert port.queue.waiting == 1


async def test_a_node_that_comes_first_opens_the_link(rig: Rig) -> None:
    port = rig.federation.admit(claims_of("b.example"))
    await trio.testing.wait_all_tasks_blocked()
    assert rig.federation.links == [port]
    assert rig.supervisors.started == ["b.example"]


async def test_a_node_of_a_domain_that_policy_does_not_talk_to_is_notified(nursery: trio.Nursery) -> None:
    rig = await _rig(nursery, Gate(peers={"b.example": PeerRule()}))
    with pytest.raises(PeerError) as caught:
        rig.federation.admit(claims_of("c.example"))
    assert (caught.value.code, caught.value.domain) == (Code.AUTH_POLICY, "c.example")
    assert rig.federation.links == []


async def test_policy_is_asked_again_for_a_link_that_exists(nursery: trio.Nursery) -> None:
    rig = await _rig(nursery, everybody())
    rig.federation.admit(claims_of("b.example"))
    rig.federation.decisions.gate = Gate()
    with pytest.raises(PeerError) as caught:
        rig.federation.admit(claims_of("b.example"))
    assert caught.value.code is Code.AUTH_POLICY


async def test_when_there_are_too_many_links_an_idle_one_makes_room(nursery: trio.Nursery) -> None:
    rig = await _rig(nursery, everybody(), max_links=2)
    rig.federation.send("b.example", chat(1, to="b.example"))
    rig.federation.admit(claims_of("c.example"))
    assert rig.federation.send("d.example", chat(1, to="d.example")) is None
    assert [link.domain for link in rig.federation.links] == ["b.example", "d.example"]
    assert rig.federation.send("e.example", chat(1, to="e.example")) == Refusal(Code.OVERLOAD)
    with pytest.raises(PeerError) as caught:
        rig.federation.admit(claims_of("e.example"))
    assert caught.value.code is Code.OVERLOAD


async def test_links_of_strangers_do_not_cut_off_a_peer_that_is_named(nursery: trio.Nursery) -> None:
    gate = Gate(peers={"*": PeerRule(), "*.example": PeerRule(), "friend.example": PeerRule()})
    rig = await _rig(nursery, gate, max_links=3)
    for number in range(3):
        port = rig.federation.admit(claims_of(f"x{number}.evil.example"))
        assert isinstance(port, DomainLink)
        MemoryCarrier(port).open()
    for domain in ("x3.evil.example", "stranger.example"):
        assert rig.federation.send(domain, chat(1, to=domain)) == Refusal(Code.OVERLOAD)
    assert rig.federation.send("friend.example", chat(1, to="friend.example")) is None
    rig.federation.admit(claims_of("friend.example"))
    assert len(rig.federation.links) == 4


async def test_a_live_link_and_a_wanted_one_make_no_room(nursery: trio.Nursery) -> None:
    rig = await _rig(nursery, everybody(), max_links=1)
    port = rig.federation.admit(claims_of("b.example"))
    assert isinstance(port, DomainLink)
    MemoryCarrier(port).open()
    assert rig.federation.send("c.example", chat(1, to="c.example")) == Refusal(Code.OVERLOAD)


async def test_a_link_that_made_room_has_no_supervisor_any_more(nursery: trio.Nursery) -> None:
    rig = await _rig(nursery, everybody(), max_links=1)
    for letter in "bcdefg":
        rig.federation.admit(claims_of(f"{letter}.example"))
        await trio.testing.wait_all_tasks_blocked()
    assert rig.supervisors.running == ["g.example"]


async def test_senders_pause_for_a_congested_link_unless_it_is_known_to_be_slow(rig: Rig) -> None:
    assert rig.federation.congested_link("b.example") is None
    rig.federation.send("b.example", chat(1))
    [link] = rig.federation.links
    assert rig.federation.congested_link("b.example") is None
    MemoryCarrier(link).open()
    for number in range(5_000):
        rig.federation.send("b.example", chat(number))
    assert rig.federation.congested_link("b.example") is link.senders
    link.senders.is_slow = True
    assert rig.federation.congested_link("b.example") is None


def test_the_gate_peer_is_asked_about_the_domain_and_not_the_sender() -> None:
    decisions = DecisionRecords(Gate(peers={"b.example": PeerRule()}), lambda _: None)
    assert may_talk(decisions, "b.example", greeting(node_of("a.example"), node_of("a.example")))
    assert not may_talk(decisions, "c.example", greeting(node_of("b.example"), node_of("a.example")))


async def test_a_refusal_before_there_is_a_link_is_recorded_in_either_order(nursery: trio.Nursery) -> None:
    rig = await _rig(nursery, Gate(peers={"b.example": PeerRule()}))
    message = chat(1, to="c.example")
    rig.federation.send("c.example", message)
    with pytest.raises(PeerError):
        rig.federation.admit(claims_of("d.example"))
    sent, visit = rig.bus.decisions
    assert (sent.hook, sent.permitted, sent.reason) == ("peer", False, "domain-blocked")
    assert (sent.link_domain, sent.src_key, sent.dst_key) == ("c.example", message.from_, message.to)
    assert (visit.hook, visit.reason, visit.link_domain) == ("peer", "domain-blocked", "d.example")
    assert rig.bus.message_records == []


async def test_who_writes_to_barred_domains_all_the_time_leaves_room_for_the_refusals_of_others(
    nursery: trio.Nursery,
) -> None:
    rig = await _rig(nursery, Gate(peers={"b.example": PeerRule()}))
    for number in range(DECISIONS_PER_SOURCE + 10):
        rig.federation.send(f"c{number}.example", chat(number, to=f"c{number}.example"))
    with pytest.raises(PeerError):
        rig.federation.admit(claims_of("d.example"))
    *flood, visit = rig.bus.decisions
    assert len(flood) == DECISIONS_PER_SOURCE
    assert (visit.link_domain, visit.left_out) == ("d.example", 10)
    assert rig.federation.decisions.left_out == 10


async def test_what_may_not_go_out_is_recorded_although_it_was_only_to_wait(nursery: trio.Nursery) -> None:
    gate = Gate(one_policy(deny("no-reads", condition("hook", "equals", "out"))), {"b.example": PeerRule()})
    rig = await _rig(nursery, gate)
    refusal = rig.federation.reach("b.example", request(1))
    assert refusal is not None
    assert refusal.code is Code.POLICY
    assert [one.rule_id for one in rig.bus.decisions] == ["s/no-reads"]
    assert [(one.outcome, one.outcome_code) for one in rig.bus.message_records] == [("denied", "policy")]


async def test_link_that_is_to_stay_connected_is_made_at_the_start_and_is_never_idle(nursery: trio.Nursery) -> None:
    rig = Rig(everybody(), max_links=1, terms=PeerTerms(connected=frozenset({"b.example"})))
    await nursery.start(rig.federation.run)
    await trio.testing.wait_all_tasks_blocked()
    assert rig.supervisors.started == ["b.example"]
    [link] = rig.federation.links
    assert link.need.has_arisen
    assert not link.is_idle
    refusal = rig.federation.send("c.example", chat(1, to="c.example"))
    assert refusal is not None
    assert refusal.code is Code.OVERLOAD  # its link is not taken away for another one


async def test_domain_whose_stub_the_operator_chose_cannot_connect_to_us(nursery: trio.Nursery) -> None:
    rig = Rig(everybody(), terms=PeerTerms(chosen=frozenset({"b.example"})))
    await nursery.start(rig.federation.run)
    with pytest.raises(PeerError, check=lambda error: error.code is Code.AUTH_POLICY):
        rig.federation.admit(claims_of("b.example"))
    rig.federation.admit(claims_of("c.example"))
