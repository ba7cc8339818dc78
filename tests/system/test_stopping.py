"""A real node process that is asked to stop amid requests: those that wait are answered first."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from tests.support.guid_holder import GuidHolder
from tests.support.runtime_rig import PATIENCE_SECONDS, a_message, code_and_reason
from wire.core.websocket import GOING_AWAY

from .one_node import SETTINGS, serving

PEOPLE = """
[routing]
users = true
[global_registry]
url = "http://127.0.0.1:{port}"
insecure_plaintext = true
"""


@pytest.mark.long
@pytest.mark.parametrize("members", [{}, {"class": "action", "method": "switch"}], ids=["rpc", "action"])
async def test_who_waits_for_a_user_to_be_found_is_answered_when_the_node_stops(
    tmp_path: Path, members: dict[str, object]
) -> None:
    was_asked = trio.Event()

    async def say_nothing(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            was_asked.set()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        (listener, *_) = await nursery.start(trio.serve_tcp, say_nothing, 0)
        settings = SETTINGS.format(grace=120) + PEOPLE.format(port=listener.socket.getsockname()[1])
        async with serving(tmp_path, settings) as node:
            ana = await node.opened("ana")
            to = f"user-guid://{GuidHolder('bo').guid}"
            await ana.say(a_message("execute", ana.address, to, {"value": 1, **members}, id_=7))
            with trio.fail_after(PATIENCE_SECONDS):
                await was_asked.wait()
            os.kill(node.ready["pid"], signal.SIGTERM)
            assert (await ana.next())["body"]["value"] == "draining"
            answer = await ana.next()
            assert (answer["id"], *code_and_reason(answer)) == (7, 503, "draining")
            assert await ana.close_code() == GOING_AWAY
            assert await node.child.wait() == 0
        nursery.cancel_scope.cancel()


async def test_a_second_signal_stops_a_node_that_waits_for_a_reply_at_once(tmp_path: Path) -> None:
    settings = SETTINGS.format(grace=3600).replace("drain_seconds = 1", "drain_seconds = 300")
    async with serving(tmp_path, settings) as node:
        ana, bo = await node.opened("ana"), await node.opened("bo")
        to = await bo.allocated()
        await ana.say(a_message("read", ana.address, to, {"ttl": 300}, id_=7))
        assert (await bo.next())["type"] == "read"
        os.kill(node.ready["pid"], signal.SIGTERM)
        assert (await ana.next())["body"]["value"] == "draining"
        os.kill(node.ready["pid"], signal.SIGTERM)
        with trio.fail_after(PATIENCE_SECONDS):
            answer = await ana.next()
            assert (answer["id"], *code_and_reason(answer)) == (7, 503, "draining")
            assert await ana.close_code() == GOING_AWAY
            assert await node.child.wait() == 0
