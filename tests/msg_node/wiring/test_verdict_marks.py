"""`body.auth`: the verdict of our own gates, on what goes to runtimes of ours, and never what a sender wrote itself.

Source: message specification, sections 1.3, 13.3 and 18.4, and section 21, row 47; data formats, section 6.1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from msg_node.bus.middleware import authorisation
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.wiring.session_steps import LocalGate
from policy.core.engine import Algorithm, CompiledPolicies
from policy.core.gate import Gate, PeerRule
from protofly.message import Message
from tests.support.policies import deny, one_policy, permit, unrecorded
from tests.support.policies import test as condition
from tests.support.runtime_rig import FOREIGN, SESSION, Json, RuntimeRig, a_message, parsed, runtime_rig
from tests.support.sides import Bus, Pair, decoded, inbound

RULES = one_policy(
    permit("creates", condition("actionType", "equals", "create")),
    deny("marked", condition("auth", "equals", True), priority=1),
    algorithm=Algorithm.FIRST_APPLICABLE,
)
FORGED = ('"auth":true,', '"auth":false,', r'"\u0061uth":true,', '"auth":false,"auth":true,', "")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


def guarded(rig: RuntimeRig, policies: CompiledPolicies) -> None:
    gate = LocalGate(unrecorded(Gate(policies)))
    rig.bus.from_sessions._delivery.judge = authorisation(gate.judge, rig.state.guests.domain)


async def body_heard(rig: RuntimeRig, type_: str, written: str) -> bytes:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    raw = f'{{"id":1,"type":"{type_}","from":"{ana.address}","to":"{bo.address}","body":{{{written}"value":[1.0]}}}}'
    await ana.say_raw(raw.encode())
    await ana.heard()
    return await raw_body(bo)


async def raw_body(runtime: object) -> bytes:
    (message,) = await runtime.heard()  # type: ignore[attr-defined]
    body: Json = message["body"]
    return repr(body).encode()


@pytest.mark.parametrize("written", FORGED)
@pytest.mark.parametrize(("type_", "verdict"), [("create", True), ("read", False)])
async def test_runtimes_get_the_verdict_of_our_policies_whatever_the_sender_wrote(
    rig: RuntimeRig, type_: str, verdict: bool, written: str
) -> None:
    guarded(rig, RULES)
    assert await body_heard(rig, type_, written) == repr({"value": [1.0], "auth": verdict}).encode()


@pytest.mark.parametrize("written", FORGED)
async def test_without_policies_there_is_no_verdict(rig: RuntimeRig, written: str) -> None:
    assert await body_heard(rig, "create", written) == repr({"value": [1.0]}).encode()


async def test_a_message_without_a_body_gets_none(rig: RuntimeRig) -> None:
    guarded(rig, RULES)
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(a_message("create", ana.address, bo.address, id_=1))
    await ana.heard()
    assert "body" not in (await bo.heard())[0]


async def test_what_another_domain_sent_is_marked_by_our_gate_alone(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    messages = [parsed(a_message("create", f"hyperty://{FOREIGN}/h", ana.address, {"value": 1})) for _ in range(3)]
    messages[0].judged(True)
    messages[1].judged(False)
    rig.bus.from_links.take(FOREIGN, messages)
    assert [one["body"] for one in await ana.heard()] == [
        {"value": 1, "auth": True},
        {"value": 1, "auth": False},
        {"value": 1},
    ]


def crossing(policies: CompiledPolicies | None, type_: str, flag: bytes) -> Message:
    """What our bus is given of a message that a partner marked itself."""
    pair = Pair(b=Bus("b.example", gate=Gate(policies, {"a.example": PeerRule()})))
    raw = b'{"id":1,"type":"%s","from":"hyperty://a.example/ana","to":"hyperty://b.example/bo","body":{%s"value":1}}'
    pair.to_a.inbound(inbound(raw % (type_.encode(), flag)), "0" * 32)
    (delivered,) = pair.b.delivered
    return delivered


@pytest.mark.parametrize("flag", [b'"auth":true,', b'"auth":false,', b""])
def test_a_partner_s_own_verdict_is_never_ours(flag: bytes) -> None:
    for policies, type_, verdict in ((RULES, "create", True), (RULES, "read", False), (None, "create", None)):
        message = crossing(policies, type_, flag)
        assert (message.verdict, b"auth" in message.raw) == (verdict, False)


@pytest.mark.parametrize("verdict", [True, False, None])
def test_the_gate_to_a_partner_sees_what_our_own_bus_decided_and_the_partner_sees_none_of_it(
    verdict: bool | None,
) -> None:
    rule = deny("marked", condition("auth", "equals", True))
    pair = Pair(a=Bus("a.example", gate=Gate(one_policy(rule), {"b.example": PeerRule()})))
    message = decoded(b'{"id":1,"type":"update","from":"comm://a.example/r","to":"comm://a.example/r/changes"}')
    if verdict is not None:
        message.judged(verdict)
    refusal = pair.to_b.send(message)
    assert (refusal is not None) == (verdict is True)
    if refusal is None:
        (pending,) = pair.to_b.queue.take_batch(1, 1 << 20, 0.0)
        assert b"auth" not in pending.wire


async def test_a_runtime_of_another_domain_is_marked_as_its_link_and_sees_none_of_our_verdicts(tmp_path: Path) -> None:
    bo_address = f"runtime://{FOREIGN}/bo"
    gate = Gate(RULES, {FOREIGN: PeerRule()})
    credential = Credential(digest_of("beta"), bo_address)
    async with runtime_rig(tmp_path, credentials=[credential], allows_guests=True, gate=gate) as rig:
        ana, bo = await rig.opened("ana"), await rig.runtime(bearer="beta")
        bo.address = bo_address
        assert (await bo.ask("open", SESSION))["body"]["code"] == 200
        for type_ in ("create", "read"):
            await bo.say(a_message(type_, bo.address, ana.address, {"value": 1, "auth": type_ == "read"}, id_=1))
        await bo.heard()
        assert [one["body"] for one in await ana.heard()] == [{"value": 1, "auth": True}, {"value": 1, "auth": False}]
        for rule, heard in (
            (deny("d", condition("actionType", "equals", "delete")), [{"value": 2}]),
            (permit("p"), []),
        ):
            guarded(rig, one_policy(rule))  # what it permits, the rule `marked` denies at the gate `out`
            await ana.say(a_message("event", ana.address, bo.address, {"value": 2, "auth": True}))
            await ana.heard()
            assert [one["body"] for one in await bo.heard()] == heard
