"""Two hundred domains that publish nothing, each with a live stub: what they cost while nothing happens."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx
import pytest
import trio

from benchmarks.process_time import cpu_ns, private_kib, process_tree
from interop.processes import Child
from tests.support.status_token import AS_OPERATOR, STATUS_TOKEN_SHA256

DOMAINS = 200
WORKER_KIB = 15 * 1024
IDLE_CORES = 0.02
IDLE_SECONDS = 30.0
LIVE_SECONDS = 600.0
SETTINGS = f"""
[node]
domain = "alpha.example"
data_dir = "data"
[listen]
port = 0
insecure_plaintext = true
[site]
port = 0
insecure_plaintext = true
status_token_sha256 = "{STATUS_TOKEN_SHA256}"
"""
PEER = """
[[peer]]
domain = "p{number}.example"
stub = "vertx_peer"
endpoint = "ws://127.0.0.1:{port}/ws"
class = "plain"
stay_connected = true
insecure_plaintext = true
allow_addresses = ["127.0.0.0/8"]
"""


@pytest.mark.endurance
async def test_two_hundred_live_stubs_are_small_and_idle(tmp_path: Path) -> None:
    theirs = Child(["benchmarks.foreign_node", "p.example"], log_file=tmp_path / "theirs.log")
    ours = Child(["trapezoid", "serve", "--config", str(tmp_path / "node.toml")], log_file=tmp_path / "ours.log")
    try:
        await theirs.start()
        port = (await theirs.wait_ready())["port"]
        peers = "".join(PEER.format(number=number, port=port) for number in range(DOMAINS))
        (tmp_path / "node.toml").write_text(SETTINGS + peers)
        await ours.start()
        ready = await ours.wait_ready()
        workers = await live_workers(str(ready["site"]))
        kib = sorted(private_kib(pid) for pid in workers)
        tree = process_tree(ours.pid)
        began, spent = trio.current_time(), cpu_ns(tree)
        await trio.sleep(IDLE_SECONDS)
        cores = (cpu_ns(tree) - spent) / 1e9 / (trio.current_time() - began)
    finally:
        await ours.stop()
        await theirs.stop()
    figures = {"workers": len(kib), "median_kib": kib[len(kib) // 2], "largest_kib": kib[-1], "idle_cores": cores}
    sys.stdout.write(json.dumps(figures) + "\n")
    assert len(kib) == DOMAINS
    assert kib[-1] <= WORKER_KIB
    assert cores <= IDLE_CORES


async def live_workers(site: str) -> list[int]:
    """Process ids of the workers, once all links are live."""
    live: list[int] = []
    async with httpx.AsyncClient(trust_env=False, headers=AS_OPERATOR, timeout=60.0) as client:
        with trio.fail_after(LIVE_SECONDS):
            while len(live) < DOMAINS:
                await trio.sleep(1.0)
                links = (await client.get(f"{site}/status")).json()["links"]
                live = [one["worker_pid"] for one in links if one["state"] == "live"]
    return live
