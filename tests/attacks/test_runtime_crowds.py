"""One stranger opens all sessions that a node has places for, at a real node; others come from another address."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runtime_rig import code_and_reason
from tests.system.one_node import SETTINGS, serving

PLACES = 12


@pytest.mark.long
async def test_who_takes_all_places_gives_way_to_others_and_not_to_itself(tmp_path: Path) -> None:
    settings = SETTINGS.format(grace=120) + f"[limits]\nsessions = {PLACES}\n"
    async with serving(tmp_path, settings) as node:
        crowd = [await node.opened(f"eve-{number}") for number in range(PLACES)]
        one_more = await node.runtime()
        assert code_and_reason(await one_more.open("eve-more")) == (503, "overload")
        await crowd[-1].wire.cut()  # parked sessions hold their places as well
        honest = [await node.runtime("127.0.0.2") for _ in range(PLACES)]
        replies = [code_and_reason(await one.open(f"ana-{number}")) for number, one in enumerate(honest)]
        assert replies == [(200, "")] * (PLACES // 2) + [(503, "overload")] * (PLACES // 2)
        assert [await one.close_code() for one in crowd[: PLACES // 2]] == [4503] * (PLACES // 2)
        mine = await honest[0].allocated("hyperty")
        assert code_and_reason(await honest[1].ask("read", f"{mine}/x")) != (503, "overload")
        assert code_and_reason(await (await node.runtime()).open("eve-again")) == (503, "overload")
