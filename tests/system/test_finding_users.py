"""A user of a.example knows only the GUID of one of b.example, and reaches them: two nodes, a global registry."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

from interop.domain_folders import command
from interop.laboratory import POLICIES, LaboratoryNode
from interop.talker import Talker
from protofly.guid import guid_address

from .systems import System, running_system

USER = "user://idp.example/bruno"


@asynccontextmanager
async def global_registry(folder: Path) -> AsyncIterator[str]:
    """The laboratory's registry as a process; its address."""
    command = [sys.executable, "-m", "trapezoid", "serve-global-registry", "--store", str(folder / "guids.sqlite")]
    process = await trio.lowlevel.open_process([*command, "--port", "0"], stdout=PIPE)
    try:
        assert process.stdout is not None
        line = b""
        with trio.fail_after(20):
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some()
        yield json.loads(line.removeprefix(b"ready "))["url"]
    finally:
        with trio.CancelScope(shield=True):
            process.send_signal(signal.SIGTERM)
            with trio.fail_after(20):
                await process.wait()


def policies_without_guids(folder: Path) -> Path:
    """The rules of the demo, without GUIDs among what may be addressed."""
    changed = folder / "policies"
    changed.mkdir()
    for source in POLICIES.glob("*.policy.toml"):
        text = source.read_text()
        assert '"user-guid", ' in text
        (changed / source.name).write_text(text.replace('"user-guid", ', ""))
    return changed


async def with_users(system: System, node: LaboratoryNode, registry: str) -> None:
    """Run a node with the registry and the switch."""
    folder = node.folder.settings.parent / "conf.d"
    folder.mkdir()
    (folder / "people.toml").write_text(
        f'[routing]\nusers = true\n[global_registry]\nurl = "{registry}"\n'
        "insecure_plaintext = true\ncache_seconds = 0\n"
    )
    await node.stop()
    await system.start(node)


async def published(folder: Path, registry: str, *more: str) -> str:
    """Publish the GUID of bruno as people do, made by the first time; the GUID."""
    if not more:
        await command("guid", "new", str(folder), "--user", f"{USER}=b.example")
    plain = ["--registry", registry, "--insecure-plaintext", "--json"]
    return str(json.loads(await command("guid", "publish", str(folder), *plain, *more))["guid"])


async def registered(bruno: Talker, guid: str) -> None:
    """Let the registry of b.example know that this hyperty is that user's."""
    entry = {"user": USER, "guid": guid_address(guid), "descriptor": "hyperty-catalogue://b.example/hyperty/chat"}
    answer = await bruno.client.at("b.example").register(
        {"url": bruno.hyperty, "runtime": bruno.client.runtime, "resources": ["chat"], **entry}
    )
    assert answer.is_ok, answer


@pytest.mark.long
async def test_a_runtime_reaches_a_hyperty_of_another_domain_knowing_only_the_guid(tmp_path: Path) -> None:
    async with (
        global_registry(tmp_path) as registry,
        running_system(tmp_path / "laboratory") as system,
    ):
        guid = await published(tmp_path / "bruno", registry)
        for node in (system.a, system.b):
            await with_users(system, node, registry)
        anna, bruno = await system.talker(system.a, "anna"), await system.talker(system.b, "bruno")
        await registered(bruno, guid)
        answers = [await anna.ask(guid_address(guid), number) for number in range(3)]
        assert [(answer.code, answer.value) for answer in answers] == [(200, 0), (200, 1), (200, 2)]
        assert await bruno.hear_numbers(anna.hyperty, 3) == [0, 1, 2]
        assert {one.to for one in bruno.heard if one.from_ == anna.hyperty} == {guid_address(guid)}
        read = await anna.client.request("read", anna.client.runtime, "global://registry/", {"guid": guid})
        assert read.body["Code"] == 200
        link = await system.wait_link(system.a, lambda one: one.accepted == one.sent)
        assert link.lost == 0
        assert (await system.whole_status(system.a))["backends"]["users"]["found"] == 1


@pytest.mark.long
async def test_who_cannot_be_found_or_may_not_be_reached_is_answered_for(tmp_path: Path) -> None:
    async with (
        global_registry(tmp_path) as registry,
        running_system(tmp_path / "laboratory", policies=policies_without_guids(tmp_path)) as system,
    ):
        guid = await published(tmp_path / "bruno", registry)
        await with_users(system, system.a, registry)
        anna = await system.talker(system.a, "anna")
        denied = await anna.ask(guid_address(guid))
        assert (denied.code, denied.reason) == (403, "domain-blocked")
        unknown = await anna.ask(guid_address(guid[::-1][1:] + "A"))
        assert (unknown.code, unknown.reason) == (404, "not-registered")
        nobody = await anna.ask(guid_address("short"))
        assert (nobody.code, nobody.reason) == (404, "no-route")


@pytest.mark.long
async def test_a_domain_whose_user_is_not_there_says_so_in_their_name(tmp_path: Path) -> None:
    async with (
        global_registry(tmp_path) as registry,
        running_system(tmp_path / "laboratory") as system,
    ):
        guid = await published(tmp_path / "bruno", registry)
        for node in (system.a, system.b):
            await with_users(system, node, registry)
        anna = await system.talker(system.a, "anna")
        answer = await anna.ask(guid_address(guid))
        assert (answer.code, answer.reason) == (404, "not-registered")
        assert answer.body["source"] == "runtime://b.example/mn-1"
        await published(tmp_path / "bruno", registry, "--revoke", "--yes")
        bruno = await system.talker(system.b, "bruno")
        read = await bruno.client.request("read", bruno.client.runtime, "global://registry/", {"guid": guid})
        assert (read.code, read.reason) == (410, "revoked")
