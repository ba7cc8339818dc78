"""Message specification, section 21: subscriptions. One test per row, through a node over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from msg_node.kernel.rules import Rules
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    SM,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_rig,
)

ROOM = f"comm://{DOMAIN}/room-51"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


async def heard_at(runtime: Runtime) -> dict[str, str]:
    """Addresses that a runtime listens to, with their sources."""
    reply = await runtime.ask("read", SM)
    return {one["url"]: one["source"] for one in reply["body"]["value"]["resources"]}


@pytest.mark.parametrize(
    ("body", "addresses"),
    [
        ({"resources": [f"{ROOM}/changes"]}, {f"{ROOM}/changes"}),
        ({"subscribe": [f"{ROOM}/changes"]}, {f"{ROOM}/changes"}),
        ({"subscribe": f"{ROOM}/changes"}, {f"{ROOM}/changes"}),
        ({"resource": ROOM}, {f"{ROOM}/changes"}),
        (
            {"resource": ROOM, "childrenResources": ["m"]},
            {f"{ROOM}/changes", f"{ROOM}/children/m", f"{ROOM}/m", f"{ROOM}/children/"},
        ),
        (
            {"resource": ROOM, "children": ["m"]},
            {f"{ROOM}/changes", f"{ROOM}/children/m", f"{ROOM}/m", f"{ROOM}/children/"},
        ),
    ],
)
async def test_row_18_every_name_of_the_list_is_understood(
    rig: RuntimeRig, body: dict[str, object], addresses: set[str]
) -> None:
    ana = await rig.opened("ana")
    assert (await ana.ask("subscribe", SM, body))["body"]["code"] == 200
    assert (await heard_at(ana)).keys() == addresses
    assert (await ana.ask("unsubscribe", SM, body))["body"]["code"] == 200
    assert await heard_at(ana) == {}


async def test_row_19_several_lists_are_one(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    names = [f"{ROOM}/{suffix}" for suffix in ("changes", "status", "registration")]
    body = {"resources": names[:2], "subscribe": names[1:], "resource": names[0]}
    assert (await ana.ask("subscribe", SM, body))["body"]["code"] == 200
    assert (await heard_at(ana)).keys() == set(names)


@pytest.mark.parametrize("body", [None, {}, {"resources": []}, {"subscribe": [[]]}, {"source": "x"}])
async def test_row_20_a_subscription_that_names_nothing_is_a_bad_body(
    rig: RuntimeRig, body: dict[str, object] | None
) -> None:
    ana = await rig.opened("ana")
    assert code_and_reason(await ana.ask("subscribe", SM, body)) == (400, "bad-body")


async def test_row_20_a_switch_restores_the_500_of_old_nodes(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, rules=Rules(sm_error=500)) as rig:
        ana = await rig.opened("ana")
        assert code_and_reason(await ana.ask("subscribe", SM, {"resources": []})) == (500, "bad-body")


async def test_row_21_the_listener_is_the_session_whatever_source_it_names(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    room = await bo.allocated()
    hyperty = await ana.allocated("hyperty")
    for source in (ana.address, f"{ana.address}/sm", hyperty):
        reply = await ana.ask("subscribe", SM, {"resources": [f"{room}/changes"], "source": source})
        assert reply["body"]["code"] == 200
    await bo.say(a_message("update", room, f"{room}/changes", {"value": 1}))
    await bo.heard()
    assert len(await ana.heard()) == 1
    for source in (bo.address, f"hyperty://{FOREIGN}/h"):
        reply = await ana.ask("subscribe", SM, {"resources": [f"{room}/changes"], "source": source})
        assert code_and_reason(reply) == (403, "spoofed-source")


@pytest.mark.parametrize(
    ("path", "is_heard"),
    [("children/m", True), ("m", True), ("children/", True), ("children/other", True), ("comm/m", False)],
)
async def test_row_22_children_are_heard_by_both_paths_and_the_base(
    rig: RuntimeRig, path: str, *, is_heard: bool
) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    room = await bo.allocated()
    await ana.ask("subscribe", SM, {"resource": room, "childrenResources": ["m"]})
    await bo.say(a_message("create", bo.address, f"{room}/{path}", {"value": 1}))
    await bo.heard()
    assert len(await ana.heard()) == is_heard


@pytest.mark.parametrize("children", [["m"], [{"name": "m"}], [{"m": ""}], [["m"]], "m"])
async def test_row_23_children_are_named_in_every_form(rig: RuntimeRig, children: object) -> None:
    ana = await rig.opened("ana")
    assert (await ana.ask("subscribe", SM, {"resource": ROOM, "childrenResources": children}))["body"]["code"] == 200
    assert f"{ROOM}/children/m" in await heard_at(ana)


async def test_row_24_subscribing_an_object_binds_its_changes_and_the_object_for_its_owner(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    room = await ana.allocated()
    for runtime, addresses in ((ana, {room, f"{room}/changes"}), (bo, {f"{room}/changes"})):
        assert (await runtime.ask("subscribe", SM, {"resource": room}))["body"]["code"] == 200
        assert (await heard_at(runtime)).keys() == addresses


@pytest.mark.parametrize("member", ["source", "subscriber"])
async def test_row_25_the_observer_is_named_either_way_and_the_request_passes_unchanged(
    rig: RuntimeRig, member: str
) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    room = await ana.allocated()
    hyperty = await bo.allocated("hyperty")
    request = a_message(
        "subscribe", f"{bo.address}/sm", f"{room}/subscription", {member: hyperty, "resource": room}, id_=9
    )
    await bo.say(request)
    await bo.heard()
    assert await ana.heard() == [request]
