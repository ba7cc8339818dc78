"""A real node process wakes a runtime that is away, killed and started again in between."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.support.rest_server import Said, rest_server
from tests.support.runtime_rig import DOMAIN, code_and_reason

from .one_node import SETTINGS, serving
from .systems import wait_until

BO = f"hyperty://{DOMAIN}/h-bo"
PUSH = f"domain://msg-node.{DOMAIN}/push"


@pytest.mark.long
async def test_a_runtime_that_is_away_is_woken_by_the_key_of_the_documentation(tmp_path: Path) -> None:
    key = tmp_path / "push.pem"
    command = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)]
    await trio.run_process(command)
    key.chmod(0o600)
    async with rest_server(lambda _: Said(201)) as server:
        settings = SETTINGS.format(grace=120) + (
            '[push]\nkey = "push.pem"\nsubject = "mailto:ops@alpha.example"\n'
            f'[[push.service]]\nurl = "{server.url}"\ninsecure_plaintext = true\n'
        )
        async with serving(tmp_path, settings) as node:
            bo = await node.opened("bo")
            await bo.subscribed(BO)
            value = {"endpoint": f"{server.url}/send/bo"}
            assert code_and_reason(await bo.ask("create", PUSH, {"resource": BO, "value": value})) == (200, "")
            public = (await bo.ask("read", PUSH))["body"]["value"]["publicKey"]
            node.kill()
            await node.child.wait()
        async with serving(tmp_path, settings) as node:
            ana = await node.opened("ana")
            waits = await ana.ask("execute", BO, {"class": "action", "method": "ring"})
            assert waits["body"]["code"] == 202

            async def asked() -> list[str]:
                return [
                    f"{one.method} {one.target} {one.headers['authorization'].partition(' k=')[2]}"
                    for one in server.asked
                ]

            await wait_until(asked, lambda calls: calls == [f"POST /send/bo {public}"])
