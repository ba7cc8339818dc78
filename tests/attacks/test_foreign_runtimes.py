"""Runtimes of another domain that come with a credential in place of a link, to do here what their link may not.

Every attack goes over a socket. Whatever the attacker says, it is judged at the gates of its domain, recorded, and its
neighbours lose nothing. Source: message specification, sections 18.4 and 18.5.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from federation.core import transactions
from msg_node.kernel.credentials import OPERATOR, Credential, digest_of
from msg_node.kernel.rules import Rules
from policy.core.engine import CompiledPolicies
from policy.core.gate import Gate, PeerRule
from policy.core.rates import RateLimit
from protofly.errors import Code
from protofly.records import DecisionRecord, MessageRecord
from tests.support.policies import both, deny, one_policy, permit, test
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    FOREIGN,
    SESSION,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)

THIRD: Final = "gamma.example"
BO: Final = f"runtime://{FOREIGN}/bo"
NODE_SERVICE: Final = f"domain://msg-node.{DOMAIN}"
REGISTRY: Final = f"domain://registry.{DOMAIN}"
FRIENDS: Final = {FOREIGN: PeerRule(), THIRD: PeerRule()}
CREDENTIALS: Final = [
    Credential(digest_of("beta"), f"runtime://{FOREIGN}/*", frozenset({OPERATOR})),
    Credential(digest_of("gamma"), f"runtime://{THIRD}/*"),
]


@asynccontextmanager
async def hosted(
    folder: Path,
    *,
    policies: CompiledPolicies | None = None,
    peers: Mapping[str, PeerRule] = FRIENDS,
    deny: tuple[str, ...] = (),
    rules: Rules | None = None,
) -> AsyncIterator[RuntimeRig]:
    gate = Gate(policies, peers, deny=deny)
    async with runtime_rig(folder, credentials=CREDENTIALS, allows_guests=True, rules=rules, gate=gate) as rig:
        yield rig


async def guest(rig: RuntimeRig, address: str = BO, token: str = "beta") -> Runtime:
    runtime = await rig.runtime(bearer=token)
    runtime.address = address
    reply = await runtime.ask("open", SESSION)
    assert code_and_reason(reply) == (200, "")
    return runtime


def decisions(rig: RuntimeRig) -> list[tuple[str, bool, str | None, str | None]]:
    found = [one for one in rig.records.taken if isinstance(one, DecisionRecord)]
    return [(one.hook, one.permitted, one.link_domain, one.reason) for one in found]


def recorded(rig: RuntimeRig) -> list[tuple[str, str, str | None]]:
    found = [one for one in rig.records.taken if isinstance(one, MessageRecord)]
    return [(one.role, one.outcome, one.outcome_code) for one in found]


@pytest.mark.parametrize("refusal", ["unnamed", "denied by default", "barred", "a rule at the hook peer"])
async def test_a_domain_that_may_not_link_opens_no_session(tmp_path: Path, refusal: str) -> None:
    peers = {"unnamed": {}, "denied by default": {FOREIGN: PeerRule(default="deny")}}.get(refusal, FRIENDS)
    barred = (FOREIGN,) if refusal == "barred" else ()
    policies = one_policy(deny("r", test("hook", "equals", "peer"))) if refusal.startswith("a rule") else None
    async with hosted(tmp_path, peers=peers, deny=barred, policies=policies) as rig:
        bo, ana = await rig.runtime(bearer="beta"), await rig.opened("ana")
        bo.address = BO
        code, reason = code_and_reason(await bo.ask("open", SESSION))
        assert (code, reason) == (403, "policy" if policies else "domain-blocked")
        assert decisions(rig) == [("peer", False, FOREIGN, reason)]
        await bo.say(a_message("event", BO, ana.address, {"value": 1}))
        assert await ana.heard() == []


async def test_what_may_not_come_in_over_the_link_does_not_come_in_by_a_guest(tmp_path: Path) -> None:
    condition = both(test("hook", "equals", "in"), test("linkDomain", "equals", FOREIGN))
    policies = one_policy(deny("no-deletes", both(condition, test("actionType", "equals", "delete"))))
    async with hosted(tmp_path, policies=policies) as rig:
        bo, ana = await guest(rig), await rig.opened("ana")
        room = await ana.allocated()
        for sender in (BO, f"hyperty://{FOREIGN}/h"):
            assert code_and_reason(await bo.ask("delete", room, from_=sender)) == (403, "policy")
        assert await ana.heard() == []
        assert decisions(rig) == [("in", False, FOREIGN, "policy")] * 2
        assert recorded(rig)[-1] == ("in", "denied", "policy")
        await bo.say(a_message("read", BO, room, id_=1))
        assert [one["type"] for one in await wait(ana, bo)] == ["read"]
        assert recorded(rig)[-1] == ("in", "delivered", None)


async def wait(one: Runtime, other: Runtime) -> list[Json]:
    await other.heard()
    return await one.heard()


async def test_what_may_not_leave_to_the_domain_does_not_reach_its_guests(tmp_path: Path) -> None:
    policies = one_policy(deny("secret", both(test("hook", "equals", "out"), test("actionType", "equals", "update"))))
    async with hosted(tmp_path, policies=policies) as rig:
        bo, ana = await guest(rig), await rig.opened("ana")
        room = await ana.allocated()
        await bo.ask("subscribe", SM, {"resources": [f"{room}/changes"]})
        await ana.say(a_message("update", room, f"{room}/changes", {"value": "secret"}))
        assert code_and_reason(await ana.ask("update", BO, {"value": "secret"})) == (403, "policy")
        assert await bo.heard() == []
        assert decisions(rig) == [("out", False, FOREIGN, "policy")] * 2
        await ana.say(a_message("event", ana.address, BO, {"value": "open"}))
        assert [one["type"] for one in await wait(bo, ana)] == ["event"]


async def test_answers_of_services_pass_the_gate_too_and_refusals_are_ours(tmp_path: Path) -> None:
    policies = one_policy(deny("silent", both(test("hook", "equals", "out"), test("msgFrom", "equals", NODE_SERVICE))))
    async with hosted(tmp_path, policies=policies) as rig:
        bo = await guest(rig)
        await bo.say(a_message("read", BO, NODE_SERVICE, id_=1))
        assert await bo.heard() == []
        assert code_and_reason(await bo.ask("read", f"hyperty://{DOMAIN}/nobody")) == (404, "no-route")


async def test_the_gate_of_our_own_bus_is_not_the_guests(tmp_path: Path) -> None:
    policies = one_policy(permit("all", test("hook", "equals", "local")))
    peers = {FOREIGN: PeerRule(default="deny")}
    opens = one_policy(permit("all", test("hook", "in", "local", "peer")))
    async with hosted(tmp_path, policies=opens, peers=peers) as rig:
        bo, ana = await guest(rig), await rig.opened("ana")
        assert code_and_reason(await bo.ask("read", ana.address)) == (403, "domain-blocked")
        assert await ana.heard() == []
        rig.gate.replace(policies)
        assert code_and_reason(await bo.ask("read", ana.address)) == (403, "domain-blocked")


async def test_a_guest_takes_from_the_rate_of_its_domain_and_others_have_theirs(tmp_path: Path) -> None:
    peers = {**FRIENDS, FOREIGN: PeerRule(rate=RateLimit(messages_per_second=0.01, burst_seconds=300.0))}
    async with hosted(tmp_path, peers=peers) as rig:
        bo, eve = await guest(rig), await guest(rig, f"runtime://{FOREIGN}/eve")
        gil, ana = await guest(rig, f"runtime://{THIRD}/gil", "gamma"), await rig.opened("ana")
        for runtime in (bo, eve, bo):
            await runtime.say(a_message("event", runtime.address, ana.address))
            await runtime.heard()
        for runtime in (bo, eve):
            assert code_and_reason(await runtime.ask("read", ana.address)) == (429, "rate")
        assert len(await ana.heard()) == 3
        await gil.say(a_message("event", gil.address, ana.address))
        assert len(await wait(ana, gil)) == 1


@pytest.mark.parametrize("to", [f"hyperty://{THIRD}/h", f"hyperty://{FOREIGN}/h", f"domain://registry.{THIRD}"])
@pytest.mark.parametrize("type_", ["read", "execute", "subscribe"])
async def test_nothing_of_a_guest_is_carried_on_to_another_domain(tmp_path: Path, type_: str, to: str) -> None:
    async with hosted(tmp_path) as rig:
        bo = await guest(rig)
        leased = await bo.allocated("hyperty")
        for sender in (BO, leased):
            for body in ({}, {"class": "action"}, {"resources": [f"comm://{THIRD}/room/changes"]}):
                assert code_and_reason(await bo.ask(type_, to, body, from_=sender)) == (403, "transit")
        assert rig.domains.take() == []
        assert rig.domains.reached == []


async def test_nothing_of_a_third_domain_reaches_a_guest_by_its_own_name(tmp_path: Path) -> None:
    async with hosted(tmp_path) as rig:
        bo = await guest(rig)
        for to in (BO, f"{BO}/sm"):
            message = a_message("event", f"hyperty://{THIRD}/g", to, {"value": 1}, id_=1)
            assert rig.bus.from_links.take(THIRD, [parsed(message)]) == [Code.TRANSIT]
        assert await bo.heard() == []


async def test_a_guest_takes_no_name_that_another_guest_uses(tmp_path: Path) -> None:
    async with hosted(tmp_path) as rig:
        bo, ana, name = await guest(rig), await rig.opened("ana"), f"hyperty://{FOREIGN}/h"
        eve = await guest(rig, f"runtime://{FOREIGN}/eve")
        await bo.say(a_message("event", name, ana.address))
        await bo.heard()
        assert code_and_reason(await eve.ask("read", ana.address, from_=name)) == (403, "not-owner")
        await ana.heard()
        await ana.say(a_message("event", ana.address, name, {"value": "for bo"}))
        await ana.heard()
        assert await eve.heard() == []
        assert [one["body"]["value"] for one in await bo.heard()] == ["for bo"]
        await bo.say(a_message("close", BO, SESSION))
        await rig.until("sessions closed")
        await eve.say(a_message("event", name, ana.address))
        assert [one["from"] for one in await wait(ana, eve)] == [name]


@pytest.mark.parametrize(
    "sender",
    [
        f"hyperty://{THIRD}/h",
        f"hyperty://{DOMAIN}/unowned",
        f"comm://{DOMAIN}/room/subscription",
        f"runtime://{DOMAIN}/ana",
        f"domain://registry.{DOMAIN}",
        f"domain://registry.{FOREIGN}",
        f"runtime://{FOREIGN}/other",
        "plain",
        "comm:/room",
    ],
)
@pytest.mark.parametrize("type_", ["event", "response", "create"])
async def test_a_guest_speaks_for_nobody_but_its_domain(tmp_path: Path, sender: str, type_: str) -> None:
    async with hosted(tmp_path) as rig:
        bo, ana = await guest(rig), await rig.opened("ana")
        other = await guest(rig, f"runtime://{FOREIGN}/other")
        for body in ({"value": 1}, {"value": 1, "source": BO}):
            await bo.say(a_message(type_, sender, ana.address, body, id_=1))
        if sender != "plain":
            await bo.say(a_message(type_, BO, ana.address, {"source": sender}, id_=1))
        await bo.heard()
        assert [one for one in await ana.heard() if one["type"] == type_] == []
        assert {outcome for _, outcome, _ in recorded(rig)} == {"rejected"}
        await other.say(a_message("event", other.address, ana.address, {"value": 2}))
        assert [one["body"]["value"] for one in await wait(ana, other) if one["from"] == other.address] == [2]


async def test_the_role_of_an_operator_is_worth_nothing_to_a_guest(tmp_path: Path) -> None:
    only_operators = one_policy(permit("ops", test("session.roles", "contains", OPERATOR)))
    peers = {FOREIGN: PeerRule(default="deny")}
    async with hosted(tmp_path, rules=Rules(taps=True)) as rig:
        bo, ana = await guest(rig), await rig.opened("ana")
        assert code_and_reason(await bo.ask("subscribe", SM, {"resources": ["*"]})) == (403, "not-owner")
        room = await ana.allocated()
        read = await bo.ask("read", ALLOCATION, {"resource": ana.address})
        assert read["body"]["value"]["resources"] == []
        assert room not in str(read)
    (tmp_path / "denied").mkdir()
    async with hosted(tmp_path / "denied", policies=only_operators, peers=peers) as rig:
        bo = await rig.runtime(bearer="beta")
        bo.address = BO
        assert code_and_reason(await bo.ask("open", SESSION)) == (403, "domain-blocked")


async def test_a_guest_is_of_the_class_guest_whatever_its_credential_gives(tmp_path: Path) -> None:
    ours = both(
        test("hook", "in", "peer", "in"), test("session.class", "in", "operator", "user", "proved", "anonymous")
    )
    only_guests = one_policy(deny("ours", ours), permit("guests", test("session.class", "equals", "guest")))
    async with hosted(tmp_path, policies=only_guests, peers={FOREIGN: PeerRule(default="deny")}) as rig:
        bo, ana = await guest(rig), await rig.opened("ana")
        await bo.say(a_message("event", BO, ana.address, {"value": 1}))
        assert [one["type"] for one in await wait(ana, bo)] == ["event"]


async def test_policies_that_change_hold_for_guests_that_are_here(tmp_path: Path) -> None:
    async with hosted(tmp_path) as rig:
        bo, ana = await guest(rig), await rig.opened("ana")
        rig.gate.replace(one_policy(deny("closed")))
        assert code_and_reason(await bo.ask("read", ana.address)) == (403, "policy")
        assert code_and_reason(await bo.ask("open", SESSION)) == (403, "policy")
        await ana.say(a_message("event", ana.address, BO))
        assert await wait(bo, ana) == []
        assert await ana.heard() == []


def registration(url: str, **members: object) -> Json:
    mandatory = {"descriptor": "d", "name": "room", "schema": "s", "user": f"user://{FOREIGN}/bo", "reporter": BO}
    return {"value": {"url": url, "runtime": BO, **mandatory, **members}}


@pytest.mark.parametrize(
    "members",
    [
        {"user": f"user://{DOMAIN}/ana"},
        {"user": f"user://{THIRD}/gil"},
        {"user": f"user://{FOREIGN}/ana@{DOMAIN}"},
        {"user": f"acct://ana@{DOMAIN}"},
        {"user": "ana"},
        {"userID": f"user://{DOMAIN}/ana"},
        {"guid": "user-guid://ana"},
        {"reporter": f"hyperty://{DOMAIN}/h-ana"},
        {"reporter": f"hyperty://{THIRD}/h"},
    ],
)
@pytest.mark.parametrize("scheme", ["hyperty", "comm"])
async def test_a_guest_is_found_under_no_name_of_another(
    tmp_path: Path, scheme: str, members: Mapping[str, object]
) -> None:
    async with hosted(tmp_path, rules=Rules(resolves_users=True)) as rig:
        bo, ana = await guest(rig), await rig.opened("ana")
        leased = await bo.allocated(scheme)
        forged = registration(leased, **members)["value"]
        if "userID" in members:  # the older name of the member
            del forged["user"]
        for type_ in ("create", "update"):
            reply = await bo.ask(type_, REGISTRY, {"value": forged, "resource": leased})
            assert code_and_reason(reply) in ((403, "not-owner"), (400, "bad-header"))
            honest = await bo.ask("create", REGISTRY, registration(leased))
            assert code_and_reason(honest) == (200, "")
        for name in (f"user://{DOMAIN}/ana", "user-guid://ana"):
            assert code_and_reason(await ana.ask("read", REGISTRY, {"resource": name})) == (404, "not-registered")
            await ana.say(a_message("event", ana.address, name, {"value": "for ana"}))
        await ana.heard()
        assert await bo.heard() == []


async def test_a_guest_registers_only_what_it_leases_and_as_itself(tmp_path: Path) -> None:
    async with hosted(tmp_path) as rig:
        bo, ana = await guest(rig), await rig.opened("ana")
        room, leased = await ana.allocated(), await bo.allocated("hyperty")
        for url in (room, f"hyperty://{DOMAIN}/nobodys", f"runtime://{DOMAIN}/nobody", BO, f"hyperty://{FOREIGN}/h"):
            for type_ in ("create", "update", "delete"):
                reply = await bo.ask(type_, REGISTRY, {**registration(url), "resource": url})
                assert code_and_reason(reply) == (403, "not-owner")
        assert code_and_reason(await bo.ask("create", REGISTRY, registration(leased, runtime=ana.address))) == (200, "")
        found = await ana.ask("read", REGISTRY, {"resource": leased})
        assert found["body"]["value"]["runtime"] == BO


@pytest.mark.parametrize(
    "name",
    [
        f"hyperty://{DOMAIN}/support",
        f"thing://{DOMAIN}/agent",
        f"comm://{DOMAIN}/room/subscription",
        f"hyperty://{DOMAIN}/support/inbox",
        "comm:/room",
        "room",
        f"comm://{THIRD}/room/changes",
        f"comm://{THIRD}/room/messages",
        f"hyperty://{THIRD}/h",
    ],
)
async def test_a_guest_takes_no_name_that_it_was_not_lent(tmp_path: Path, name: str) -> None:
    async with hosted(tmp_path) as rig:
        bo, ana = await guest(rig), await rig.opened("ana")
        assert code_and_reason(await bo.ask("subscribe", SM, {"resources": [name]})) == (403, "not-owner")
        assert (await bo.ask("read", SM))["body"]["value"] == {"resources": []}
        assert (await bo.ask("read", ALLOCATION))["body"]["value"] == {"resources": []}
        await ana.say(a_message("event", ana.address, name, {"value": "not for bo"}))
        assert await wait(bo, ana) == []


async def test_what_waits_for_an_agent_of_ours_does_not_go_to_a_guest(tmp_path: Path) -> None:
    agent, action = f"thing://{DOMAIN}/agent", {"class": "action", "method": "open", "params": {"level": 1}}
    async with hosted(tmp_path) as rig:
        bo, ana, keeper = await guest(rig), await rig.opened("ana"), await rig.opened("keeper")
        await keeper.subscribed(agent)
        await keeper.say(a_message("close", keeper.address, SESSION))
        await rig.until("sessions closed")
        assert code_and_reason(await ana.ask("execute", f"{agent}/lamp", action)) == (202, "queued")
        assert code_and_reason(await bo.ask("subscribe", SM, {"resources": [agent]})) == (403, "not-owner")
        assert await bo.heard() == []
        heir = await rig.opened("heir")
        await heir.subscribed(agent)
        assert [one["body"]["params"] for one in await wait(heir, ana)] == [{"level": 1}]


async def test_a_guest_answers_in_the_name_of_no_object_that_it_observes(tmp_path: Path) -> None:
    async with hosted(tmp_path) as rig:
        bo, ana, cy = await guest(rig), await rig.opened("ana"), await rig.opened("cy")
        messages = f"{await ana.allocated()}/children/messages"
        await cy.subscribed(messages)
        await bo.ask("subscribe", SM, {"resources": [messages]})
        await cy.say(a_message("create", cy.address, messages, {"resource": f"{cy.address}#1", "value": 1}, id_=9))
        assert [one["type"] for one in await wait(bo, cy)] == ["create"]
        for to, id_ in ((cy.address, 9), (ana.address, 9), (ana.address, 10)):
            await bo.say(a_message("response", messages, to, {"code": 200, "value": "forged"}, id_=id_))
        await bo.heard()
        assert [one for one in await cy.heard() + await ana.heard() if one["type"] == "response"] == []
        assert {(outcome, code) for _, outcome, code in recorded(rig)[-3:]} == {("rejected", "not-owner")}


@pytest.mark.parametrize("entity", [f"hyperty://{DOMAIN}/h", f"runtime://{DOMAIN}/off", f"comm://{DOMAIN}/room"])
@pytest.mark.parametrize("part", ["status", "registration"])
async def test_a_guest_says_nothing_about_the_state_of_an_entity_of_ours(
    tmp_path: Path, entity: str, part: str
) -> None:
    async with hosted(tmp_path) as rig:
        bo, ana = await guest(rig), await rig.opened("ana")
        await ana.subscribed(f"{entity}/{part}")
        for type_ in ("update", "event", "delete", "create"):
            await bo.say(a_message(type_, BO, f"{entity}/{part}", {"value": "live", "attribute": "status"}))
        assert await wait(ana, bo) == []


@pytest.mark.parametrize("part", ["lamp", "lamp/state", "lamp/events/motion", "lamp/events/*", "*"])
async def test_a_guest_hears_nothing_of_the_things_of_our_agents(tmp_path: Path, part: str) -> None:
    agent = f"thing://{DOMAIN}/agent"
    async with hosted(tmp_path) as rig:
        bo, keeper = await guest(rig), await rig.opened("keeper")
        await keeper.subscribed(agent)
        address = f"{agent}/{part}"
        assert code_and_reason(await bo.ask("subscribe", SM, {"resources": [address]})) == (403, "not-owner")
        await keeper.say(
            a_message("update", f"{agent}/lamp", address.replace("*", "x"), {"class": "event", "value": 1})
        )
        assert await wait(bo, keeper) == []


# Answers: those of a guest count as often as those that its link would bring.

ANSWERED = 17


def answer(to: str, id_: object = ANSWERED, *, code: object = 200, **body: object) -> Json:
    return a_message("response", BO, to, {"code": code, **body}, id_=id_)


async def asked(asker: Runtime, bo: Runtime, **body: object) -> None:
    """A request for the guest, which gets it."""
    await asker.say(a_message("read", asker.address, BO, body, id_=ANSWERED))
    assert [one["id"] for one in await wait(bo, asker)] == [ANSWERED]


async def opened_late(rig: RuntimeRig, name: str) -> Runtime:
    """A runtime that wants late replies."""
    runtime = await rig.runtime()
    runtime.address = f"runtime://{DOMAIN}/{name}"
    assert code_and_reason(await runtime.ask("open", SESSION, body={"late": True})) == (200, "")
    return runtime


@pytest.mark.parametrize("wants", [False, True], ids=["usual", "wants late replies"])
async def test_what_a_guest_answers_twice_or_unasked_is_late(tmp_path: Path, wants: bool) -> None:
    async with hosted(tmp_path) as rig:
        ana, bo = await (opened_late(rig, "ana") if wants else rig.opened("ana")), await guest(rig)
        cleo = await rig.opened("cleo")
        await asked(ana, bo)
        for message in (
            answer(ana.address, 18),
            answer(ana.address, str(ANSWERED)),
            answer(cleo.address),
            answer(ana.address, code=100),
            answer(ana.address, n=1),
            answer(ana.address, n=2),
        ):
            await bo.say(message)
        heard = [(one["id"], one["body"].get("n"), one["body"].get("late", False)) for one in await wait(ana, bo)]
        timely = [(ANSWERED, None, False), (ANSWERED, 1, False)]
        late = [(18, None, True), (str(ANSWERED), None, True), (ANSWERED, 2, True)]
        assert [one for one in heard if not one[2]] == timely
        assert [one for one in heard if one[2]] == (late if wants else [])
        assert await cleo.heard() == []
        await asked(ana, bo)
        await bo.say(answer(ana.address, n=3))
        assert [one["body"] for one in await wait(ana, bo)] == [{"code": 200, "n": 3}]


async def test_several_answers_of_guests_that_name_themselves_are_in_time(tmp_path: Path) -> None:
    async with hosted(tmp_path) as rig:
        ana, bo = await rig.opened("ana"), await guest(rig)
        await asked(ana, bo)
        for name in ("x", "y", "y"):
            await bo.say(answer(ana.address, source=f"hyperty://{FOREIGN}/{name}", n=name))
        assert [one["body"]["n"] for one in await wait(ana, bo)] == ["x", "y", "y"]


async def test_what_many_requests_to_silent_guests_leave_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "MAX_OPEN", 20)
    async with hosted(tmp_path) as rig:
        ana, bo = await rig.opened("ana"), await guest(rig)
        for number in range(100):
            await ana.say(a_message("read", ana.address, BO, {}, id_=number))
        await wait(bo, ana)
        [side] = rig.bus.from_sessions.guests._sides.values()
        assert len(side.asked) == 20
        assert side.asked.expired(0.0) == []
        for number in (10, 95):
            await bo.say(answer(ana.address, number))
        assert [one["id"] for one in await wait(ana, bo)] == [95]


# What goes to a guest: no more than its link would carry.

FLAGS: Final = {"auth": True, "sessionToken": "t", "assertedIdentity": "true", "via": ["runtime://c.example/mn-1"]}


@pytest.mark.parametrize("name", [*FLAGS, "escaped"])
async def test_no_flag_that_only_a_node_sets_reaches_a_guest(tmp_path: Path, name: str) -> None:
    written = "\\u0061ssertedIdentity" if name == "escaped" else name
    body = f'{{"{written}":{json.dumps(FLAGS.get(name, "true"))},"n":1}}'
    async with hosted(tmp_path) as rig:
        ana, bo = await rig.opened("ana"), await guest(rig)
        raw = f'{{"id":1,"type":"event","from":"{ana.address}","to":"{BO}","body":{body}}}'
        await ana.say_raw(raw.encode())
        assert [one["body"] for one in await wait(bo, ana)] == [{"n": 1}]


async def test_a_message_inside_is_for_a_guest_what_it_is_for_its_link(tmp_path: Path) -> None:
    async with hosted(tmp_path) as rig:
        ana, bo = await rig.opened("ana"), await guest(rig)
        for number, sender in enumerate((ana.address, f"hyperty://{THIRD}/x", f"hyperty://{FOREIGN}/x", 7)):
            inner = {"id": 1, "type": "event", "from": sender, "to": BO, "body": {**FLAGS, "n": number}}
            for body in (inner, {"message": inner}):
                await ana.say(a_message("forward", ana.address, BO, body, id_=number))
        answers, heard = await ana.heard(), await bo.heard()
        assert [code_and_reason(one)[0] for one in answers] == [403] * 4 + [400] * 2
        assert [one["body"].get("message", one["body"])["body"] for one in heard] == [{"n": 0}] * 2
