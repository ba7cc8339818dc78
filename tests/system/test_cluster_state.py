"""What two node processes of one domain share besides sessions and work: users, clients, wake-ups, rules of queues."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from typer.testing import CliRunner

from protofly.errors import Code
from stubkit.keys import KeyRing, make_key, save_keys
from tests.peers.qos_broker import QosBrokerPeer
from tests.support.postgres import PASSWORD as ENGINE_PASSWORD
from tests.support.postgres import Postgres
from tests.support.rest_server import RestServer, Said, rest_server
from tests.support.runtime_rig import SESSION, Runtime, a_message, code_and_reason
from trapezoid.commands import app

from .one_node import Process
from .pair import AGENT, Pair

QOS = "domain://qos.alpha.example"
IDM = "domain://idm.alpha.example"
PUSH = "domain://msg-node.alpha.example/push"
TWIN = "domain://msg-node.alpha.example/twin"
LAMP = f"{AGENT}/lamp-1"
BO = "hyperty://alpha.example/h-bo"
PATIENCE_SECONDS = 60
PASSWORD = "correct horse"


def with_accounts_and_push(folder: Path, url: str) -> str:
    return (
        f'[identity.tokens]\nkeys_dir = "{folder / "keys"}"\n'
        "[identity.passwords]\nmemory_kib = 19456\npasses = 2\n"
        f'[push]\nkey = "{folder / "push.pem"}"\nsubject = "mailto:ops@alpha.example"\n'
        f'[[push.service]]\nurl = "{url}"\ninsecure_plaintext = true\n'
    )


async def user(pair: Pair, name: str, *arguments: str) -> None:
    """Change local users by a command that no node runs."""
    given = ["user", *arguments, "--config", str(pair.config_of(name))]
    result = await trio.to_thread.run_sync(partial(CliRunner().invoke, app, given, input=f"{PASSWORD}\n"))
    assert result.exit_code == 0, result.output


async def log_in(runtime: Runtime) -> tuple[int, str]:
    credentials = {"kind": "password", "user": "ana", "password": PASSWORD}
    return code_and_reason(
        await runtime.ask("execute", IDM, {"method": "login", "params": {"credentials": credentials}})
    )


async def opens(node: Process, name: str, token: str) -> tuple[int, str]:
    runtime = await node.runtime()
    return code_and_reason(await runtime.open(name, {"credentials": {"kind": "bearer", "token": token}}))


async def until(answer: Callable[[], Awaitable[tuple[int, str]]], wanted: tuple[int, str]) -> None:
    """Ask again until another node has heard of a change."""
    with trio.fail_after(PATIENCE_SECONDS):
        while await answer() != wanted:  # noqa: ASYNC110  another process decides
            await trio.sleep(0.1)


async def users_are_those_of_the_domain(pair: Pair, ana: Runtime, bo: Runtime) -> None:
    await user(pair, "n1", "add", "ana", "--stdin")
    assert await log_in(ana) == (200, "")
    assert await log_in(bo) == (200, ""), "at the other node, at once"
    await pair.asked("n2", "user disable", name="ana")
    assert await log_in(ana) == (401, "bad-token")


async def state_of(pair: Pair, name: str) -> tuple[int, str]:
    """Of the client gauge, as a node knows it."""
    states = [one["state"] for one in (await pair.asked(name, "clients"))["rows"] if one["client"] == "gauge"]
    return len(states), states[0]


async def clients_are_those_of_the_domain(pair: Pair, one: Process, two: Process) -> None:
    token = (await pair.asked("n1", "client add", name="meter", kind="agent"))["answer"]["token"]
    await until(partial(opens, two, "meter", token), (200, ""))
    code = (await pair.asked("n2", "client enrol", name="gauge", kind="device"))["answer"]["code"]
    await until(partial(opens, one, "gauge", code), (200, ""))
    gauge = await one.runtime()
    await gauge.open("gauge", {"credentials": {"kind": "bearer", "token": code}})
    assert (await gauge.ask("execute", IDM, {"method": "enrol"}))["body"]["code"] == 200
    await until(partial(state_of, pair, "n2"), (1, "enabled"))
    await pair.asked("n2", "client remove", name="meter")
    await until(partial(opens, one, "meter", token), (401, "bad-token"))


async def expires(asker: Runtime, to: str) -> tuple[int, str]:
    """How long an action waits, to half a minute, for an agent that is away."""
    sent = await asker.ask("execute", to, {"class": "action", "method": "ring"})
    if sent["body"]["code"] != 202:
        return code_and_reason(sent)
    found = await asker.ask("read", "domain://msg-node.alpha.example/delivery", {"resource": sent["body"]["requestId"]})
    return round((found["body"]["value"]["expires"] - time.time()) / 30), ""


async def parked(asker: Runtime, to: str) -> tuple[int, str]:
    return (await asker.ask("execute", to, {"class": "action", "method": "ring"}))["body"]["code"], ""


async def rules_and_wake_ups_count_where_an_action_is_parked(ana: Runtime, bo: Runtime, server: RestServer) -> None:
    """An agent says at its node how long it lets things wait, and where to wake it; then it goes."""
    await bo.subscribed(AGENT)
    await bo.subscribed(BO)
    announced = await bo.ask("create", TWIN, {"resource": AGENT, "queue": {"expires": 60}})
    assert announced["body"]["code"] == 200
    subscription = {"endpoint": f"{server.url}/send/bo"}
    kept = await bo.ask("create", PUSH, {"resource": BO, "value": subscription})
    assert code_and_reason(kept) == (200, "")
    await bo.say(a_message("close", bo.session_address, SESSION, id_=9))
    assert await bo.close_code() == 1000
    await until(partial(expires, ana, f"{LAMP}/actions/switch"), (2, ""))
    await until(partial(parked, ana, BO), (202, ""))
    with trio.fail_after(PATIENCE_SECONDS):
        while not [one for one in server.asked if one.target == "/send/bo"]:  # noqa: ASYNC110
            await trio.sleep(0.1)


@pytest.mark.long
async def test_users_clients_wake_ups_and_rules_of_queues_are_those_of_the_domain(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", ENGINE_PASSWORD)
    save_keys(KeyRing(token=(make_key("token"),)), tmp_path / "keys")
    command = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(tmp_path / "push.pem")]
    await trio.run_process(command)
    (tmp_path / "push.pem").chmod(0o600)
    async with rest_server(lambda _: Said(201)) as server:
        further = with_accounts_and_push(tmp_path, server.url)
        pair = Pair(tmp_path, engine, engine.new_database(), further)
        async with pair.node("n1", seconds=300) as one, pair.node("n2", seconds=300) as two:
            ana, bo = await one.opened("ana"), await two.opened("bo")
            await users_are_those_of_the_domain(pair, ana, bo)
            await clients_are_those_of_the_domain(pair, one, two)
            await rules_and_wake_ups_count_where_an_action_is_parked(ana, bo, server)


async def reserves(runtime: Runtime, video: int) -> tuple[int, str]:
    wanted = {"cspId": "prov-alpha", "clientName": "ana", "video": video, "ttl": 600}
    return code_and_reason(await runtime.ask("create", QOS, {"resource": "/reservations", "value": wanted}))


async def grants_again(runtime: Runtime, video: int) -> tuple[int, str]:
    """Reserve until the lease of the node that granted is over."""
    with trio.fail_after(PATIENCE_SECONDS):
        while (answer := await reserves(runtime, video))[0] == Code.NOT_CONNECTED.status:
            pass
    return answer


async def test_two_nodes_reserve_no_more_than_a_quota_also_when_the_one_that_grants_was_killed(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", ENGINE_PASSWORD)
    async with rest_server(QosBrokerPeer()) as broker:
        further = f'[qos]\nurl = "{broker.url}"\ninsecure_plaintext = true\n'
        pair = Pair(tmp_path, engine, engine.new_database(), further)
        async with pair.node("n2") as two:
            bo = await two.opened("bo")
            async with pair.node("n1") as one:
                ana = await one.opened("ana")
                assert (await reserves(ana, 500))[0] == 200
                assert await reserves(bo, 501) == (429, "quota")
                assert (await reserves(bo, 400))[0] == 200
                assert await reserves(ana, 101) == (429, "quota")
                one.child.kill()
                await one.child.wait()
            assert await grants_again(bo, 101) == (429, "quota")
            assert (await reserves(bo, 100))[0] == 200
