"""What operators hear of the stubs of a node at `<node>/status`, and that nobody else does or speaks there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.core.stub_status import StubStatus
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.registries.core.stub_inventory import DESC_CHARS, state_events
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    NODE,
    SESSION,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_address,
    runtime_rig,
)

OPERATOR = Credential(digest_of("secret"), runtime_address("ops"), frozenset({"operator"}))
STUB = f"{NODE}/protostub/b7c1"
STATUS = f"{NODE}/status"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path, credentials=[OPERATOR]) as made:
        yield made


async def operator(rig: RuntimeRig) -> Runtime:
    ops = await rig.runtime()
    reply = await ops.open("ops", {"credentials": {"kind": "bearer", "token": "secret"}})
    assert code_and_reason(reply) == (200, "")
    return ops


def stub(rig: RuntimeRig) -> StubStatus:
    """A stub whose states go where `msg_node.app` has them go."""
    return StubStatus(
        STUB,
        FOREIGN,
        on_change=lambda status: rig.bus.effects.publish_events(state_events(status, NODE, rig.state.listeners)),
    )


async def test_operators_hear_each_state_once_in_the_form_of_the_specification(rig: RuntimeRig) -> None:
    ops = await operator(rig)
    assert (await ops.subscribed(STATUS, f"{STUB}/status"))["body"]["code"] == 200
    status = stub(rig)
    status.became("live", now=1.0)
    status.became("live", "reported again", now=2.0)
    status.became("failed", "connection refused", now=3.0)
    reported = [("live", {}), ("failed", {"desc": "connection refused"})]
    expected: list[Json] = []
    for value, more in reported:
        expected += [
            a_message("update", STUB, f"{STUB}/status", {"value": value, **more}),
            a_message("update", f"{NODE}/registry", STATUS, {"resource": STUB, "value": value, **more}),
        ]
    assert await ops.heard() == expected


async def test_the_words_of_a_stub_are_bounded(rig: RuntimeRig) -> None:
    ops = await operator(rig)
    await ops.subscribed(STATUS)
    stub(rig).became("failed", "x" * 100_000, now=1.0)
    (message,) = await ops.heard()
    assert len(message["body"]["desc"]) == DESC_CHARS


@pytest.mark.parametrize(
    "url",
    [
        STATUS,
        f"{STUB}/status",
        f"hyperty-runtime://{DOMAIN.upper()}/mn-1/status",
        f"{NODE}/registry/changes",
        f"{NODE}/children/x",
        f"{NODE}/*",
        NODE,
    ],
)
async def test_what_the_node_says_about_itself_is_for_operators(rig: RuntimeRig, url: str) -> None:
    eve = await rig.opened("eve")
    assert code_and_reason(await eve.subscribed(url)) == (403, "not-owner")
    ask = a_message("subscribe", f"runtime://{FOREIGN}/mn/sm", SM, {"resources": [url]}, id_=1)
    rig.bus.from_links.take(FOREIGN, [parsed(ask)])
    await eve.subscribed(f"{eve.address}/status")  # its reply is durable, so that the earlier one is as well
    (answer,) = rig.domains.take()
    assert (answer["body"]["code"], answer["body"]["reason"]) == (403, "not-owner")
    stub(rig).became("live", now=1.0)
    assert await eve.heard() == []
    assert rig.domains.take() == []


async def test_no_runtime_speaks_in_the_name_of_the_node_or_of_a_stub(rig: RuntimeRig) -> None:
    ops, eve = await operator(rig), await rig.opened("eve")
    await ops.subscribed(STATUS, f"{STUB}/status")
    for from_ in (f"{NODE}/registry", STUB, NODE, f"HYPERTY-RUNTIME://{DOMAIN}/mn-1/registry"):
        for to in (STATUS, f"{STUB}/status"):
            await eve.say(a_message("update", from_, to, {"resource": STUB, "value": "live"}, id_=1))
            ((refusal),) = await eve.heard()
            assert code_and_reason(refusal)[0] == 403
    assert await ops.heard() == []


async def test_the_status_of_an_ordinary_runtime_is_for_everybody(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    assert (await bo.subscribed(f"{ana.address}/status", f"{NODE}0/status"))["body"]["code"] == 200
    await ana.say(a_message("update", ana.address, f"{ana.address}/status", {"value": "away"}))
    assert [one["body"]["value"] for one in await bo.heard()] == ["away"]


async def test_who_is_no_operator_any_more_hears_nothing_after_a_restart(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, credentials=[OPERATOR]) as before:
        ops = await operator(before)
        await ops.subscribed(STATUS, f"{runtime_address('ana')}/status")
    demoted = Credential(OPERATOR.digest, OPERATOR.runtime, frozenset())
    async with runtime_rig(tmp_path, credentials=[demoted]) as after:
        again = await after.runtime()
        again.address, again.token = ops.address, ops.token
        assert code_and_reason(await again.ask("re-open", SESSION, from_=ops.session_address)) == (200, "")
        stub(after).became("live", now=1.0)
        assert await again.heard() == []
        reply = await again.ask("read", SM)
        assert [one["url"] for one in reply["body"]["value"]["resources"]] == [f"{runtime_address('ana')}/status"]
