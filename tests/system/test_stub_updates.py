"""A domain publishes newer versions of its stub under traffic, good and bad: nothing is lost, doubled, out of order."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from interop.lab.spool import read_records
from interop.laboratory import LaboratoryNode
from interop.talker import Talker
from protofly.errors import HostError
from protofly.records import StubEvent
from stubkit.build import build
from stubkit.keys import load_keys
from tests.support.guests import custom_section
from trapezoid.admin_client import ask_node
from trapezoid.publish_options import SigningSite
from trapezoid.publish_request import PublishRequest
from trapezoid.publishing import publish

from .foreign import LINK_STUB
from .systems import System, running_system, wait_until

PER_SECOND = 1000


class Traffic:
    """Numbered events of anna to bruno, 1,000 each second while the machine is quick enough, until it is over."""

    def __init__(self, anna: Talker, bruno: Talker) -> None:
        self.anna, self.bruno = anna, bruno
        self.sent = 0
        self.is_over = False
        self.ended = trio.Event()

    async def run(self) -> None:
        while not self.is_over:
            for _ in range(PER_SECOND // 100):
                await self.anna.post(self.bruno.hyperty, 1 + self.sent)
                self.sent += 1
            await trio.sleep(0.01)
        self.ended.set()

    async def check(self) -> None:
        """End it: all came, once each and in order."""
        self.is_over = True
        await self.ended.wait()
        await self.bruno.wait_for(lambda: self.bruno.heard[-1].body.get("value") == self.sent)
        heard = self.bruno.numbers_from(self.anna.hyperty)
        assert heard[1:] == list(range(1, self.sent + 1))


async def ask(node: LaboratoryNode, operation: str, **arguments: object) -> Any:
    return await trio.to_thread.run_sync(partial(ask_node, node.folder.data, operation, arguments))


async def release(system: System, module: Path) -> None:
    """Publish a module as the next version of b's stub."""
    folder = system.b.folder
    site = SigningSite(domain="b.example", keys=load_keys(folder.keys), path=folder.site, now=time.time())
    await trio.to_thread.run_sync(publish, site, PublishRequest(module=module, url=system.b.site_url))


async def stub_of(node: LaboratoryNode) -> dict[str, Any]:
    page = await ask(node, "stubs")
    return dict(page["rows"][0])


async def updated(node: LaboratoryNode, word: str) -> dict[str, Any]:
    """Make the node ask for news until it hears of a newer version; the stub, once that is `word` and live."""
    before = (await stub_of(node))["update"]

    async def asked() -> dict[str, Any]:
        if (seen := await stub_of(node))["update"] == before:
            await ask(node, "peer refresh", domain="b.example")
        return seen

    await wait_until(asked, lambda one: one["update"] != before)
    return await wait_until(
        partial(stub_of, node), lambda one: one["update"].startswith(word) and one["state"] == "live"
    )


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Versions of the link stub: a good one, and one that dies of each message."""
    folder = tmp_path_factory.mktemp("modules")
    made = {name: folder / f"{name}.wasm" for name in ("good", "bad")}
    made["good"].write_bytes(LINK_STUB.read_bytes() + custom_section("release", b"good"))
    source, mark = LINK_STUB.with_name("link.c").read_text(), "if (event->op == STUB_MESSAGE) {"
    assert mark in source
    (folder / "bad.c").write_text(source.replace(mark, f"{mark} __builtin_trap();"))
    build(folder / "bad.c", made["bad"])
    return made


@pytest.mark.long
async def test_good_and_bad_releases_under_traffic_cost_no_message(tmp_path: Path, modules: dict[str, Path]) -> None:
    async with running_system(tmp_path) as system:
        traffic = Traffic(*await system.couple())
        first = await stub_of(system.a)
        system.nursery.start_soon(traffic.run)
        await release(system, modules["good"])
        good = await updated(system.a, "took-over")
        assert (good["package"] != first["package"], good["worker_pid"] != first["worker_pid"]) == (True, True)
        await _operator_goes_back_and_forth(system, first, good)
        await release(system, modules["bad"])
        bad = await updated(system.a, "rolled-back")
        assert (bad["package"], "stub-trapped" in bad["update"]) == (good["package"], True)
        await _bad_one_is_not_tried_again(system, good)
        await traffic.check()
        assert traffic.sent > 100
        assert (await traffic.anna.ask(traffic.bruno.hyperty)).is_ok
        assert await system.a.stop() == 0
        events = [one.event for one in read_records(system.a.folder.data / "records", StubEvent)]
    assert events.count("rolled-back") == 1
    assert events.count("took-over") >= 3


async def _bad_one_is_not_tried_again(system: System, good: dict[str, Any]) -> None:
    [b] = [one for one in (await ask(system.a, "peers"))["rows"] if one["domain"] == "b.example"]
    assert "stub-trapped" in b["failed"][0]
    with pytest.raises(HostError, match="no newer version"):
        await ask(system.a, "stub roll-back", domain="b.example")
    before = await stub_of(system.a)
    await ask(system.a, "peer refresh", domain="b.example")
    asked = (await stub_of(system.a))["usage"]["messages"]
    await wait_until(partial(stub_of, system.a), lambda one: one["usage"]["messages"] > asked + 100)
    after = await stub_of(system.a)
    assert (after["worker_pid"], after["package"]) == (before["worker_pid"], good["package"])


async def _operator_goes_back_and_forth(system: System, old: dict[str, Any], new: dict[str, Any]) -> None:
    """What the operator turns down is not tried again until the operator approves it."""
    await ask(system.a, "stub roll-back", domain="b.example", reason="it is slow")
    await _wait_package(system, old)
    [b] = [one for one in (await ask(system.a, "peers"))["rows"] if one["domain"] == "b.example"]
    assert "it is slow" in b["failed"][-1]
    await ask(system.a, "stub approve", domain="b.example")
    await _wait_package(system, new)


async def _wait_package(system: System, like: dict[str, Any]) -> None:
    await wait_until(
        partial(stub_of, system.a), lambda one: one["package"] == like["package"] and one["state"] == "live"
    )
