"""The compose file of a cluster: three nodes as it describes them, over a PostgreSQL, serve one domain together.

Its services run as processes of this machine, with the files that `prepare.sh` makes, the settings beside it and the
environment of each service. What differs is what one machine has once only: ports, data folders, and names that the
network of a compose file would give. `test_container.py` shows the image itself.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from interop.free_ports import free_ports
from tests.support.postgres import Postgres, needs_postgres
from tests.support.runtime_rig import Runtime, Wire
from tests.trapezoid.test_compose_files import nodes, prepared, services
from wire.core.websocket import ClientWebSocket

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(900)]

PROGRAM = str(Path(sys.executable).with_name("trapezoid"))
PATIENCE_SECONDS = 240
ALLOCATION = "domain://msg-node.a.example/address-allocation"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared("cluster", tmp_path_factory.mktemp("compose")) / "made"


@pytest.fixture(scope="module")
def engine(scene: Path) -> Iterator[str]:
    """The database of the service `engine`, with the password that was made; its URL."""
    needs_postgres()
    wanted = services("cluster")["engine"]["environment"]
    password = (scene / "engine-password").read_text()
    with tempfile.TemporaryDirectory(prefix="trapezoid-pg-") as files:
        server = Postgres(Path(files))
        server.create(password)
        server.start()
        try:
            options = ["--owner", wanted["POSTGRES_USER"], "--encoding", "UTF8", "--locale", "C"]
            place = ["--host", "127.0.0.1", "--port", str(server.port), "--username", wanted["POSTGRES_USER"]]
            command = [str(server.programs / "createdb"), *place, *options, wanted["POSTGRES_DB"]]
            subprocess.run(command, env={**os.environ, "PGPASSWORD": password}, check=True, timeout=60)
            yield f"postgresql://{wanted['POSTGRES_USER']}@127.0.0.1:{server.port}/{wanted['POSTGRES_DB']}"
        finally:
            server.stop()


def environments(folder: Path, engine: str) -> dict[str, dict[str, str]]:
    """What each node of the file is given, with places that one machine has three times."""
    found = {}
    for name, one in nodes("cluster").items():
        listen, site, cluster = free_ports(3)
        found[name] = {
            **one["environment"],
            "TRAPEZOID__CLUSTER__LISTEN": f"127.0.0.1:{cluster}",
            "TRAPEZOID__LISTEN__PORT": str(listen),
            "TRAPEZOID__SITE__PORT": str(site),
            "TRAPEZOID__NODE__DATA_DIR": str(folder / name),
            "TRAPEZOID__STORAGE__ENGINE": engine,
            "TRAPEZOID__SESSIONS__ANONYMOUS": "true",
        }
        (folder / name).mkdir()
    return found


async def listed(config: str, environment: dict[str, str]) -> str:
    """What the command in the head of the file prints."""
    command = [PROGRAM, "node", "list", "--config", config]
    done = await trio.run_process(
        command, env={**os.environ, **environment}, capture_stdout=True, capture_stderr=True, check=False
    )
    return done.stdout.decode()


@asynccontextmanager
async def opened(environment: dict[str, str], name: str) -> AsyncIterator[Runtime]:
    """A runtime with a session at that node, through its TLS."""
    port = int(environment["TRAPEZOID__LISTEN__PORT"])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", port), context) as stream:
        runtime = Runtime(Wire(stream), ClientWebSocket(f"wss://a.example:{port}/ws", is_binary=False))
        await runtime.shake_hands()
        runtime.address = f"runtime://a.example/{name}"
        assert (await runtime.ask("open", "mn:/session", {}))["body"]["code"] == 200
        yield runtime


async def address_of(runtime: Runtime) -> str:
    reply = await runtime.ask("create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}})
    return str(reply["body"]["value"]["allocated"][0])


async def test_three_nodes_of_the_file_serve_one_domain_and_end_with_0(
    scene: Path, engine: str, tmp_path: Path
) -> None:
    config, given = str(scene / "etc" / "node.toml"), environments(tmp_path, engine)
    running: list[trio.Process] = []
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            for environment in given.values():
                command = [PROGRAM, "serve", "--config", config]
                running.append(await trio.lowlevel.open_process(command, env={**os.environ, **environment}))
            first, *_, last = given.values()
            while (await listed(config, first)).count("running") < len(given):
                assert [one.poll() for one in running] == [None] * len(given)
            async with opened(first, "ana") as ana, opened(last, "bob") as bob:
                from_, to = await address_of(ana), await address_of(bob)
                await ana.say({"id": "1", "type": "create", "from": from_, "to": to, "body": {"value": "hello"}})
                assert (await bob.next())["from"] == from_
                await bob.say({"id": "1", "type": "response", "from": to, "to": from_, "body": {"code": 200}})
                assert (await ana.next())["body"]["code"] == 200
            for one in running:
                one.terminate()
                nursery.start_soon(one.wait)
    assert [one.returncode for one in running] == [0] * len(given)
