"""Facts about recipients in policies: `dstStatus` and `dstPresence`, on a bus with real sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.links.decision_records import DecisionRecords
from msg_node.bus.core.recipients import KnownRecipients
from msg_node.registries.core.registry_entry import RegistryEntry
from msg_node.wiring.session_steps import LocalGate
from policy.core.gate import Gate
from policy.core.text import PolicyText, load_policies
from protofly.records import DecisionRecord
from tests.support.registry_entries import hyperty
from tests.support.runtime_rig import DOMAIN, FOREIGN, Runtime, RuntimeRig, runtime_rig
from tests.support.state_rig import StateRig

USER = f"user://{DOMAIN}/bo"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


def known(rig: RuntimeRig, *, is_alone: bool = True) -> KnownRecipients:
    return KnownRecipients(rig.state, is_alone=is_alone)


async def gone(rig: RuntimeRig, runtime: Runtime) -> None:
    """Cut the connection of a runtime, whose session waits for it."""
    await runtime.wire.cut()
    await rig.until("sessions lost")


async def test_a_recipient_is_live_parked_and_absent_as_its_session_is(rig: RuntimeRig) -> None:
    bo = await rig.opened("bo")
    address, recipients = await bo.allocated(), known(rig)
    assert recipients.status(address) == recipients.status(f"{address}/part") == "live"
    await gone(rig, bo)
    assert recipients.status(address) == "parked"
    assert recipients.status(f"hyperty://{DOMAIN}/nobody") == "absent"


async def test_an_address_to_which_somebody_listens_and_a_service_are_live(rig: RuntimeRig) -> None:
    ana, recipients = await rig.opened("ana"), known(rig)
    topic = f"hyperty://{DOMAIN}/news"
    assert recipients.status(topic) == "absent"
    await ana.subscribed(topic)
    assert recipients.status(topic) == "live"
    assert recipients.status(f"domain://registry.{DOMAIN}") == recipients.status(f"domain://{DOMAIN}") == "live"


@pytest.mark.parametrize("address", [f"hyperty://{FOREIGN}/x", "no address", "hyperty://", f"user://{FOREIGN}/bo"])
async def test_nothing_is_known_of_recipients_elsewhere(rig: RuntimeRig, address: str) -> None:
    assert (known(rig).status(address), known(rig).presence(address)) == (None, None)


async def test_one_of_several_nodes_does_not_say_that_somebody_is_nowhere(rig: RuntimeRig) -> None:
    assert known(rig, is_alone=False).status(f"hyperty://{DOMAIN}/nobody") is None


async def test_a_user_is_as_present_as_the_registered_hyperties(rig: RuntimeRig) -> None:
    bo, recipients = await rig.opened("bo"), known(rig)
    address = await bo.allocated("hyperty")
    assert (recipients.status(USER), recipients.presence(USER), recipients.presence(address)) == ("absent", None, None)
    value = hyperty(address, user=USER, runtime=bo.address)
    answer = await bo.ask("create", f"domain://registry.{DOMAIN}", {"value": value}, from_=address)
    assert answer["body"]["code"] == 200, answer
    assert (recipients.status(USER), recipients.presence(USER), recipients.presence(address)) == ("live",) * 3
    await gone(rig, bo)
    assert recipients.status(USER) == "parked"


def test_a_user_is_as_live_as_who_registered_a_hyperty_that_nobody_speaks_for() -> None:
    rig = StateRig()
    sid, _ = rig.open("bo", 1)
    rig.state.registry.adopt(RegistryEntry(url=f"hyperty://{DOMAIN}/h", sid=sid, runtime="", user=USER))
    recipients = KnownRecipients(rig.state, is_alone=True)
    assert recipients.status(USER) == "live"
    rig.services.sessions.connection_lost(1, now=rig.now)
    assert recipients.status(USER) == "parked"


async def test_a_rule_decides_by_it_and_the_record_says_what_it_saw(tmp_path: Path) -> None:
    text = 'id = "s"\n[[rules]]\nid = "away"\neffect = "deny"\ncondition = { dstStatus = { equals = "parked" } }\n'
    gate = Gate(load_policies([PolicyText("p.toml", text, "toml")]))
    async with runtime_rig(tmp_path, gate=gate) as rig:
        decisions = DecisionRecords(gate, rig.records.append, recipients=known(rig))
        rig.judge_local = LocalGate(decisions).judge
        ana, bo = await rig.opened("ana"), await rig.opened("bo")
        from_, to = await ana.allocated(), await bo.allocated()
        await gone(rig, bo)
        assert (await ana.ask("read", to, {}, from_=from_))["body"]["code"] == 403
        (record,) = [one for one in rig.records.taken if isinstance(one, DecisionRecord)]
        assert record.rule_id == "s/away"
        assert record.facts is not None
        assert (record.facts.dst_status, record.facts.dst_presence) == ("parked", "")
