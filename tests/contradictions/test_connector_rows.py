"""Message specification, section 21: services behind connectors. One test per row.

Where this node runs no such connector, the rule is that the request is served by its right name and answered, with its
header mirrored, instead of being lost or sent away.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.policies import a_message as policy_message
from tests.support.policies import deny, one_policy, some_facts
from tests.support.policies import test as check
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_rig,
)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


async def answered(rig: RuntimeRig, type_: str, to: str, body: Json) -> tuple[int, str]:
    """Code and reason of the answer; its header mirrors the request."""
    ana = await rig.opened("ana")
    reply = await ana.ask(type_, to, body)
    assert (reply["from"], reply["to"]) == (to, ana.address)
    assert rig.domains.take() == []
    return code_and_reason(reply)


async def test_row_63_the_identity_manager_of_the_domain_is_served_and_a_provider_is_routed(
    rig: RuntimeRig,
) -> None:
    ana = await rig.opened("ana")
    reply = await ana.ask("execute", f"domain://idm.{DOMAIN}", {"method": "validateAssertion"})
    assert code_and_reason(reply) == (501, "connector-off")
    await ana.say(a_message("execute", ana.address, f"domain-idp://{FOREIGN}", {"method": "x"}, id_=1))
    assert await ana.heard() == []
    assert [one["to"] for one in rig.domains.take()] == [f"domain-idp://{FOREIGN}"]


@pytest.mark.parametrize("element", ["qos", "qos-broker"])
async def test_row_64_the_quality_broker_has_two_names(rig: RuntimeRig, element: str) -> None:
    to = f"domain://{element}.{DOMAIN}"
    assert await answered(rig, "execute", to, {"method": "reserve", "params": {"cspKey": "k"}}) == (
        501,
        "connector-off",
    )


async def test_row_65_the_status_of_actions_has_its_own_address(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    request_id = (await parked_action(ana))["requestId"]
    kept = await ana.ask("read", f"domain://msg-node.{DOMAIN}/delivery", {"resource": request_id})
    assert kept["body"]["value"]["status"] == "pending"


async def test_row_66_an_action_for_an_agent_that_is_away_is_queued(rig: RuntimeRig) -> None:
    body = await parked_action(await rig.opened("ana"))
    assert (body["code"], body["reason"], body["status"]) == (202, "queued", "pending")


async def parked_action(sender: Runtime) -> Json:
    """What is said to somebody whose agent is away."""
    lamp = f"thing://{DOMAIN}/agent-4/lamp-1/actions/switch"
    reply = await sender.ask("execute", lamp, {"class": "action", "method": "switch", "params": {"on": True}})
    body: Json = reply["body"]
    return body


@pytest.mark.parametrize(("body", "is_rpc"), [({}, True), ({"class": "rpc"}, True), ({"class": "action"}, False)])
def test_row_67_execute_without_a_class_is_a_call(body: Json, *, is_rpc: bool) -> None:
    policies = one_policy(deny("no-calls", check("class", "equals", "rpc")))
    decision = policies.decide(some_facts(policy_message(type_="execute", method="m", **body)))
    assert (decision.effect.value == "deny") is is_rpc


async def test_row_75_records_of_the_global_registry_are_not_taken_unchecked(rig: RuntimeRig) -> None:
    header = {"alg": "ES256", "typ": "JWT"}
    assert await answered(rig, "create", "global://registry/", {"value": {"jwt": header}}) == (501, "connector-off")


@pytest.mark.parametrize("name", ["token", "accessToken"])
async def test_row_76_the_token_to_refresh_may_have_either_name_and_reaches_a_provider_unchanged(
    rig: RuntimeRig, name: str
) -> None:
    ana = await rig.opened("ana")
    request = a_message(
        "execute",
        ana.address,
        f"domain-idp://{FOREIGN}",
        {"method": "refreshAccessToken", "params": {name: "t"}},
        id_=1,
    )
    await ana.say(request)
    await ana.heard()
    assert rig.domains.take() == [request]
