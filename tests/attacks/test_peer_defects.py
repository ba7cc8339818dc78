"""Defects of other nodes and runtimes that would be attacks here; each has a test that ours does not have it.

Most stand beside the rule that they break, in `tests/contradictions`: a session handed out without proof (row 42),
status reported to one listener only or without a change (36, 37), keys taken for addresses and release by anybody (13,
16), lists inside `value` and blocks of zero (15, 12), the id 0 (2), the last rule deciding (49), 200 for an empty
subscription (20), unknown addresses in silence (40), services that policies do not see (52), an un-registration taken
for a keep-alive (30), data objects that cannot be deleted (33). Here are the others.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.policies import a_message as policy_message
from tests.support.policies import deny, one_policy, some_facts
from tests.support.policies import test as check
from tests.support.runtime_rig import (
    DOMAIN,
    SESSION,
    RuntimeRig,
    a_message,
    runtime_address,
    runtime_rig,
)
from tests.support.sides import Pair, decoded

REGISTRY = f"domain://registry.{DOMAIN}"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


@pytest.mark.parametrize("name", ["rt-a", "rt-an", "RT-ana", "rt-ana-2"])
async def test_the_session_of_another_name_is_not_found_by_its_beginning(rig: RuntimeRig, name: str) -> None:
    ana, eve = await rig.opened("rt-ana"), await rig.runtime()
    for token in (ana.token, ana.token[:-1]):
        reply = await eve.ask("re-open", SESSION, from_=f"{runtime_address(name)}/{token}")
        assert reply["body"]["code"] == 500
    assert (await eve.open(name))["body"]["runtimeToken"] != ana.token
    for runtime in (ana, eve):
        await eve.say(a_message("event", f"{eve.address}/x", f"{runtime.address}/sm", {"value": runtime.address}))
    assert [one["body"]["value"] for one in await eve.heard()] == []  # what one sends to oneself has no echo
    assert [one["body"]["value"] for one in await ana.heard()] == [ana.address]


def test_what_one_message_named_is_forgotten_with_it() -> None:
    policies = one_policy(deny("private", check("resource", "equals", "/private")))
    first = policies.decide(some_facts(policy_message(resource="/private")))
    assert first.effect.value == "deny"
    later = policies.decide(some_facts(policy_message(resource="/public")))
    assert later.effect.value == "not-applicable"


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("create", {"value": {}}),
        ("create", None),
        ("read", {"resource": f"hyperty://{DOMAIN}/unknown"}),
        ("update", {"resource": f"hyperty://{DOMAIN}/unknown"}),
        ("delete", {"value": {"name": "unknown"}}),
        ("subscribe", {"resources": ["x"]}),
    ],
)
async def test_an_error_of_the_registry_is_never_a_200(
    rig: RuntimeRig, type_: str, body: dict[str, object] | None
) -> None:
    ana = await rig.opened("ana")
    reply = await ana.ask(type_, REGISTRY, body)
    assert reply["body"]["code"] >= 400
    assert reply["body"]["reason"]


def test_the_mark_against_loops_is_that_of_the_stub_and_stops_the_second_passage() -> None:
    pair = Pair()
    carrier = pair.carrier()
    carrier.open()
    message = {"id": 1, "type": "read", "from": "hyperty://a.example/ana", "to": "hyperty://b.example/bo"}
    assert pair.to_b.send(decoded(json.dumps(message).encode())) is None
    pair.to_b.flush()
    wire = json.loads(carrier.on_the_way[0].wire)
    assert pair.to_b.stub.url in wire["body"]["via"]
    refusal = pair.to_b.send(decoded(json.dumps({**message, "body": {"via": [pair.to_b.stub.url]}}).encode()))
    assert refusal is not None
    assert refusal.code.word == "loop"
