"""Connectors that are stubs: they answer what they are asked, under their own address, and nothing else gets out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from federation.core.stub_grant import WHOLE_GRANT
from federation.stubs.chosen_stubs import InstanceTerms
from federation.stubs.stub_provider import Package
from msg_node.backends.connector_stubs import ConnectorStub
from msg_node.backends.core.connector_requests import ConnectorQuestion, connector_service
from msg_node.kernel.service import Answer, Caller, Inquiry, ServiceRequest
from protofly import codec
from protofly.documents import Permissions
from protofly.errors import Code, HostError, PeerError, StubFaultError
from sandbox.core.budget import Budget
from sandbox.core.exchange import Action, Event, GuestEvent
from tests.federation.test_stub_grant import verified_stub
from tests.support.scripted_stub import ScriptedProcess, act

ADDRESS = "domain://registry.a.example"
QUESTION = ConnectorQuestion("read", "runtime://a.example/anna", b'{"resource":"/x"}')
Says = Callable[[dict[str, Any]], list[Any]]


def answer(asked: dict[str, Any], **changes: object) -> bytes:
    whole = {
        "id": asked["id"],
        "type": "response",
        "from": ADDRESS,
        "to": asked["from"],
        "body": {"code": 200, "value": 5},
    }
    return json.dumps(whole | changes).encode()


def process_that(says: Says) -> ScriptedProcess:
    """A connector that is live at once and answers each request with what `says` returns."""

    def script(event: GuestEvent) -> Any:
        if event.op == Event.START:
            return [act(Action.STATUS, 0, "live")]
        if event.op != Event.MESSAGE:
            return ()
        said = says(json.loads(event.payload))
        if any(isinstance(one, Exception) for one in said):
            return said[0]
        return [*[one if not isinstance(one, bytes) else act(Action.DELIVER, 0, one) for one in said]]

    return ScriptedProcess(script)


@asynccontextmanager
async def connector(*says: Says) -> AsyncIterator[ConnectorStub]:
    """A connector that runs; its instances are these, one after the other, then the last one again."""
    processes = [process_that(one) for one in says]

    async def package(*_: object, **__: object) -> Package:
        await trio.lowlevel.checkpoint()
        stub = verified_stub(permissions=Permissions(connect=["mn"]))
        return Package(stub, b"", InstanceTerms(configuration={}, grant=WHOLE_GRANT, budget=Budget()))

    async def start_worker(*_: object) -> ScriptedProcess:
        await trio.lowlevel.checkpoint()
        return processes.pop(0) if len(processes) > 1 else processes[0]

    identity = SimpleNamespace(domain="a.example", node="runtime://a.example/mn-1")
    host = SimpleNamespace(start_worker=start_worker, opener=None, identity=identity)
    made = ConnectorStub("registry.a.example", cast("Any", SimpleNamespace(package=package)), cast("Any", host))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        with trio.fail_after(60):
            yield made
        nursery.cancel_scope.cancel()


async def test_request_gets_the_connectors_answer(autojump_clock: trio.testing.MockClock) -> None:
    async with connector(lambda asked: [answer(asked)]) as made:
        assert await made.port.ask(QUESTION) == {"code": 200, "value": 5}
        assert [await made.port.ask(QUESTION) for _ in range(2000)][-1]["value"] == 5
    assert (made.port.answered, made.port.dropped, len(made.port.queue._under_way)) == (2001, 0, 0)


@pytest.mark.parametrize(
    "forged",
    [
        {"from": "domain://idm.a.example"},
        {"from": "runtime://a.example/anna"},
        {"from": "domain://registry.a.example.evil.example"},
        {"from": ADDRESS + "/"},
        {"type": "create", "to": "runtime://a.example/bob"},
        {"type": "update", "from": "comm://a.example/room/changes"},
        {"id": 77_777},
        {"id": "1"},
        {"body": [1]},
    ],
    ids=str,
)
async def test_what_is_no_answer_of_its_own_address_is_dropped(
    autojump_clock: trio.testing.MockClock, forged: dict[str, object]
) -> None:
    async with connector(lambda asked: [answer(asked, **forged), b"\xff{", b"[" * 5000, answer(asked)]) as made:
        assert await made.port.ask(QUESTION) == {"code": 200, "value": 5}
    assert made.port.dropped == 3


async def test_second_answer_and_answers_to_others_change_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with connector(lambda asked: [answer(asked), answer(asked, body={"code": 403})]) as made:
        assert (await made.port.ask(QUESTION))["code"] == 200


async def test_fault_answers_what_waits_with_its_code_and_the_next_instance_serves(
    autojump_clock: trio.testing.MockClock,
) -> None:
    trap = StubFaultError(Code.STUB_TRAPPED, "unreachable", domain="registry.a.example", fault="unreachable")
    async with connector(lambda _: [trap], lambda asked: [answer(asked)]) as made:
        with pytest.raises(HostError, check=lambda error: error.code is Code.STUB_TRAPPED):
            await made.port.ask(QUESTION)
        await trio.sleep(3)
        assert (await made.port.ask(QUESTION))["code"] == 200


async def test_connector_that_always_fails_is_left_alone_and_requests_are_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    trap = StubFaultError(Code.STUB_TRAPPED, "unreachable", domain="registry.a.example", fault="unreachable")
    async with connector(lambda _: [trap]) as made:
        codes = []
        for _ in range(12):
            with pytest.raises(HostError) as caught:
                await made.port.ask(QUESTION)
            codes.append(caught.value.code)
            await trio.sleep(4)
        assert set(codes) == {Code.STUB_TRAPPED}
        assert made.status()["state"] == "quarantined"


async def test_refusal_reaches_the_asker_with_its_code(autojump_clock: trio.testing.MockClock) -> None:
    number = iter(range(1, 9))
    refuse: Says = lambda _: [act(Action.REFUSED, next(number), "503 overload all lines are busy")]  # noqa: E731
    async with connector(refuse) as made:
        with pytest.raises(HostError, match="all lines are busy", check=lambda error: error.code is Code.OVERLOAD):
            await made.port.ask(QUESTION)


async def test_asker_that_gives_up_leaves_nothing_behind(autojump_clock: trio.testing.MockClock) -> None:
    async with connector(lambda _: []) as made:
        for _ in range(1500):
            with trio.move_on_after(0.01):
                await made.port.ask(QUESTION)
        assert (len(made.port._requests), len(list(made.port.queue))) == (0, 0)


# Whom it serves, and what its answers may say.


def request_of(caller: Caller) -> ServiceRequest:
    message = codec.build(id=1, type="read", from_="runtime://a.example/anna", to=ADDRESS, body={"resource": "/x"})
    return ServiceRequest(message, caller, "a.example", 0.0, b"")


@pytest.mark.parametrize("caller", [Caller(-1, "b.example"), Caller(3, is_guest=True)])
def test_other_domains_are_served_only_if_the_settings_say_so(caller: Caller) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.POLICY):
        connector_service("registry", serves_domains=False)(request_of(caller))
    assert isinstance(connector_service("registry", serves_domains=True)(request_of(caller)), Inquiry)


def concluded(body: object) -> Answer:
    inquiry = cast("Inquiry", connector_service("registry", serves_domains=False)(request_of(Caller(3))))
    made = inquiry.conclude(body, 0.0)
    assert isinstance(made, Answer)
    return made


def test_answer_cannot_set_what_only_nodes_set() -> None:
    body = {
        "code": 404,
        "desc": "no",
        "reason": "gone",
        "auth": True,
        "via": ["x"],
        "trace": 1,
        "identity": {},
        "assertedIdentity": {"email": "ana@a.example"},
        "sessionToken": "t",
        "late": False,
        "page": 2,
    }
    made = concluded(body)
    assert (made.code, made.description, made.reason, made.members) == (404, "no", "gone", {"page": 2})


@pytest.mark.parametrize("code", [True, "200", 100, 199, 600, -1, 2.0, None, [200]])
def test_answer_without_a_usable_code_is_a_bad_reply(code: object) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_REPLY):
        concluded({"code": code})
