"""Alert rules and board, loaded into a real Prometheus that reads a real node."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from interop.free_ports import free_ports
from tests.support.monitoring import RULE_TESTS, RULES, expressions, names_used
from tests.support.status_token import AS_OPERATOR, STATUS_TOKEN

from .one_node import SETTINGS, serving
from .systems import wait_until

CONFIG = """
global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: [{rules}]
scrape_configs:
  - job_name: trapezoid
    authorization: {{ credentials: "{token}" }}
    static_configs: [{{ targets: ["{target}"] }}]
"""
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="apt-get install -y --no-install-recommends prometheus"
)


@needs_prometheus
def test_alert_rules_are_valid_and_fire_when_they_should() -> None:
    for words in (["check", "rules", str(RULES)], ["test", "rules", str(RULE_TESTS)]):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[httpx.AsyncClient]:
    """A Prometheus that reads one node, with our rules; a client of it."""
    config = folder / "prometheus.yml"
    await trio.Path(config).write_text(CONFIG.format(rules=RULES, token=STATUS_TOKEN, target=target))
    [port] = free_ports(1)
    options = [
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    quiet = partial(
        trio.run_process, ["prometheus", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quiet)
            async with httpx.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{port}") as client:
                yield client
            nursery.cancel_scope.cancel()


async def result_of(client: httpx.AsyncClient, path: str, **parameters: str) -> Any:
    """What the API answers; None while it does not answer yet."""
    try:
        answer = await client.get(path, params=parameters)
    except httpx.TransportError:
        return None
    return answer.json().get("data") if answer.status_code == 200 else None


@pytest.mark.long
@needs_prometheus
async def test_prometheus_reads_a_node_evaluates_all_rules_and_every_panel(tmp_path: Path) -> None:
    async with serving(tmp_path, SETTINGS.format(grace=60)) as node:
        await node.opened("ana")
        async with httpx.AsyncClient(trust_env=False, headers=AS_OPERATOR) as client:
            page = (await client.get(f"{node.ready['site']}/metrics")).text
        missing = [name for name in names_used() if f"# TYPE {name} " not in page]
        assert not missing, missing

        async with prometheus(tmp_path, node.ready["site"].removeprefix("http://")) as client:
            query = partial(result_of, client, "/api/v1/query")
            live = await wait_until(
                partial(query, query='trapezoid_sessions{state="live"}'),
                lambda data: bool(data and data["result"]),
                seconds=30,
            )
            assert live["result"][0]["value"][1] == "1"
            rules = await wait_until(
                partial(result_of, client, "/api/v1/rules"),
                lambda data: data is not None and all(one["health"] == "ok" for one in data["groups"][0]["rules"]),
                seconds=30,
            )
            assert {one["state"] for one in rules["groups"][0]["rules"]} == {"inactive"}
            refused = [one for one in expressions() if await query(query=one) is None]
            assert not refused, refused
