"""Attempts to get at somebody else's session over real connections: each ends where it began, and the holder goes on.

Source: message specification, section 5.1.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from msg_node.kernel.credentials import Credential, Credentials, digest_of
from protofly.limits import UNPROVED_OPENS
from tests.support.runtime_rig import (
    SESSION,
    Json,
    Runtime,
    RuntimeRig,
    code_and_reason,
    runtime_address,
    runtime_rig,
)
from tests.support.token_issuer import TokenIssuer

ANA = runtime_address("ana")
LOGIN = TokenIssuer()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    gate = Credentials([Credential(digest_of("pool's"), runtime_address("*"))], issuers=[LOGIN.rules()])
    gate.set_issuer_keys(LOGIN.issuer, LOGIN.keys)
    async with runtime_rig(tmp_path, credentials=gate) as made:
        yield made


def bearer(runtime: object = ANA, **claims: object) -> Json:
    return {"credentials": {"kind": "bearer", "token": LOGIN.token(runtime, now=time.time(), **claims)}}  # type: ignore[arg-type]


async def check_unharmed(rig: RuntimeRig, holder: Runtime, address: str) -> None:
    """The holder is live, has heard nothing, and owns what it owned."""
    assert await holder.heard() == []
    assert rig.state.owners.owner(address) == rig.port_of("ana").sid
    assert rig.bus.runtimes.live_sessions == 1


async def test_who_holds_a_runtime_by_its_own_token_loses_it_to_nobody_elses(rig: RuntimeRig) -> None:
    ana = await rig.runtime()
    assert (await ana.open("ana", bearer()))["body"]["code"] == 200
    address = await ana.allocated()
    attempts: list[tuple[Json | None, tuple[int, str]]] = [
        (None, (409, "address-taken")),
        ({"credentials": {"kind": "anonymous"}}, (409, "address-taken")),
        ({"credentials": {"kind": "bearer", "token": "pool's"}}, (409, "address-taken")),
        (bearer(runtime_address("*"), sub="eve"), (409, "address-taken")),
        (bearer(runtime_address("eve"), sub="eve"), (401, "bad-token")),
        ({"credentials": {"kind": "bearer", "token": ana.token}}, (401, "bad-token")),
    ]
    for body, expected in attempts:
        eve = await rig.runtime()
        reply = await eve.ask("open", SESSION, body, from_=ANA)
        assert code_and_reason(reply) == expected
        assert ana.token not in str(reply)
    await check_unharmed(rig, ana, address)


async def test_a_client_that_guesses_is_sent_away_and_the_next_one_served(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    address = await ana.allocated()
    eve = await rig.runtime()
    for attempt in range(UNPROVED_OPENS):
        reply = await eve.ask("re-open", SESSION, from_=f"{ANA}/{attempt}")
        assert code_and_reason(reply) == (500, "bad-token")
    assert await eve.close_code() == 1008
    await check_unharmed(rig, ana, address)
    assert rig.counters["sessions refused"] == UNPROVED_OPENS
    assert (await (await rig.runtime()).open("bo"))["body"]["code"] == 200


async def test_the_one_taken_over_can_say_nothing_more_in_that_name(rig: RuntimeRig) -> None:
    first = await rig.runtime()
    await first.open("ana", bearer())
    second = await rig.runtime()
    assert (await second.open("ana", bearer()))["body"]["code"] == 200
    assert (await first.next())["body"]["value"] == "taken-over"
    assert await first.close_code() == 4001
    back = await rig.runtime()
    reply = await back.ask("re-open", SESSION, from_=first.session_address)
    assert code_and_reason(reply) == (500, "bad-token")  # the token of the first one died with the take-over
    assert await second.heard() == []
