"""An operator changes the trust in a partner at a running node: links begin anew, and who did it is recorded."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from typer.testing import CliRunner

from interop.lab.spool import read_records
from interop.laboratory import LaboratoryNode
from protofly.errors import Code, HostError
from protofly.records import AdminEvent
from trapezoid.admin_client import ask_node
from trapezoid.commands import app

from .systems import running_system

OTHER = "PkSdMrt1vNODIVuhyRkwei4Px83jRdR_xNpMuA7JvVo"


async def ask(node: LaboratoryNode, operation: str, *, dry_run: bool = False, **arguments: object) -> Any:
    return await trio.to_thread.run_sync(partial(ask_node, node.folder.data, operation, arguments, dry_run=dry_run))


async def command(node: LaboratoryNode, *words: str) -> None:
    """Run `trapezoid peer` beside the node."""
    whole = ["peer", *words, "--config", str(node.folder.settings), "--yes", "--json"]
    done = await trio.to_thread.run_sync(partial(CliRunner().invoke, app, whole))
    assert done.exit_code == 0, done.output


@pytest.mark.long
async def test_links_end_when_the_trust_in_their_domain_is_replaced_and_come_back_when_that_is_undone(
    tmp_path: Path,
) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        assert (await bruno.ask(anna.hyperty)).is_ok  # a link of theirs, too
        tried = await ask(system.a, "peer retrust", domain="b.example", fingerprint=OTHER, dry_run=True)
        assert (tried["before"]["level"], tried["after"]["fingerprint"]) == ("web", OTHER)
        assert (await anna.ask(bruno.hyperty)).is_ok
        for domain, fingerprint in (("a.example", OTHER), ("b.example", "x")):
            with pytest.raises(HostError, check=lambda error: error.code is Code.BAD_BODY):
                await ask(system.a, "peer retrust", domain=domain, fingerprint=fingerprint)

        await command(system.a, "retrust", "b.example", "--fingerprint", OTHER)
        await system.wait_link(system.a, lambda one: one.state != "live")
        assert (await anna.ask(bruno.hyperty)).code == 502
        await system.wait_link(system.b, lambda one: one.state != "live")

        await command(system.a, "forget", "b.example")
        assert (await anna.ask(bruno.hyperty)).is_ok
        await ask(system.a, "peer forget", domain="b.example")
        assert (await anna.ask(bruno.hyperty)).is_ok  # a first contact
        with pytest.raises(HostError, check=lambda error: error.code is Code.NOT_REGISTERED):
            await ask(system.a, "peer forget", domain="c.example")

        await system.a.stop()
        events = read_records(system.a.folder.data / "records", AdminEvent)
        made = [one for one in events if one.code is None]
        assert [one.operation for one in made] == ["peer retrust", "peer forget", "peer forget"]
        assert all(one.way == "socket" and one.actor and one.before and one.after for one in made)
        assert OTHER in (made[0].after or "")
        assert OTHER in (made[1].before or "")
        assert len(events) == 6
