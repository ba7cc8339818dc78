"""A real node that has subscribed to a block list: it is applied within the interval, and lives as long as it says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import trio

from protofly.block_list import BlockedDomain, BlockList, sign_block_list
from protofly.signatures import SigningKey
from tests.support.rest_server import Said, rest_server

from .one_node import SETTINGS, Process, serving
from .systems import wait_until
from .test_accounts import command

KEY = SigningKey.from_seed("k", bytes(32))
LIST = """
[[block_list]]
author = "lists.example"
url = "{url}"
insecure_plaintext = true
keys = ["{key}"]
mode = "{mode}"
poll_seconds = 1.0
"""


def published(serial: int, *domains: str) -> bytes:
    entries = tuple(BlockedDomain(domain=domain, reason="spoofing") for domain in domains)
    now = time.time()
    made = BlockList(author="lists.example", serial=serial, issued=now, expires=now + 600, entries=entries)
    return sign_block_list(made, KEY)


async def blocked(folder: Path) -> list[tuple[str, str]]:
    rows = (await command(folder, "restrictions"))["rows"]
    return [(row["subject"], row["by"]) for row in rows]


async def shown(node: Process) -> dict[str, Any]:
    found: dict[str, Any] = (await node.status())["block_lists"][0]
    return found


@pytest.mark.long
async def test_a_list_is_reported_first_then_enforced_and_ends_when_it_says_so(tmp_path: Path) -> None:
    body = [published(1, "evil.example")]
    async with rest_server(lambda _: Said(200, body[0])) as server:

        def settings(mode: str) -> str:
            return SETTINGS.format(grace=120) + LIST.format(url=server.url, key=KEY.record().pub, mode=mode)

        with trio.fail_after(120):
            async with serving(tmp_path, settings("report")) as node:
                status = await wait_until(lambda: shown(node), lambda one: one["serial"] == 1)
                assert (status["domains"], status["mode"], status["problem"]) == (["evil.example"], "report", "")
                assert await blocked(tmp_path) == []
            async with serving(tmp_path, settings("enforce")) as node:
                await wait_until(lambda: blocked(tmp_path), lambda rows: bool(rows))
                assert await blocked(tmp_path) == [("evil.example", "block list of lists.example")]
                body[0] = published(2)
                await wait_until(lambda: blocked(tmp_path), lambda rows: not rows)
                body[0] = b"nonsense"
                status = await wait_until(lambda: shown(node), lambda one: bool(one["problem"]))
                assert status["problem"].startswith("envelope-malformed")
