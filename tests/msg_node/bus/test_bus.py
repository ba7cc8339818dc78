"""The bus with everything real around it but other domains: order, owners and listeners, sources, loops, refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from federation.links.link_context import Refusal
from policy.core.session_class import SessionClass
from protofly.errors import Code
from protofly.message import Message
from tests.support.runtime_rig import (
    ALLOCATION,
    FOREIGN,
    NODE,
    SESSION,
    SM,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_address,
    runtime_rig,
)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


# Order and copies.


async def test_messages_of_one_sender_arrive_in_order_whatever_way_the_stream_is_cut(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    chat = [a_message("event", ana.address, bo.address, {"value": number}) for number in range(700)]
    ana.websocket.send(
        [
            b'{"type":"event","from":"%s","to":"%s","body":{"value":%d}}'
            % (ana.address.encode(), bo.address.encode(), number)
            for number in range(700)
        ]
    )
    stream = ana.websocket.data_to_send()
    for start in range(0, len(stream), 4099):
        await ana.wire.write(stream[start : start + 4099])
    received = [await bo.next() for _ in chat]
    assert received == chat


async def test_messages_of_two_senders_keep_the_order_of_each(rig: RuntimeRig) -> None:
    ana, bo, cleo = [await rig.opened(name) for name in ("ana", "bo", "cleo")]
    async with trio.open_nursery() as nursery:
        for sender in (ana, bo):
            burst = [a_message("event", sender.address, cleo.address, {"value": number}) for number in range(300)]
            nursery.start_soon(sender.say, *burst)
    received = [await cleo.next() for _ in range(600)]
    for sender in (ana, bo):
        assert [one["body"]["value"] for one in received if one["from"] == sender.address] == list(range(300))


async def test_a_runtime_gets_its_bytes_as_they_were_sent(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    text = '{"id" : 12 ,"type":"event",  "from":"%s","to":"%s","body":{ "x": 1.00, "é": "é" ,"x":2}}'
    exact = (text % (ana.address, bo.address)).encode()
    await ana.say_raw(exact)
    await ana.heard()
    data = await bo.wire.read()
    assert [bytes(one) for one in bo.websocket.receive(data)] == [exact]


async def test_each_recipient_of_a_list_gets_one_copy_with_the_same_id(rig: RuntimeRig) -> None:
    ana, bo, cleo = [await rig.opened(name) for name in ("ana", "bo", "cleo")]
    message = a_message("event", ana.address, "", {"value": 1}, id_=9)
    message["to"] = [bo.address, cleo.address, bo.address, runtime_address("nobody")]
    await ana.say(message)
    assert await ana.heard() == []
    assert await bo.heard() == [{**message, "to": bo.address}]
    assert await cleo.heard() == [{**message, "to": cleo.address}]


async def test_a_request_to_a_list_is_answered_for_each_recipient_that_nobody_is(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    message = a_message("read", ana.address, "", id_=9)
    message["to"] = [runtime_address("x"), bo.address, runtime_address("y")]
    await ana.say(message)
    refusals = await ana.heard()
    assert [(one["from"], one["id"], code_and_reason(one)) for one in refusals] == [
        (runtime_address("x"), 9, (404, "no-route")),
        (runtime_address("y"), 9, (404, "no-route")),
    ]
    assert len(await bo.heard()) == 1


# Owner and listeners.


async def test_a_request_goes_to_the_owner_alone_and_events_to_all_who_listen(rig: RuntimeRig) -> None:
    owner, bo, cleo = [await rig.opened(name) for name in ("owner", "bo", "cleo")]
    room = await owner.allocated()
    for listener in (bo, cleo):
        await listener.subscribed(f"{room}/changes")
    await cleo.say(a_message("read", cleo.address, room, id_=1))
    await cleo.heard()
    assert [one["type"] for one in await owner.heard()] == ["read"]
    assert await bo.heard() == []
    await owner.say(a_message("update", room, f"{room}/changes", {"value": 1}, id_=2))
    assert await owner.heard() == []
    for listener in (bo, cleo):
        assert [one["id"] for one in await listener.heard()] == [2]


async def test_changes_that_nobody_listens_to_do_not_fall_to_the_owner(rig: RuntimeRig) -> None:
    owner, bo = await rig.opened("owner"), await rig.opened("bo")
    room = await owner.allocated()
    await bo.say(a_message("event", bo.address, f"{room}/changes", id_=1))
    assert await bo.heard() == []
    assert await owner.heard() == []


@pytest.mark.parametrize("suffix", ["/subscription", "/status", "/inbox"])
async def test_control_addresses_fall_to_the_owner_when_nobody_listens(rig: RuntimeRig, suffix: str) -> None:
    owner, bo = await rig.opened("owner"), await rig.opened("bo")
    room = await owner.allocated()
    await bo.say(a_message("subscribe", bo.address, room + suffix, id_=1))
    await bo.heard()
    assert [one["to"] for one in await owner.heard()] == [room + suffix]


async def test_who_listens_twice_gets_one_copy_and_the_sender_none(rig: RuntimeRig) -> None:
    owner, bo = await rig.opened("owner"), await rig.opened("bo")
    room = await owner.allocated()
    await owner.subscribed(f"{room}/changes")
    await bo.subscribed(f"{room}/changes")
    await bo.ask(
        "subscribe",
        SM,
        {"resources": [f"{room}/changes"], "source": f"{bo.address}/second"},
    )
    await owner.say(a_message("update", room, f"{room}/changes", {"value": 1}))
    assert await owner.heard() == []
    assert len(await bo.heard()) == 1


async def test_children_reach_listeners_of_their_base(rig: RuntimeRig) -> None:
    owner, bo, cleo = [await rig.opened(name) for name in ("owner", "bo", "cleo")]
    room = await owner.allocated()
    await bo.ask(
        "subscribe",
        SM,
        {"resource": room, "childrenResources": ["messages"], "source": bo.address},
    )
    await cleo.subscribed(f"{room}/changes")
    await owner.say(a_message("create", room, f"{room}/children/messages", {"value": "hello"}, id_=3))
    await owner.heard()
    assert [one["body"]["value"] for one in await bo.heard()] == ["hello"]
    assert await cleo.heard() == []


# Sources.


@pytest.mark.parametrize(
    ("sender", "reason"),
    [
        (runtime_address("bo"), "not-owner"),
        (f"{runtime_address('bo')}/sm", "not-owner"),
        ("runtime://beta.example/rt", "spoofed-source"),
        ("hyperty://beta.example/h", "spoofed-source"),
        (SM, "spoofed-source"),
        ("mn:/session", "spoofed-source"),
        (NODE, "not-owner"),
    ],
)
async def test_a_sender_that_is_not_the_session_s_is_refused(rig: RuntimeRig, sender: str, reason: str) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(a_message("read", sender, bo.address, id_=5))
    (refusal,) = await ana.heard()
    assert code_and_reason(refusal) == (403, reason)
    assert (refusal["from"], refusal["to"], refusal["body"]["source"]) == (bo.address, sender, NODE)
    assert await bo.heard() == []
    assert rig.counters["refused sources"] == 1


async def test_an_address_of_another_session_cannot_be_used_as_sender(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    room = await bo.allocated()
    for type_ in ("read", "event", "response"):
        await ana.say(a_message(type_, room, bo.address, {"code": 200}, id_=1))
    assert [code_and_reason(one) for one in await ana.heard()] == [(403, "not-owner")]
    assert await bo.heard() == []


async def test_a_response_may_carry_the_address_that_its_sender_listens_to(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    room = await bo.allocated()
    await ana.subscribed(f"{room}/children/")
    await ana.say(a_message("response", f"{room}/children/messages", bo.address, {"code": 200}, id_=1))
    await ana.heard()
    assert [one["type"] for one in await bo.heard()] == ["response"]


async def test_who_was_asked_may_answer_in_the_name_that_was_asked_and_nobody_else_may(rig: RuntimeRig) -> None:
    ana, bo, eve = [await rig.opened(name) for name in ("ana", "bo", "eve")]
    room = await bo.allocated()
    await eve.subscribed(f"{room}/changes")
    await eve.ask("unsubscribe", SM, {"resources": [f"{room}/changes"]})
    await bo.subscribed(f"{room}/subscription")
    await ana.say(a_message("subscribe", ana.address, f"{room}/subscription", id_=1))
    assert await ana.heard() == []
    assert len(await bo.heard()) == 1
    for responder in (eve, bo):
        await responder.say(
            a_message("response", f"{room}/subscription", ana.address, {"by": responder.address}, id_=1)
        )
        assert await responder.heard() == []
    assert [one["body"]["by"] for one in await ana.heard()] == [bo.address]


async def test_a_spoofed_response_is_dropped_counted_and_never_answered(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(a_message("response", "hyperty://beta.example/h", bo.address, {"code": 200}, id_=1))
    assert await ana.heard() == []
    assert await bo.heard() == []
    assert rig.counters["refused sources"] == 1


async def test_flags_of_the_node_do_not_pass_from_a_runtime(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    body = {"auth": True, "value": [1.5], "sessionToken": ana.token}
    await ana.say(a_message("event", ana.address, bo.address, body))
    await ana.heard()
    assert (await bo.next())["body"] == {"value": [1.5]}


async def test_a_learned_address_is_reachable_and_never_overrides_an_owner(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(a_message("event", "hyperty://alpha.example/free", bo.address))
    await ana.heard()
    await bo.say(a_message("read", bo.address, "hyperty://alpha.example/free", id_=1))
    await bo.heard()
    assert [one["type"] for one in await ana.heard()] == ["read"]


async def test_runtimes_with_a_common_prefix_never_get_what_is_the_other_s(rig: RuntimeRig) -> None:
    short, long = await rig.opened("rt-a"), await rig.opened("rt-ana")
    await short.say(a_message("event", short.address, f"{long.address}/sm", {"value": "for the long one"}))
    await long.say(a_message("event", long.address, f"{short.address}/sm", {"value": "for the short one"}))
    assert [one["body"]["value"] for one in await long.heard()] == ["for the long one"]
    assert [one["body"]["value"] for one in await short.heard()] == ["for the short one"]
    await short.say(a_message("read", f"{short.address}na", long.address, id_=1))
    assert [code_and_reason(one) for one in await short.heard()] == [(403, "not-owner")]


# Loops.


@pytest.mark.parametrize(
    ("via", "code"),
    [
        ([NODE], (508, "loop")),
        (NODE, (508, "loop")),
        (["runtime://b.example/mn", NODE, "runtime://c.example/mn"], (508, "loop")),
        ([f"runtime://b.example/mn-{number}" for number in range(9)], (508, "hop-limit")),
        ({"not": "a list"}, (400, "bad-body")),
    ],
)
async def test_what_has_passed_here_or_travelled_too_far_is_refused(
    rig: RuntimeRig, via: object, code: tuple[int, str]
) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(
        a_message("read", ana.address, bo.address, {"via": via}, id_=1),
        a_message("event", ana.address, bo.address, {"via": via}),
    )
    (refusal,) = await ana.heard()
    assert code_and_reason(refusal) == code
    assert await bo.heard() == []


async def test_via_within_the_limit_passes_and_is_taken_off_for_runtimes(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    via = [f"runtime://b.example/mn-{number}" for number in range(8)]
    await ana.say(a_message("event", ana.address, bo.address, {"value": 1, "via": via}))
    await ana.heard()
    assert [one["body"] for one in await bo.heard()] == [{"value": 1}]


# What cannot be delivered.


@pytest.mark.parametrize(
    ("to", "code"),
    [
        (runtime_address("nobody"), (404, "no-route")),
        ("hyperty://alpha.example/nobody", (404, "no-route")),
        ("comm://alpha.example/room/children/messages", (404, "no-route")),
        ("domain://msg-node.alpha.example/no-such-thing", (404, "no-such-service")),
        ("global://registry/", (501, "connector-off")),
        ("plain-word", (404, "no-route")),
        ("plain words", (400, "bad-header")),
    ],
)
async def test_a_request_that_leads_nowhere_is_answered(rig: RuntimeRig, to: str, code: tuple[int, str]) -> None:
    ana = await rig.opened("ana")
    reply = await ana.ask("read", to)
    assert code_and_reason(reply) == code
    assert (reply["from"], reply["to"]) == (to, ana.address)
    for type_ in ("event", "response", "pong"):
        await ana.say(a_message(type_, ana.address, to, {"code": 200}, id_=1))
    await ana.say(a_message("read", ana.address, to))
    assert await ana.heard() == []


async def test_a_request_to_a_parked_session_gets_503_and_events_are_dropped_and_counted(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await bo.wire.cut()
    await until(rig, "sessions lost", 1)
    await ana.say(a_message("event", ana.address, bo.address, id_=1))
    await ana.say(a_message("read", ana.address, bo.address, id_=2))
    refusals = await ana.heard()
    assert [(one["id"], code_and_reason(one)) for one in refusals] == [(2, (503, "not-connected"))]
    assert rig.counters["unheard"] == 1


async def until(rig: RuntimeRig, counter: str, count: int) -> None:
    """Let the node work until one of its counters stands at `count`."""
    with trio.fail_after(10):
        while rig.counters[counter] < count:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("type_", ["read", "create", "subscribe"])
async def test_nothing_is_routed_before_open(rig: RuntimeRig, type_: str) -> None:
    bo, stranger = await rig.opened("bo"), await rig.runtime()
    stranger.address = runtime_address("stranger")
    for to in (bo.address, ALLOCATION, "hyperty://beta.example/h"):
        assert code_and_reason(await stranger.ask(type_, to)) == (401, "no-credentials")
    await stranger.say(a_message("event", stranger.address, bo.address))
    assert await stranger.heard() == []
    assert await bo.heard() == []
    assert rig.domains.take() == []


async def test_a_receipt_is_given_when_the_message_was_taken(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    reply = await ana.ask("event", bo.address, {"receipt": True})
    assert (reply["body"]["code"], reply["body"]["source"], reply["from"]) == (200, NODE, bo.address)
    await ana.say(a_message("event", ana.address, bo.address, {"receipt": "true"}, id_=1))
    await ana.say(a_message("event", ana.address, bo.address, {"receipt": True}))
    assert await ana.heard() == []
    assert len(await bo.heard()) == 3


# The local gate.


async def test_what_the_local_gate_denies_is_answered_and_goes_nowhere(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    judged: list[tuple[str, frozenset[str]]] = []

    def judge(message: Message, roles: frozenset[str]) -> Refusal | None:
        judged.append((message.to, roles))
        return Refusal(Code.POLICY) if message.type == "read" else None

    rig.judge_local = judge
    for to in (bo.address, ALLOCATION, runtime_address("nobody")):
        assert code_and_reason(await ana.ask("read", to)) == (403, "policy")
    await ana.say(a_message("event", ana.address, bo.address, {"value": 1}))
    assert await ana.heard() == []
    assert [one["type"] for one in await bo.heard()] == ["event"]
    assert [to for to, _ in judged][:3] == [bo.address, ALLOCATION, runtime_address("nobody")]
    assert {roles for _, roles in judged} == {SessionClass.ANONYMOUS.alone}


# Other domains.


async def test_what_is_for_another_domain_goes_there_and_refusals_come_back(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    far = f"hyperty://{FOREIGN}/h-bo"
    await ana.say(a_message("event", ana.address, far, {"value": 1}))
    await ana.heard()
    assert rig.domains.take() == [a_message("event", ana.address, far, {"value": 1})]
    rig.domains.refusals[FOREIGN] = Refusal(Code.RATE, {"retryAfter": 2})
    reply = await ana.ask("read", far)
    assert code_and_reason(reply) == (429, "rate")
    assert reply["body"]["value"] == {"retryAfter": 2}
    rig.domains.refusals[FOREIGN] = Refusal(Code.NO_SUCH_DOMAIN, detail="address: no address")
    reply = await ana.ask("read", far)
    assert code_and_reason(reply) == (404, "no-such-domain")
    assert reply["body"]["description"].endswith(": address: no address")


async def test_addresses_of_another_domain_cannot_be_allocated_there(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    reply = await ana.ask("create", f"domain://msg-node.{FOREIGN}/address-allocation", {"value": {"number": 1}})
    assert code_and_reason(reply) == (403, "transit")
    assert rig.domains.take() == []


async def test_a_link_delivers_to_runtimes_and_learns_what_was_refused(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    far = f"hyperty://{FOREIGN}/h-bo"
    wire = [
        a_message("event", far, ana.address, {"value": 1}, id_=1),
        a_message("read", far, runtime_address("nobody"), id_=2),
        a_message("read", far, "hyperty://gamma.example/h", id_=3),
        a_message("open", far, SESSION, id_=4),
        a_message("event", far, runtime_address("nobody")),
        a_message("read", far, "plain words", id_=5),
    ]
    codes = rig.bus.from_links.take(FOREIGN, [parsed(one) for one in wire])
    assert codes == [None, Code.NO_ROUTE, Code.TRANSIT, Code.NO_SUCH_SERVICE, None, Code.BAD_HEADER]
    assert await ana.heard() == [wire[0]]


async def test_changes_go_once_to_a_domain_that_listens_and_not_back_to_it(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    room = await ana.allocated()
    source = f"runtime://{FOREIGN}/mn"
    subscribe = a_message(
        "subscribe",
        f"{source}/sm",
        SM,
        {"resources": [f"{room}/changes", f"{room}/children/m"], "source": source},
        id_=1,
    )
    assert rig.bus.from_links.take(FOREIGN, [parsed(subscribe)]) == [None]
    await bo.subscribed(
        f"{room}/changes", f"{room}/children/m"
    )  # its reply is durable, so that the earlier one is as well
    assert [one["body"]["code"] for one in rig.domains.take()] == [200]
    await ana.say(a_message("update", room, f"{room}/changes", {"value": 1}))
    await ana.heard()
    assert [one["body"]["value"] for one in rig.domains.take()] == [1]
    assert [one["body"]["value"] for one in await bo.heard()] == [1]
    echo = a_message("create", f"hyperty://{FOREIGN}/h", f"{room}/children/m", {"value": 2})
    rig.bus.from_links.take(FOREIGN, [parsed(echo)])
    assert rig.domains.take() == []
    assert [one["body"]["value"] for one in await bo.heard()] == [2]
