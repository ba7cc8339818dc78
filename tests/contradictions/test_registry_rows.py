"""Message specification, section 21: the domain registry. One test per row, through a node over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.runtime_rig import DOMAIN, Json, Runtime, RuntimeRig, a_message, code_and_reason, runtime_rig

REGISTRY = f"domain://registry.{DOMAIN}"
USER = f"user://{DOMAIN}/ana"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


async def registered(runtime: Runtime, number: int = 1) -> list[str]:
    """Fresh hyperties of a runtime, in the registry."""
    reply = await runtime.ask("create", f"domain://msg-node.{DOMAIN}/address-allocation", {"value": {"number": number}})
    hyperties: list[str] = reply["body"]["value"]["allocated"]
    for url in hyperties:
        value = {"url": url, "user": USER, "descriptor": "d", "runtime": runtime.address}
        assert (await runtime.ask("create", REGISTRY, {"value": value}))["body"]["code"] == 200
    return hyperties


async def registered_object(runtime: Runtime, name: str = "room") -> str:
    url = await runtime.allocated()
    value = {"url": url, "name": name, "schema": "s", "reporter": runtime.address, "runtime": runtime.address}
    assert (await runtime.ask("create", REGISTRY, {"value": value}))["body"]["code"] == 200
    return url


async def status(runtime: Runtime, url: str) -> object:
    reply = await runtime.ask("read", REGISTRY, {"resource": url})
    return reply["body"]["value"]["status"]


@pytest.mark.parametrize("body", [{}, {"method": "refresh", "status": "live"}])
async def test_row_29_both_forms_of_keep_alive_keep_alive(rig: RuntimeRig, body: Json) -> None:
    ana = await rig.opened("ana")
    (url,) = await registered(ana)
    before = rig.state.registry.get(url)
    assert before is not None
    reply = await ana.ask("update", REGISTRY, {"resource": url, **body})
    after = rig.state.registry.get(url)
    assert after is not None
    assert (reply["body"]["code"], after.refreshed_at > before.refreshed_at) == (200, True)
    assert await status(ana, url) == "live"


@pytest.mark.parametrize(
    "body", [{"value": "disconnected", "attribute": "status"}, {"value": {"status": "disconnected"}}]
)
async def test_row_30_both_forms_of_un_registration_disconnect(rig: RuntimeRig, body: Json) -> None:
    ana = await rig.opened("ana")
    (url,) = await registered(ana)
    assert (await ana.ask("update", REGISTRY, {"resource": url, **body}))["body"]["code"] == 200
    assert await status(ana, url) == "disconnected"


async def test_row_31_an_address_inside_a_resource_path_keeps_its_slashes(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    url, other = await registered(ana, 2)
    reply = await ana.ask("read", REGISTRY, {"resource": f"/hyperty/user/{USER}"})
    assert set(reply["body"]["value"]) == {url, other}
    reply = await ana.ask("read", REGISTRY, {"resource": f"/hyperty/url/{url}"})
    assert reply["body"]["code"] == 200
    assert url in str(reply["body"]["value"])
    assert other not in str(reply["body"]["value"])


async def test_row_32_a_query_gives_a_map_and_one_address_an_object(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    (url,) = await registered(ana)
    listed = await ana.ask("read", REGISTRY, {"resource": f"/hyperty/user/{USER}"})
    assert list(listed["body"]["value"]) == [url]
    single = await ana.ask("read", REGISTRY, {"resource": url})
    assert single["body"]["value"] == listed["body"]["value"][url]


@pytest.mark.parametrize("by", ["url", "name"])
async def test_row_33_a_data_object_is_deleted_by_address_or_name(rig: RuntimeRig, by: str) -> None:
    ana = await rig.opened("ana")
    url = await registered_object(ana)
    value = {"url": url} if by == "url" else {"name": "room"}
    assert (await ana.ask("delete", REGISTRY, {"value": value}))["body"]["code"] == 200
    assert code_and_reason(await ana.ask("read", REGISTRY, {"resource": url})) == (404, "not-registered")


async def test_row_34_missing_members_are_filled_in_or_named(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    url = await ana.allocated("hyperty")
    reply = await ana.ask("create", REGISTRY, {"value": {"url": url}})
    assert code_and_reason(reply) == (400, "bad-body")
    assert {"user", "descriptor"} <= set(reply["body"]["value"]["missing"])
    (complete,) = await registered(ana)
    shown = (await ana.ask("read", REGISTRY, {"resource": complete}))["body"]["value"]
    assert (shown["status"], shown["expires"] > 0) == ("live", True)


async def events_at(rig: RuntimeRig, suffix: str) -> list[Json]:
    """What a listener to `<hyperty>/<suffix>` hears when that is un-registered."""
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    (url,) = await registered(ana)
    await bo.subscribed(f"{url}/{suffix}")
    await ana.ask("update", REGISTRY, {"resource": url, "value": "disconnected", "attribute": "status"})
    return await bo.heard()


async def test_row_35_changes_of_status_are_reported_at_registration(rig: RuntimeRig) -> None:
    (event,) = await events_at(rig, "registration")
    assert event["body"]["value"] == "disconnected"


async def test_row_35_and_not_at_changes(rig: RuntimeRig) -> None:
    assert await events_at(rig, "changes") == []


async def test_row_36_every_listener_is_notified(rig: RuntimeRig) -> None:
    ana, bo, cy = [await rig.opened(name) for name in ("ana", "bo", "cy")]
    (url,) = await registered(ana)
    for runtime in (bo, cy):
        await runtime.subscribed(f"{url}/registration")
    await ana.ask("update", REGISTRY, {"resource": url, "value": "disconnected", "attribute": "status"})
    assert [len(await runtime.heard()) for runtime in (bo, cy)] == [1, 1]


async def test_row_37_only_real_changes_are_reported_and_always_with_a_value(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    (url,) = await registered(ana)
    await bo.subscribed(f"{url}/registration")
    for body in ({}, {"value": "live", "attribute": "status"}, {}):
        await ana.ask("update", REGISTRY, {"resource": url, **body})
    assert await bo.heard() == []
    await ana.ask("update", REGISTRY, {"resource": url, "value": "disconnected", "attribute": "status"})
    await ana.ask("update", REGISTRY, {"resource": url})
    assert [one["body"]["value"] for one in await bo.heard()] == ["disconnected", "live"]


async def test_row_38_the_reason_says_which_408_it_is(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    (url,) = await registered(ana)
    await ana.ask("update", REGISTRY, {"resource": url, "value": "disconnected", "attribute": "status"})
    assert code_and_reason(await ana.ask("read", REGISTRY, {"resource": url})) == (408, "temporarily-unavailable")
    assert code_and_reason(await ana.ask("read", bo.address, {"ttl": 0})) == (408, "timeout")


@pytest.mark.parametrize(("page", "names"), [(0, (0, 50)), (1, (0, 50)), (2, (50, 53)), (3, (53, 53))])
async def test_row_59_pages_count_from_one_and_have_fifty_elements(
    rig: RuntimeRig, page: int, names: tuple[int, int]
) -> None:
    ana = await rig.opened("ana")
    urls = await registered(ana, 53)
    reply = await ana.ask("read", REGISTRY, {"resource": f"/hyperty/user/{USER}", "page": page})
    assert list(reply["body"]["value"]) == urls[names[0] : names[1]]


async def test_row_68_an_update_without_value_means_what_its_target_says(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    (url,) = await registered(ana)
    assert (await ana.ask("update", REGISTRY, {"resource": url}))["body"]["code"] == 200
    assert await status(ana, url) == "live"  # a keep-alive
    room = await ana.allocated()
    await bo.subscribed(f"{room}/changes")
    removal = a_message("update", room, f"{room}/changes", {"attribute": "topic"})
    null = a_message("update", room, f"{room}/changes", {"attribute": "topic", "value": None})
    await ana.say(removal, null)
    await ana.heard()
    assert await bo.heard() == [removal, null]
