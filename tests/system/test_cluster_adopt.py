"""A node that had its state in files gets an engine: what it acknowledged before is at the nodes of the domain."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import trio
from typer.testing import CliRunner

from msg_node.identity.core.issued_tokens import TokenMark
from msg_node.identity.engine_token_marks import EngineTokenMarks
from msg_node.identity.token_store import TokenStore
from msg_node.settings.load import load_settings
from msg_node.settings.storage import engine_options
from msg_node.storage.engine import Engine
from tests.support.runtime_rig import SM, Runtime, a_message, code_and_reason
from tests.system.one_node import Process, serving
from tests.system.pair import AGENT, Pair
from tests.system.test_cluster_nodes import PATIENCE_SECONDS, came_back, in_both_directions, next_of
from trapezoid.commands import app

REVOKED = TokenMark("login-1", "ana", 7, 4e9)


@dataclass
class Before:
    """What a node with files acknowledged before it was killed."""

    ana: Runtime
    bo: Runtime
    to_ana: str
    to_bo: str
    thing: str
    request_id: str


async def killed_with_files(pair: Pair, folder: Path) -> Before:
    """Run node n1 with its state in files, and kill it."""
    (folder / "n1").mkdir()
    embedded = pair.settings("n1").split("[storage]")[0]
    async with serving(folder / "n1", embedded) as process:
        ana, bo, spam = [await process.opened(name) for name in ("ana", "bo", "spam")]
        to_ana, to_bo, thing = await ana.allocated(), await bo.allocated(), await ana.allocated("comm")
        assert (await bo.subscribed(f"{thing}/changes"))["body"]["code"] == 200
        body = {"class": "action", "method": "x"}
        parked = await ana.ask("execute", f"{AGENT}/lamp-1/actions/switch", body)
        assert parked["body"]["code"] == 202
        await pair.asked("n1", "kick", runtime=spam.address, ban="1h", reason="spam")
        process.kill()
    with_tokens = TokenStore(pair.data_of("n1") / "tokens.sqlite")
    with_tokens.keep(REVOKED, now=0.0)
    with_tokens.close()
    (folder / "n1" / "node.toml").write_text(pair.settings("n1"))
    return Before(ana, bo, to_ana, to_bo, thing, parked["body"]["requestId"])


def adopt(pair: Pair, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["state", "adopt", "--json", "--config", str(pair.config_of("n1")), *words])
    return done.exit_code, done.output


def adopted_tokens(pair: Pair) -> list[TokenMark]:
    options = engine_options(load_settings(pair.config_of("n1")))
    assert options is not None
    marks = EngineTokenMarks(Engine(options))
    try:
        return marks.load()
    finally:
        marks.close()


async def is_all_there(before: Before, at_ana: Process, at_bo: Process) -> None:
    """Sessions come back with tokens, addresses and subscriptions; the parked action comes once; who was banned is."""
    ana, bo = await came_back(before.ana, at_ana), await came_back(before.bo, at_bo)
    await in_both_directions(ana, bo, before.to_ana, before.to_bo)
    await ana.say(a_message("update", before.thing, f"{before.thing}/changes", {"value": 1}))
    assert (await next_of(bo, "update"))["body"]["value"] == 1
    agent = await at_bo.opened("lamps")
    with trio.fail_after(PATIENCE_SECONDS):
        await agent.say(a_message("subscribe", agent.address, SM, {"resources": [AGENT]}, id_=6))
        parked = await next_of(agent, "execute")
        assert parked["body"]["requestId"] == before.request_id
        done = {"code": 200, "class": "action", "status": "completed", "requestId": before.request_id}
        await agent.say(a_message("response", parked["to"], parked["from"], done, id_=parked["id"]))
        body = {"class": "action", "method": "newer"}
        await ana.say(a_message("execute", ana.address, f"{AGENT}/lamp-1/actions/switch", body, id_=77))
        assert (await next_of(agent, "execute"))["body"]["method"] == "newer", "the one before came once"
    assert code_and_reason(await (await at_bo.runtime()).open("spam")) == (403, "runtime-barred")


async def test_state_of_a_killed_node_with_files_is_at_all_nodes_after_it_was_adopted(
    pair: Pair, tmp_path: Path
) -> None:
    before = await killed_with_files(pair, tmp_path)
    code, output = await trio.to_thread.run_sync(adopt, pair)
    assert code == 0, output
    found = json.loads(output)
    assert (found["sessions"], found["parked"], found["tokens"]) == (2, 1, 1)
    assert adopted_tokens(pair) == [REVOKED]
    assert (pair.data_of("n1") / "state.sqlite.adopted").is_file()
    assert "sessions" not in json.loads((await trio.to_thread.run_sync(adopt, pair))[1]), "nothing is left"
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(pair.node("n1"))
        two = await stack.enter_async_context(pair.node("n2"))
        await is_all_there(before, two, one)


async def test_state_of_a_node_that_has_served_with_the_engine_already_is_adopted_under_another_name(
    pair: Pair, tmp_path: Path
) -> None:
    before = await killed_with_files(pair, tmp_path)
    async with AsyncExitStack() as stack:
        async with pair.node("n1") as one:
            new = await one.opened("new")
            code, output = await trio.to_thread.run_sync(adopt, pair)
            assert (code, "stop it first" in output) == (2, True), output
            one.kill()
        code, output = await trio.to_thread.run_sync(adopt, pair)
        assert (code, "engine-taken" in output) == (2, True), output
        code, output = await trio.to_thread.run_sync(adopt, pair, "--as", "n0")
        assert code == 0, output
        one = await stack.enter_async_context(pair.node("n1"))
        two = await stack.enter_async_context(pair.node("n2"))
        await came_back(new, one)
        await is_all_there(before, one, two)


async def test_state_that_was_adopted_before_a_failure_is_not_adopted_again(pair: Pair, tmp_path: Path) -> None:
    """The process may have died between the engine's commit and the new name of the file."""
    await killed_with_files(pair, tmp_path)
    state = pair.data_of("n1") / "state.sqlite"
    content = state.read_bytes()
    assert (await trio.to_thread.run_sync(adopt, pair))[0] == 0
    state.write_bytes(content)
    code, _ = await trio.to_thread.run_sync(adopt, pair, "--as", "n0")
    assert code == 0
    options = engine_options(load_settings(pair.config_of("n1")))
    assert options is not None
    engine = Engine(options)
    with engine.transaction() as connection:
        rows = connection.execute("SELECT DISTINCT node FROM trapezoid_row WHERE kind = 'sessions'").fetchall()
    engine.close()
    assert rows == [("n1",)]
