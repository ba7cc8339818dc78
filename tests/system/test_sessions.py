"""Sessions of a real node process: killed and started again, with tokens that end."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import zstandard

from tests.support.runtime_rig import SESSION, code_and_reason, runtime_address
from tests.support.token_issuer import TokenIssuer

from .one_node import SETTINGS, serving
from .systems import wait_until

ANA, BO = runtime_address("ana"), runtime_address("bo")
LOGIN = TokenIssuer(algorithm="EdDSA")
ISSUER = f"""
[[sessions.issuer]]
issuer = "{LOGIN.issuer}"
audience = "runtimes.alpha.example"
jwks = "login.json"
skew_seconds = 0
"""


@pytest.mark.long
async def test_a_killed_node_gives_back_what_sessions_held_until_their_grace_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, SETTINGS.format(grace=120)) as node:
        ana, bo = await node.opened("ana"), await node.opened("bo")
        room, hall = await ana.allocated(), await bo.allocated()
        assert code_and_reason(await ana.subscribed(f"{hall}/changes"))[0] == 200
        node.kill()
        await node.child.wait()

    async with serving(tmp_path, SETTINGS.format(grace=120)) as node:
        (ana, ana_code), (bo, bo_code) = await node.returned(ana), await node.returned(bo)
        assert (ana_code, bo_code) == (200, 200)
        await bo.say({"type": "update", "from": hall, "to": f"{hall}/changes", "body": {"value": 7}})
        assert (await ana.next())["body"]["value"] == 7  # the subscription
        await bo.say({"id": 9, "type": "read", "from": BO, "to": room})
        assert (await ana.next())["to"] == room  # the address
        thief = await node.runtime()
        reply = await thief.ask("open", SESSION, from_=ANA)
        assert code_and_reason(reply) == (409, "address-taken")
        node.kill()
        await node.child.wait()

    async with serving(tmp_path, SETTINGS.format(grace=0.2)) as node:
        await wait_until(node.counters, lambda counters: counters.get("sessions expired") == 2)
        assert (await node.returned(ana))[1] == 500
        bo = await node.opened("bo")
        reply = await bo.ask("read", room)
        assert code_and_reason(reply) == (404, "no-route")
    assert session_events(tmp_path)[-4:] == [  # of the last run; a kill may cost the records of a moment
        ("expired", None),
        ("expired", None),
        ("refused", "bad-token"),
        ("opened", None),
    ]


@pytest.mark.long
async def test_with_the_switch_a_killed_node_gives_back_by_address_what_stubs_without_a_token_held(
    tmp_path: Path,
) -> None:
    settings = SETTINGS.format(grace=120) + "[compat]\nreturn_by_address = true\n"
    async with serving(tmp_path, settings) as node:
        ana = await node.by_query("ana")
        room = await ana.allocated()
        node.kill()
        await node.child.wait()
    async with serving(tmp_path, settings) as node:
        ana, bo = await node.by_query("ana"), await node.opened("bo")
        await bo.say({"id": 9, "type": "read", "from": BO, "to": room})
        assert (await ana.next())["to"] == room


def session_events(folder: Path) -> list[tuple[str, str | None]]:
    """What the record files say about sessions, without the connections that the end of a run cut."""
    events = []
    for path in sorted((folder / "data" / "records").rglob("*session*.zst")):
        with path.open("rb") as file:
            reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            events += [json.loads(line) for line in reader.read().splitlines()]
    return [(event["event"], event.get("code")) for event in events if event["event"] != "lost" or event.get("code")]


@pytest.mark.long
async def test_a_session_ends_with_its_token_and_goes_on_with_a_fresh_one(tmp_path: Path) -> None:
    (tmp_path / "login.json").write_text(json.dumps(LOGIN.jwks))

    def bearer(seconds: float, of: str = ANA) -> dict[str, object]:
        now = time.time()
        token = LOGIN.token(of, now=now - 1, exp=now + seconds)
        return {"credentials": {"kind": "bearer", "token": token}}

    async with serving(tmp_path, SETTINGS.format(grace=120) + "anonymous = false\n" + ISSUER) as node:
        ana = await node.runtime()
        ana.address = ANA
        assert code_and_reason(await ana.ask("open", SESSION)) == (401, "no-credentials")
        reply = await ana.open("ana", bearer(2))
        assert reply["body"]["code"] == 200
        assert reply["body"]["session"]["expires"] <= 2
        room = await ana.allocated()
        notice = await ana.next()
        assert notice["to"] == f"{ANA}/status"
        assert notice["body"] == {"value": "expired", "reason": "bad-token"}
        assert await ana.close_code() == 4401
        _, code = await node.returned(ana)
        assert code == 500
        back = await node.runtime()
        back.address, back.token = ana.address, ana.token
        reply = await back.ask("re-open", SESSION, bearer(300), from_=back.session_address)
        assert reply["body"]["code"] == 200
        bo = await node.opened("bo", bearer(300, of=BO))
        await bo.say({"id": 1, "type": "read", "from": BO, "to": room})
        assert (await back.next())["to"] == room
        counters = await node.counters()
        assert (counters["sessions lost"], counters["sessions re-opened"]) == (1, 1)
    assert [event for event, _ in session_events(tmp_path)] == [
        "refused",
        "opened",
        "lost",
        "refused",
        "re-opened",
        "opened",
    ]
