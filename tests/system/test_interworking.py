"""A chat service of old behind a real node: its users write to ours and are written to, through its signed stub."""

from __future__ import annotations

import hashlib
import os
import signal
from functools import partial
from pathlib import Path

import trio

from protofly.documents import Revoked
from sandbox.core.exchange import Action, GuestAction
from tests.support.guest_records import encode_actions
from tests.support.guests import constant
from trapezoid.admin_client import ask_node

from .frontier import Frontier
from .legacy import ADMITTED, BO, CHAT_STUB, HOST, RANGE, STUB_DOMAIN, LegacyChat, running_legacy, use_settings
from .systems import wait_until
from .test_stub_inventory import OPERATOR, lines, operator


async def test_users_of_a_legacy_write_to_ours_and_are_written_to(tmp_path: Path) -> None:
    async with running_legacy(tmp_path) as (frontier, legacy):
        link = await frontier.wait_state(legacy, "live")  # nobody had to write first
        assert link.stub["interworking"] == RANGE
        anna = frontier.anna
        answer = await anna.ask(BO, 7)
        assert (answer.code, answer.body) == (200, {"code": 200, "auth": False})  # no policy speaks of it
        [words] = legacy.said
        assert (words[0], words[2:4]) == ("bo", ["create", anna.hyperty])
        assert '"value":7' in words[4]
        assert (await anna.ask(f"chat:bo@{HOST}", 8)).is_ok
        assert (await anna.ask(f"hyperty://{STUB_DOMAIN}/bo", 9)).is_ok
        await legacy.say(f'MSG bo {anna.hyperty} Hello "Anna"')
        await anna.wait_for(lambda: any(one.from_ == BO for one in anna.heard))
        assert anna.heard[-1].body["value"] == {"content": 'Hello "Anna"'}
        unknown = await anna.ask(f"chat://carl@{HOST}")
        assert (unknown.code, unknown.reason) == (404, "no-route")
        elsewhere = await anna.ask("chat://bo@elsewhere.example")
        assert (elsewhere.code, elsewhere.reason) == (403, "domain-blocked")
        await frontier.assert_unharmed()


async def test_operator_sees_for_whom_a_stub_speaks(tmp_path: Path) -> None:
    async with running_legacy(tmp_path, ADMITTED + OPERATOR) as (frontier, legacy):
        await frontier.wait_state(legacy, "live")
        ops = await operator(frontier)
        assert (await lines(ops))["chat"]["interworking"] == RANGE
        await ops.wire.cut()


async def test_interworking_stub_that_nobody_admitted_is_refused_with_its_code(tmp_path: Path) -> None:
    async with running_legacy(tmp_path, "") as (frontier, legacy):
        answer = await frontier.ask(legacy)
        assert (answer.code, answer.reason) == (403, "interworking-off")
        assert (await frontier.wait_state(legacy, "verify-failed")).stub == {}
        assert (await frontier.anna.ask(BO)).reason == "domain-blocked"  # to us it is an address of foreign.example
        assert legacy.connections == 0
        await frontier.assert_unharmed()


async def test_address_that_the_manifest_does_not_claim_is_nobodys_although_it_was_granted(tmp_path: Path) -> None:
    settings = f'{ADMITTED}ranges = ["{RANGE}", "tel:+4930*"]\n'
    async with running_legacy(tmp_path, settings) as (frontier, legacy):
        await frontier.wait_state(legacy, "live")
        answer = await frontier.anna.ask("tel:+4930123")
        assert (answer.code, answer.reason) == (404, "no-route")
        assert (await frontier.anna.ask(BO)).is_ok
        assert len(legacy.said) == 1


async def test_stub_is_admitted_and_refused_again_by_reloads_while_the_node_serves(tmp_path: Path) -> None:
    async with running_legacy(tmp_path, "") as (frontier, legacy):
        file = frontier.node.folder.settings
        without = file.read_text()

        async def reload(text: str) -> None:
            file.write_text(text)
            await trio.to_thread.run_sync(partial(ask_node, frontier.node.folder.data, "reload", {}))

        assert (await frontier.ask(legacy)).reason == "interworking-off"
        await reload(without + ADMITTED)
        await frontier.ask(legacy)
        link = await frontier.wait_state(legacy, "live")
        assert link.stub["interworking"] == RANGE
        assert (await frontier.anna.ask(BO, 7)).is_ok
        heard = len(legacy.said)
        await reload(without)
        assert (await frontier.anna.ask(BO)).reason == "domain-blocked"  # an address of foreign.example again
        await frontier.wait_state(legacy, "disconnected", "verify-failed")
        assert (await frontier.ask(legacy)).reason == "interworking-off"
        assert len(legacy.said) == heard
        await frontier.assert_unharmed()


def speaking(*senders: str, to: str) -> bytes:
    """A stub that is live at once and says something in each name, whatever happens to it."""
    said = [
        GuestAction(Action.DELIVER, 0, f'{{"type":"create","from":"{one}","to":"{to}","body":{{"value":1}}}}'.encode())
        for one in senders
    ]
    return constant(encode_actions([GuestAction(Action.STATUS, 0, b"live"), *said]))


async def test_stub_that_speaks_for_others_goes_on_and_nobody_hears_what_it_forged(tmp_path: Path) -> None:
    async with running_legacy(tmp_path, "") as (frontier, legacy):
        anna = frontier.anna
        forged = [f"chat://bo@x.{HOST}", f"sip://bo@{HOST}", anna.hyperty, "user://a.example/anna"]
        legacy.publish(module=speaking(BO, *forged, to=anna.hyperty), serial=2)
        await use_settings(frontier, ADMITTED)
        link = await wait_until(lambda: frontier.link(legacy), lambda one: one.spoofed >= len(forged))
        assert (link.state, link.stub_faults, link.forged_names) == ("live", 0, dict.fromkeys(forged, 1))
        await anna.wait_for(lambda: any(one.from_ == BO for one in anna.heard))
        assert not any(one.from_ in forged for one in anna.heard)
        await frontier.assert_unharmed()


# In the registry, for as long as the stub lives.

REGISTRY = "domain://registry.a.example"


async def status_of(frontier: Frontier, url: str) -> tuple[int, str]:
    """What our registry says of an entry."""
    answer = await frontier.anna.client.request("read", frontier.anna.hyperty, REGISTRY, {"resource": url})
    value = answer.value
    return answer.code, str(value.get("status")) if isinstance(value, dict) else ""


async def wait_status(frontier: Frontier, url: str, status: str) -> None:
    await wait_until(lambda: status_of(frontier, url), lambda seen: seen[1] == status)


async def listen(frontier: Frontier, url: str) -> None:
    body = {"resources": [f"{url}/registration"]}
    answer = await frontier.anna.client.request(
        "subscribe", frontier.anna.client.runtime, "domain://msg-node.a.example/sm", body
    )
    assert answer.is_ok


async def test_legacy_users_and_their_rooms_are_registered_while_their_stub_lives(tmp_path: Path) -> None:
    bo, room = f"hyperty://{STUB_DOMAIN}/bo", f"comm://{STUB_DOMAIN}/lobby"
    async with running_legacy(tmp_path) as (frontier, legacy):
        anna = frontier.anna
        await wait_status(frontier, bo, "live")
        await legacy.say("ROOM bo lobby", "HERE carl")
        await wait_status(frontier, room, "live")
        await listen(frontier, bo)

        def news() -> list[object]:
            return [one.body.get("value") for one in anna.heard if one.to == f"{bo}/registration"]

        await legacy.say("GONE carl")
        await wait_status(frontier, f"hyperty://{STUB_DOMAIN}/carl", "disconnected")
        os.kill((await frontier.link(legacy)).worker_pid or 0, signal.SIGKILL)
        await anna.wait_for(lambda: news() == ["disconnected"])
        assert await status_of(frontier, room) == (408, "disconnected")
        await anna.wait_for(lambda: news() == ["disconnected", "live"])  # a new instance asks who is there
        await legacy.hang_up()
        await anna.wait_for(lambda: news() == ["disconnected", "live", "disconnected", "live"])
        assert (await anna.ask(BO)).is_ok
        await frontier.assert_unharmed()


async def test_changes_of_a_legacy_room_reach_those_who_subscribed_at_its_stub(tmp_path: Path) -> None:
    changes = f"comm://{STUB_DOMAIN}/lobby/changes"
    async with running_legacy(tmp_path) as (frontier, legacy):
        await frontier.wait_state(legacy, "live")
        anna, node = frontier.anna, f"domain://msg-node.{STUB_DOMAIN}/sm"
        answer = await anna.client.request("subscribe", anna.client.runtime, node, {"resources": [changes]})
        assert answer.is_ok
        await legacy.say(f"MSG bo {changes} news")
        await anna.wait_for(lambda: any(one.to == changes and one.from_ == BO for one in anna.heard))
        await frontier.assert_unharmed()


async def test_revoked_stub_leaves_nobody_behind_and_its_users_are_legacy_no_more(tmp_path: Path) -> None:
    async with running_legacy(tmp_path) as (frontier, legacy):
        await wait_status(frontier, f"hyperty://{STUB_DOMAIN}/bo", "live")
        await frontier.node.stop()
        legacy.publish(serial=2, revoked=Revoked(modules=[hashlib.sha256(CHAT_STUB.read_bytes()).hexdigest()]))
        await use_settings(frontier, "", forget_stubs=True)
        await frontier.wait_state(legacy, "verify-failed")
        assert (await status_of(frontier, f"hyperty://{STUB_DOMAIN}/bo"))[0] == 408
        assert (await status_of(frontier, f"chat://carl@{HOST}"))[0] == 404
        answer = await frontier.anna.ask(BO)
        assert (answer.code, answer.reason) == (502, "revoked")
        await frontier.assert_unharmed()


# Its access token.

TOKEN = "s3cr3t-Token.of~the/Service=="


def with_token(legacy: LegacyChat, folder: Path) -> str:
    """Settings that let the stub's token go to the service, and nowhere else."""
    file = folder / "service-token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    origin = f"https://{legacy.domain}:{legacy.site_port}"
    return f'{ADMITTED}http = true\ntoken_file = "{file}"\ntoken_origins = ["{origin}"]\n'


async def test_stub_reads_its_roster_with_a_token_that_it_never_sees(tmp_path: Path) -> None:
    async with running_legacy(tmp_path, "") as (frontier, legacy):
        legacy.users = []  # nobody hears it over the lines
        legacy.serve_roster("HERE dora", "HERE emil")
        await use_settings(frontier, with_token(legacy, tmp_path))
        await wait_status(frontier, f"hyperty://{STUB_DOMAIN}/emil", "live")
        [head] = [one for one in legacy.heads if one.startswith("GET /who")]
        assert f"\r\nAuthorization: Bearer {TOKEN}\r\n" in head
        assert legacy.who_asked == 0
        assert not any(TOKEN in head for head in legacy.heads if not head.startswith("GET /who"))
        await frontier.node.stop()
        kept = [path for path in frontier.node.folder.path.rglob("*") if path.is_file()]
        assert [path.name for path in kept if TOKEN.encode() in path.read_bytes()] == []
        await frontier.start()


async def test_token_of_a_user_reaches_the_stub_as_a_handle_only(tmp_path: Path) -> None:
    async with running_legacy(tmp_path) as (frontier, legacy):
        await frontier.wait_state(legacy, "live")
        identity = {"userProfile": {"userURL": "user://a.example/anna"}, "accessToken": TOKEN}
        anna = frontier.anna
        answer = await anna.client.request("create", anna.hyperty, BO, {"value": 1, "identity": identity})
        assert answer.is_ok
        [words] = legacy.said
        assert '"accessToken":"' in words[4]
        assert TOKEN not in words[4]
        await frontier.node.stop()
        assert not any(TOKEN.encode() in path.read_bytes() for path in frontier.spool.rglob("*") if path.is_file())
        assert TOKEN not in frontier.node.folder.log.read_text()
        await frontier.start()
