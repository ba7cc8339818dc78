"""Erasing a person from a running node, and from a stopped one: what is left on the disk, and who hears of it."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import msgspec
import pytest
import trio
from typer.testing import CliRunner

from msg_node.addresses.core.allocation import Origin, OwnedRow
from msg_node.admin.core.proposals import Author, proposal_of
from msg_node.admin.erasing import erase_person
from msg_node.bus.core.moved_session import GivenSession, MovedSession
from msg_node.kernel.changes import Change, Table
from msg_node.kernel.session import SessionRow
from tests.support.admin_rig import AdminRig, admin_rig, ask_admin
from tests.support.runtime_rig import DOMAIN, Runtime, runtime_address
from trapezoid.commands import app

REGISTRY = f"domain://registry.{DOMAIN}"
VERA, AGENT = runtime_address("vera"), f"thing://{DOMAIN}/vera-lamps"
USER = f"user://{DOMAIN}/vera"


async def left_traces(at: AdminRig) -> tuple[Runtime, Runtime]:
    """Vera has addresses, a hyperty, a thing; Otto follows her, and has asked something of her that waits."""
    vera, otto = await at.rig.opened("vera"), await at.rig.opened("otto")
    twin = f"domain://msg-node.{DOMAIN}/twin"
    described = await vera.ask("create", twin, {"resource": f"{AGENT}/lamp", "value": {"title": "Vera's lamp"}})
    assert described["body"]["code"] == 200, described
    room = await vera.allocated()
    hyperty = await vera.allocated("hyperty")
    value = {"url": hyperty, "user": USER, "descriptor": "d", "runtime": VERA}
    registered = await vera.ask("create", REGISTRY, {"value": value})
    assert registered["body"]["code"] == 200, registered
    await otto.subscribed(f"{hyperty}/registration", f"{room}/changes")
    asked = {"class": "action", "method": "switch", "params": {}}
    await otto.say({"type": "execute", "id": "1", "from": otto.address, "to": f"{AGENT}/lamp/actions/x", "body": asked})
    await vera.heard()
    await proposed(at)
    return vera, otto


async def proposed(at: AdminRig) -> None:
    """Vera has proposed something, somebody has proposed something about her, and something else."""
    now = time.time()
    for arguments, author in (
        ({"group": "staff"}, Author(f"{VERA} by message", "jwt https://login.a.example x")),
        ({"group": "staff", "member": VERA}, Author("ops by socket", "user 1", "m")),
        ({"group": "staff", "reason": f"for {VERA}, who asked"}, Author("ops by socket", "user 1", "m")),
        ({"group": "staff", "member": f"{VERA.removesuffix('vera')}others"}, Author("ops by socket", "user 1", "m")),
    ):
        at.node.proposals.add(proposal_of("group add", arguments, {}, author, now), now)
    stored = trio.Event()
    at.node.store.submit(at.node.state.take_changes(), stored.set, lambda _: None)
    await stored.wait()


def names_on_disk(folder: Path) -> bool:
    return any(b"vera" in path.read_bytes() for path in folder.glob("state.sqlite*"))


async def test_a_person_is_gone_from_a_running_node_and_from_its_disk(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        vera, otto = await left_traces(at)
        tried = await ask_admin(ops, "erase", arguments={"person": VERA}, dryRun=True)
        found = tried["value"]["before"]
        assert (at.has_session("vera"), found["sessions"], found["requests"], found["things"]) == (True, 1, 1, 1)
        assert (found["proposals"], len(at.node.proposals)) == (3, 4)
        done = await ask_admin(ops, "erase", arguments={"person": VERA})
        assert (done["code"], done["value"]["before"], at.has_session("vera")) == (200, found, False)
        heard = await otto.heard()
        answers = [one["body"]["code"] for one in heard if one.get("id") == "1"]
        assert answers == [404], heard
        assert [one["body"]["value"] for one in heard if one["to"].endswith("/registration")] == ["disconnected"]
        assert await vera.close_code() == 4403
        again = await ask_admin(ops, "erase", arguments={"person": VERA})
        assert again["value"]["before"] == {}
        [first, second] = at.events
        assert "vera" not in f"{first}{second}"
        assert first.arguments == second.arguments, "a keyed hash: records of the same person can be found"
        assert len(at.node.proposals) == 1
        assert not names_on_disk(tmp_path)


def on_its_way(name: str, credential: str, number: int) -> tuple[str, GivenSession]:
    """A session between two nodes of the domain, with one address."""
    row = SessionRow(
        sid=number, runtime=runtime_address(name), runtime_key=runtime_address(name), token_digest=f"digest-{name}",
        credential=credential,
    )  # fmt: skip
    owned = OwnedRow(sid=number, url=f"comm://{DOMAIN}/{name}-room", origin=Origin.ALLOCATED)
    moved = MovedSession(session=row, addresses=(owned,))
    return row.token_digest, GivenSession(given_at=time.time(), moved=msgspec.Raw(msgspec.json.encode(moved)))


@pytest.mark.parametrize(
    ("person", "gone"),
    [
        (VERA, "vera"),
        ("https://login.a.example vera", "phone"),
        (f"runtime://{DOMAIN}/nobody", ""),
        (f"comm://{DOMAIN}/vera-room", ""),
    ],
)
async def test_a_session_on_its_way_between_two_nodes_goes_with_its_person(
    tmp_path: Path, person: str, gone: str
) -> None:
    jwt = "jwt https://login.a.example vera"
    rows = dict([on_its_way("vera", "", 1), on_its_way("phone", jwt, 2), on_its_way("otto", f"{jwt}a", 3)])
    async with admin_rig(tmp_path) as at:
        at.rig.store.submit([Change(Table.GIVEN_SESSIONS, key, row) for key, row in rows.items()], lambda: None)
        stored = {key: msgspec.json.encode(row) for key, row in rows.items()}
        otto = await at.rig.opened("otto")
        await otto.subscribed(f"comm://{DOMAIN}/{gone}-room/changes")
        node = dataclasses.replace(at.node, on_their_way=lambda: stored)
        plan = await erase_person(node, {"person": person}, "ops")
        assert plan.before == ({"sessions": 1, "subscriptions": 1} if gone else {})
        plan.apply()
        assert plan.finish is not None
        plan.finish()
        done = trio.Event()
        at.rig.store.submit([], done.set)
        await done.wait()
        left = at.rig.store.load()[Table.GIVEN_SESSIONS].keys()
        assert left == rows.keys() - {f"digest-{gone}"}


async def test_the_answer_to_somebody_who_is_away_waits(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        _, otto = await left_traces(at)
        await otto.wire.cut()
        await at.rig.until("sessions lost")
        await ask_admin(ops, "erase", arguments={"person": VERA})
        [report] = at.rig.state.delivery.inboxes.of_owner(runtime_address("otto"))
        assert (json.loads(report.body)["code"], report.is_final) == (404, True)


@pytest.mark.parametrize("arguments", [{}, {"person": "vera"}, {"person": ["vera"]}, {"person": "vera@"}])
async def test_a_refused_request_leaves_no_name_in_its_record(tmp_path: Path, arguments: dict[str, object]) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        refused = await ask_admin(ops, "erase", arguments=arguments)
        assert (refused["code"], refused["reason"]) == (400, "bad-body")
        [event] = at.events
        assert (event.code, "vera" in str(event)) == ("bad-body", False)


async def test_a_person_is_gone_from_a_stopped_node_too(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        await left_traces(at)
    assert names_on_disk(tmp_path)
    config = tmp_path / "node.toml"
    config.write_text(
        f'[node]\ndomain = "{DOMAIN}"\ndata_dir = "{tmp_path}"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
    )

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["state", "erase", VERA, "--config", str(config), "--json", *arguments])
        return result.exit_code, result.output

    assert run()[0] == 2, "nobody has confirmed it"
    code, found = run("--dry-run")
    assert (code, json.loads(found)["sessions"], names_on_disk(tmp_path)) == (0, 1, True)
    assert run("--yes") == (0, found)
    assert json.loads(found)["proposals"] == 3
    async with admin_rig(tmp_path) as at:
        assert (at.has_session("vera"), at.has_session("otto"), len(at.node.proposals)) == (False, True, 1)
        [report] = at.rig.state.delivery.inboxes.of_owner(runtime_address("otto"))
        assert (json.loads(report.body)["code"], report.is_final) == (404, True)
