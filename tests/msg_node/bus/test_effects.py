"""When answers leave: never before what they report is durable, whether they changed it themselves or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from msg_node.storage import state_store
from protofly.errors import Code, HostError
from tests.msg_node.requests.test_actions import action, an_agent, answer_to
from tests.msg_node.requests.test_outbox import BO, from_them, sent
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    SM,
    RuntimeRig,
    a_message,
    code_and_reason,
    commits_held,
    runtime_rig,
)

REGISTRY = f"domain://registry.{DOMAIN}"
HYPERTY = f"hyperty://{DOMAIN}/h-1"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


async def test_repetitions_and_reads_are_answered_when_what_they_report_is_durable(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    interest = {"resources": [HYPERTY], "source": ana.address}
    requests = [
        a_message("subscribe", ana.address, SM, interest, id_=1),
        a_message("subscribe", ana.address, SM, interest, id_=2),  # it has what it wants
        a_message("unsubscribe", ana.address, SM, {"resources": ["comm://alpha.example/nothing"]}, id_=3),
        action(ana.address, 4),
        action(ana.address, 4),  # one answer is enough
        a_message("read", ana.address, f"domain://msg-node.{DOMAIN}/delivery", {}, id_=5),
    ]
    with commits_held(rig):
        await ana.say(*requests)
        assert await ana.heard() == []
        await bo.say(a_message("read", bo.address, REGISTRY, {"resource": HYPERTY}, id_=6))
        assert await bo.heard() == []
    replies = [await ana.next() for _ in range(5)]
    assert [one["id"] for one in replies] == [1, 2, 3, 4, 5]
    assert [one["body"]["code"] for one in replies] == [200, 200, 200, 202, 200]
    assert await ana.heard() == []
    assert (await bo.next())["id"] == 6
    await ana.say(action(ana.address, 4))
    assert (await ana.next())["body"] == replies[3]["body"]


async def test_an_end_that_is_not_durable_is_not_repeated(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    await ana.say(action(ana.address, 1))
    request_id = (await ana.next())["body"]["requestId"]
    agent = await an_agent(rig)
    taken = await agent.next()
    with commits_held(rig):
        await agent.say(answer_to(taken, {"code": 200, "value": 7}))
        await agent.heard()
        await ana.say(action(ana.address, 1))
        assert await ana.heard() == []
    said = [await ana.next() for _ in range(2)]
    assert {one["type"] for one in said} == {"response", "update"}
    assert {one["body"]["requestId"] for one in said} == {request_id}
    assert {one["body"]["status"] for one in said} == {"completed"}


async def test_another_domain_hears_how_its_request_stands_when_that_is_durable(rig: RuntimeRig) -> None:
    request = action(BO, 5, requestId="d-0123456789", ttl=60)
    with commits_held(rig):
        assert from_them(rig, request, request) == [None, None]
        await (await rig.runtime()).heard()
        assert rig.domains.take() == []
    assert [one["body"]["code"] for one in await sent(rig)] == [202]
    agent = await an_agent(rig)
    taken = await agent.next()
    with commits_held(rig):
        await agent.say(answer_to(taken, {"code": 200, "value": 7}))
        await agent.heard()
        from_them(rig, request)
        await agent.heard()
        assert rig.domains.take() == []
    assert {one["type"] for one in await sent(rig, 2)} == {"update", "response"}


class Refusing:
    """Rows on a disk that is full."""

    def __init__(self, rig: RuntimeRig) -> None:
        self._rows = rig.store._rows
        self.load, self.close, self.scrub = self._rows.load, self._rows.close, self._rows.scrub
        self.is_full = True

    def commit(self, rows: object) -> None:
        if self.is_full:
            raise HostError(Code.STORAGE, "no space left")
        self._rows.commit(rows)  # type: ignore[arg-type]


async def test_while_the_disk_refuses_repetitions_are_refused_and_reads_go_on(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_store, "STATE_RETRY_SECONDS", 0.02)
    ana = await rig.opened("ana")
    rig.store._rows = disk = Refusing(rig)
    for _ in range(2):  # the second time it is there already, in memory
        assert code_and_reason(await ana.subscribed(HYPERTY)) == (500, "storage")
    assert (await ana.ask("read", REGISTRY, {"resource": HYPERTY}))["body"]["code"] == 404
    inbox = await ana.ask("read", f"domain://msg-node.{DOMAIN}/inbox", {})
    assert code_and_reason(inbox) == (500, "storage")
    disk.is_full = False
    reply = await ana.ask("create", ALLOCATION, {"scheme": "comm"})
    while reply["body"]["code"] != 200:  # the next attempt may be under way
        reply = await ana.ask("create", ALLOCATION, {"scheme": "comm"})
    assert (await ana.subscribed(HYPERTY))["body"]["code"] == 200
