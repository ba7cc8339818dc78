"""Operators who look on: what they see, what they do not, and that nobody else does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from msg_node.bus.middleware import make_stack
from msg_node.bus.taps import Taps
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.rules import Rules
from msg_node.kernel.service import Answer, ServiceRequest
from protofly.codec import refusal
from protofly.errors import Code
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    FOREIGN,
    NODE,
    Json,
    Runtime,
    RuntimeRig,
    ServicesAt,
    a_message,
    code_and_reason,
    parsed,
    runtime_address,
    runtime_rig,
)

OPERATOR = Credential(digest_of("secret"), runtime_address("ops"), frozenset({"operator"}))
PLAIN = Credential(digest_of("plain"), runtime_address("ops"))


@asynccontextmanager
async def tapped_rig(
    folder: Path, *, taps: bool = True, services_at: ServicesAt | None = None
) -> AsyncIterator[tuple[RuntimeRig, Taps]]:
    made: list[Taps] = []

    async with runtime_rig(
        folder,
        credentials=[OPERATOR, PLAIN],
        rules=Rules(taps=taps),
        services_at=services_at,
        steps=[("taps", lambda *arguments: made[0].step(*arguments))],
    ) as rig:
        made.append(Taps(rig.state, rig.bus.send_queues, rig.state.rules, node=NODE))
        rig.bus.from_links.judge_by(make_stack([], onlookers=[made[0].from_domain]))
        yield rig, made[0]


async def operator(rig: RuntimeRig, *, token: str = "secret") -> Runtime:
    runtime = await rig.runtime(bearer=token)
    assert (await runtime.open("ops"))["body"]["code"] == 200
    return runtime


async def listening(rig: RuntimeRig) -> Runtime:
    ops = await operator(rig)
    assert code_and_reason(await ops.subscribed("*")) == (200, "")
    await ops.heard()
    return ops


async def copies(ops: Runtime) -> list[tuple[str, Json]]:
    """Who said what, by the copies so far."""
    heard = await ops.heard()
    assert all(
        (one["type"], one["from"], one["to"], one.get("id")) == ("forward", f"{NODE}/taps", ops.address, None)
        for one in heard
    )
    return [(one["body"]["origin"], one["body"]["message"]) for one in heard]


async def test_an_operator_sees_what_runtimes_say_and_what_the_node_answers(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path) as (rig, _):
        ops, ana, bob = await listening(rig), await rig.opened("ana"), await rig.opened("bob")
        await copies(ops)
        said = a_message("create", ana.address, bob.address, {"value": {"n": 2**60}}, id_="x")
        await ana.say(said)
        assert await bob.next() == said
        await ana.ask("read", runtime_address("nobody"))
        seen = await copies(ops)
        assert [(origin, one["type"]) for origin, one in seen] == [
            (ana.address, "create"),
            (ana.address, "read"),
            (NODE, "response"),
        ]
        assert seen[0][1] == said
        assert seen[2][1]["body"]["reason"] == "no-route"


async def test_an_operator_sees_what_other_domains_say_and_what_is_said_in_their_place(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path) as (rig, taps):
        ops, ana = await listening(rig), await rig.opened("ana")
        await copies(ops)
        said = a_message("update", f"comm://{FOREIGN}/room", ana.address, {"value": 1})
        assert rig.bus.from_links.take(FOREIGN, [parsed(said)]) == [None]
        assert await ana.next() == said
        asked = parsed(a_message("read", ana.address, f"hyperty://{FOREIGN}/h", id_=1))
        taps.over_answers(rig.bus.refusals.answer)(refusal(asked, Code.GATEWAY_TIMEOUT, source=NODE))
        assert code_and_reason(await ana.next()) == (504, "timeout")
        assert [(origin, one["type"]) for origin, one in await copies(ops)] == [(FOREIGN, "update"), (NODE, "response")]


async def test_copies_show_no_tokens(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path) as (rig, _):
        ops, ana, bob = await listening(rig), await rig.opened("ana"), await rig.opened("bob")
        await copies(ops)
        secrets = {
            "idToken": "t0p",
            "accessToken": "t0p",
            "sessionToken": "t0p",
            "identity": {"assertion": "t0p"},
            "value": 1,
        }
        await ana.say(a_message("create", ana.address, bob.address, secrets, id_=1))
        assert (await bob.next())["body"]["accessToken"] == "t0p"
        await ana.ask("execute", f"domain://idm.{DOMAIN}", {"method": "login", "params": {"assertion": "t0p"}})
        for to, type_ in (
            (f"{bob.address}/idm", "execute"),
            (f"{bob.address}/identity-gui", "create"),
            (bob.address, "forward"),
        ):
            await ana.say(
                a_message(type_, ana.address, to, {"value": {"idToken": "t0p"}, "message": {"idToken": "t0p"}})
            )
            assert "t0p" in repr(await bob.next())
        seen = await copies(ops)
        assert "t0p" not in repr(seen)
        assert seen[0][1]["body"] == {"value": 1}
        assert [one["body"] for _, one in seen[1:]] == [{}] * 5


async def test_copies_show_no_session_and_no_credentials_of_servers(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path) as (rig, _):
        ops = await listening(rig)
        ana = await rig.opened("ana")
        await ana.ask("read", f"DOMAIN://QOS.{DOMAIN}/", {"resource": "/credentials", "criteria": {"secret": "t0p"}})
        seen = await copies(ops)
        assert [one["type"] for _, one in seen] == ["response", "read", "response"]
        assert [one["body"] for _, one in seen] == [{}, {}, {}]
        assert ana.token not in repr(seen)
        for from_ in (ana.session_address, ana.session_address.replace("runtime", "RUNTIME", 1)):
            await ana.ask("ping", "mn:/session", from_=from_)
            ((_, pong),) = await copies(ops)
            assert (pong["from"], pong["to"]) == ("mn:/session", ana.address)


async def test_a_tap_sees_nothing_of_its_own_and_its_answers_go_nowhere(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path) as (rig, _):
        ops, ana, bob = await listening(rig), await rig.opened("ana"), await rig.opened("bob")
        await copies(ops)
        await ops.say(a_message("update", ops.address, bob.address, {"value": 1}))
        assert (await bob.next())["body"] == {"value": 1}
        assert await copies(ops) == []
        await ana.say(a_message("read", ana.address, bob.address, id_=5))
        await bob.next()
        await copies(ops)
        await ops.say(a_message("response", bob.address, ana.address, {"code": 200}, id_=5))
        await ops.heard()
        assert await ana.heard() == []


@pytest.mark.parametrize("token", ["", "plain"])
async def test_only_operators_look_on(tmp_path: Path, token: str) -> None:
    async with tapped_rig(tmp_path) as (rig, _):
        eve = await operator(rig, token=token) if token else await rig.opened("eve")
        assert code_and_reason(await eve.subscribed("*")) == (403, "not-owner")
        await (await rig.opened("ana")).ask("read", runtime_address("nobody"))
        assert await eve.heard() == []


async def test_without_the_setting_operators_look_on_neither(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path, taps=False) as (rig, _):
        ops = await operator(rig)
        assert code_and_reason(await ops.subscribed("*")) == (403, "not-owner")


async def test_another_domain_cannot_look_on(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path) as (rig, _):
        sm = f"domain://msg-node.{DOMAIN}/sm"
        wish = a_message("subscribe", f"runtime://{FOREIGN}/mn/sm", sm, {"resources": ["*"]}, id_=1)
        assert rig.bus.from_links.take(FOREIGN, [parsed(wish)]) == [None]
        await rig.opened("ana")  # what was to be stored before the answer is stored
        (refused,) = rig.domains.take()
        assert code_and_reason(refused) == (403, "not-owner")


async def test_who_is_no_operator_any_more_sees_nothing_any_more(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path) as (rig, _):
        ops = await listening(rig)
        await ops.say(a_message("close", ops.address, "mn:/session", id_=1))
        await ops.close_code()
        again, ana = await operator(rig, token="plain"), await rig.opened("ana")
        await ana.ask("read", runtime_address("nobody"))
        assert await again.heard() == []


async def test_nothing_can_be_sent_to_the_name_of_all(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path) as (rig, _):
        ops, eve = await listening(rig), await rig.opened("eve")
        for to in ("*", "* ", " *"):
            assert code_and_reason(await eve.ask("read", to)) == (404, "no-route")
        assert {one["type"] for one in await ops.heard()} == {"forward"}


async def test_a_tap_that_unsubscribes_hears_no_more_and_the_node_starts_again_with_it(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path) as (rig, _):
        await listening(rig)
    async with tapped_rig(tmp_path) as (rig, _):
        ops = await operator(rig)
        ana = await rig.opened("ana")
        await ana.ask("create", ALLOCATION, {"value": {"number": 1}})
        assert [one["type"] for _, one in (await copies(ops))[-2:]] == ["create", "response"]
        assert (await ops.ask("unsubscribe", f"domain://msg-node.{DOMAIN}/sm", {"resources": ["*"]}))["body"][
            "code"
        ] == 200
        await ana.ask("read", runtime_address("nobody"))
        assert await ops.heard() == []


async def test_a_tap_that_does_not_read_holds_up_nobody_and_its_copies_are_lost(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path) as (rig, _):
        ops = await rig.runtime(bearer="secret", receive_bytes=4096)
        await ops.open("ops")
        await ops.subscribed("*")
        ana, bob = await rig.opened("ana"), await rig.opened("bob")
        got = []
        for number in range(0, 1500, 50):
            said = [
                a_message("update", ana.address, bob.address, {"n": n, "value": "x" * 10_000})
                for n in range(number, number + 50)
            ]
            await ana.say(*said)
            got += [(await bob.next())["body"]["n"] for _ in said]
        assert got == list(range(1500))
        assert rig.counters["copies lost"] > 0
        assert rig.counters["copies for taps"] + rig.counters["copies lost"] >= 1500


@pytest.mark.parametrize("service", ["admin", "push"])
async def test_nobody_reads_along_what_operators_and_push_services_get(tmp_path: Path, service: str) -> None:
    address = f"domain://msg-node.{DOMAIN}/{service}"

    def answers(_: ServiceRequest) -> Answer:
        return Answer(value={"answer": {"token": "a new token"}})

    async with tapped_rig(tmp_path, services_at=lambda _state: {address: answers}) as (rig, _taps):
        ops, ana = await listening(rig), await rig.opened("ana")
        await ops.heard()
        for to in (address, address.replace("domain", "DOMAIN").replace("msg-node", "MSG-NODE")):
            body = {"operation": "user add", "arguments": {"name": "bo", "password": "a new password"}}
            reply = await ana.ask("execute", to, body)
            assert reply["body"]["value"] == {"answer": {"token": "a new token"}}
            copies = await ops.heard()
            assert [one["body"]["message"]["type"] for one in copies] == ["execute", "response"]
            assert "a new" not in str(copies)
        await ana.say(a_message("event", ana.address, f"{ana.address}/admin", {"value": "seen"}))
        await ana.heard()
        assert "seen" in str(await ops.heard()), "only the services of a node"


async def test_who_looks_on_sees_nothing_while_the_settings_let_nobody(tmp_path: Path) -> None:
    async with tapped_rig(tmp_path) as (rig, taps):
        ops, ana = await listening(rig), await rig.opened("ana")
        await copies(ops)
        for are_on in (False, True):
            rig.state.rules.follow(replace(rig.state.rules, taps=are_on))
            assert taps.is_looking == are_on
            await ana.ask("read", runtime_address("nobody"))
            rig.bus.from_links.take(FOREIGN, [parsed(a_message("update", f"comm://{FOREIGN}/r", NODE))])
            assert bool(await copies(ops)) == are_on
