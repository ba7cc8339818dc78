"""When what was queued is written: at once for a reader that is alone, once per round where there are many."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from msg_node.bus.send_queues import LONELY_SECONDS
from tests.support.flow_rig import ANA, FlowRig, flow_rig, from_bo
from tests.support.services import PATIENCE_SECONDS

LONG_AGO, JUST_NOW = 0.0, 9e9


def bring(rig: FlowRig, number: int, *, last_turn: float) -> None:
    rig.node.bus.send_queues.turns.ended = last_turn
    rig.link.inbound([(number, from_bo(number))], "7" * 32)


async def test_what_a_lonely_turn_queued_is_written_in_it(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        bring(rig, 1, last_turn=LONG_AGO)
        assert [one["body"]["n"] for one in rig.heard("ana")] == [1]
        assert rig.node.bus.send_queues.turns.ended > LONELY_SECONDS


async def test_what_turns_that_follow_each_other_queued_is_written_once(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig, trio.open_nursery() as nursery:
        nursery.start_soon(rig.node.bus.send_queues.run)
        blocks: list[int] = []
        write = rig.channels["ana"].send
        rig.channels["ana"].send = lambda raws: (blocks.append(len(raws)), write(raws))  # type: ignore[assignment,method-assign,func-returns-value]
        for number in range(1, 4):
            bring(rig, number, last_turn=JUST_NOW)
        assert rig.heard("ana") == []
        with trio.fail_after(PATIENCE_SECONDS):
            await wait_all_tasks_blocked()
        assert [one["body"]["n"] for one in rig.heard("ana")] == [1, 2, 3]
        assert blocks == [3]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("last_turn", [LONG_AGO, JUST_NOW])
async def test_an_answer_to_a_session_is_written_by_the_same_rule(tmp_path: Path, last_turn: float) -> None:
    async with flow_rig(tmp_path) as rig:
        port, sent = rig.ports["ana"], rig.channels["ana"].sent
        before = len(sent)
        rig.node.bus.send_queues.turns.ended = last_turn
        raw = json.dumps({"id": 5, "type": "read", "from": ANA, "to": f"{ANA}-unknown"}).encode()
        rig.node.bus.from_sessions.take(port, [raw])
        assert (len(sent) > before) == (last_turn == LONG_AGO)
        port.queue.flush()
        assert len(sent) == before + 1
