"""A real node process and its stubs cache on disk: what is too much goes before the node says that it is ready."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx
import pytest

from tests.support.status_token import AS_OPERATOR

from .one_node import SETTINGS, serving

SANDBOX = """
[sandbox]
cache_bytes = 300
"""


@pytest.mark.long
async def test_a_node_brings_a_cache_that_is_too_large_within_its_room_and_says_so(tmp_path: Path) -> None:
    modules = tmp_path / "data" / "stubs" / "modules"
    modules.mkdir(parents=True)
    for hours in range(5):
        module = modules / (f"{hours}" * 64)
        module.write_bytes(bytes(100))
        used_at = time.time() - 3_600 * hours
        os.utime(module, (used_at, used_at))
    async with (
        serving(tmp_path, SETTINGS.format(grace=120) + SANDBOX) as node,
        httpx.AsyncClient(trust_env=False, headers=AS_OPERATOR) as client,
    ):
        status = (await client.get(f"{node.ready['site']}/status")).json()
    cache = status["cache"]
    assert (status["twin"]["values_refused"], status["discovery"]["lookups"]) == (0, 0)
    assert status["policy_faults"] == {"count": 0, "last": ""}
    assert (cache["evictions"], cache["size_bytes"]) == (2, 300)
    assert sorted(path.name[0] for path in modules.iterdir()) == ["0", "1", "2"]
