"""An operator cuts a partner off: nothing of it is left, also after a restart; lifted, it is back."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from interop.lab.spool import read_records
from interop.laboratory import LaboratoryNode
from interop.talker import Talker
from protofly.errors import Code, HostError
from protofly.records import AdminEvent
from trapezoid.admin_client import ask_node

from .systems import running_system, wait_until


async def ask(node: LaboratoryNode, operation: str, *, dry_run: bool = False, **arguments: object) -> Any:
    """Ask the node as its operator; `for_` stands for `for`."""
    given = {name.rstrip("_"): value for name, value in arguments.items()}
    return await trio.to_thread.run_sync(partial(ask_node, node.folder.data, operation, given, dry_run=dry_run))


async def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.long
async def test_a_partner_is_cut_off_and_stays_so_until_the_block_is_lifted(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        worker_pid = (await system.link(system.a)).worker_pid
        assert worker_pid is not None

        tried = await ask(system.a, "peer block", domain="b.example", dry_run=True)
        assert (tried["before"], tried["after"]["links"]) == (None, ["b.example"])
        assert (await anna.ask(bruno.hyperty)).is_ok
        with pytest.raises(HostError, check=lambda error: error.code is Code.BAD_BODY):
            await ask(system.a, "peer block", domain="a.example")

        await ask(system.a, "peer block", domain="b.example", for_="2h", reason="their key is stolen")
        await wait_until(partial(is_alive, worker_pid), lambda alive: not alive)
        await system.wait_link(system.b, lambda one: one.state != "live")
        assert (await ask(system.a, "links"))["rows"] == []
        await _is_barred(anna, bruno)
        [restriction] = (await ask(system.a, "restrictions"))["rows"]
        assert (restriction["what"], restriction["subject"]) == ("peer", "b.example")
        assert restriction["reason"] == "their key is stolen"

        await system.a.stop()
        await system.start(system.a)
        await anna.open(system.nursery)
        await _is_barred(anna, bruno)

        with pytest.raises(HostError, check=lambda error: error.code is Code.DOMAIN_BLOCKED):
            await ask(system.a, "peer connect", domain="b.example")
        await ask(system.a, "peer unblock", domain="b.example")
        await _connected_by_its_operator(system.a)
        answer = await anna.ask(bruno.hyperty)
        assert answer.is_ok, answer

        await _kicked(system.a, anna)
        await system.a.stop()
        events = read_records(system.a.folder.data / "records", AdminEvent)
        assert [(one.operation, one.code) for one in events] == [
            ("peer block", "bad-body"),
            ("peer block", None),
            ("peer connect", "domain-blocked"),
            ("peer unblock", None),
            ("peer connect", None),
            ("kick", None),
        ]
        assert all(one.way == "socket" and one.actor for one in events)
        assert "their key is stolen" in (events[1].after or "")


async def _connected_by_its_operator(node: LaboratoryNode) -> None:
    with pytest.raises(HostError, check=lambda error: error.code is Code.NOT_CONNECTED):
        await ask(node, "peer ping", domain="b.example")
    tried = await ask(node, "peer connect", domain="b.example", dry_run=True)
    assert (tried["before"], tried["after"]) == ({"link": "none"}, {"link": "connecting"})
    assert (await ask(node, "links"))["rows"] == []
    await ask(node, "peer connect", domain="b.example")
    assert (await ask(node, "peer ping", domain="b.example"))["milliseconds"] > 0


async def _is_barred(anna: Talker, bruno: Talker) -> None:
    answer = await anna.ask(bruno.hyperty)
    assert (answer.code, answer.reason) == (403, "domain-blocked")


async def _kicked(node: LaboratoryNode, anna: Talker) -> None:
    """The session ends with all that it holds, and the runtime may not come back for a while."""
    await ask(node, "kick", runtime=anna.client.runtime, ban="1h", reason="spam")
    await wait_until(partial(ask, node, "sessions"), lambda page: page["total"] == 0)
    anna.client.token = ""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(anna.client.run)
    assert "runtime-barred" in repr(caught.value.exceptions)
