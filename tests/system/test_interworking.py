"""A chat service of old behind a real node: its users write to ours and are written to, through its signed stub."""

from __future__ import annotations

from pathlib import Path

from sandbox.core.exchange import Action, GuestAction, encode_actions
from tests.support.guests import constant

from .legacy import ADMITTED, BO, HOST, RANGE, STUB_DOMAIN, running_legacy, use_settings
from .systems import wait_until
from .test_stub_inventory import OPERATOR, lines, operator


async def test_users_of_a_legacy_write_to_ours_and_are_written_to(tmp_path: Path) -> None:
    async with running_legacy(tmp_path) as (frontier, legacy):
        link = await frontier.wait_state(legacy, "live")  # nobody had to write first
        assert link.stub["interworking"] == RANGE
        anna = frontier.anna
        answer = await anna.ask(BO, 7)
        assert (answer.code, answer.body) == (200, {"code": 200})
        [words] = legacy.said
        assert (words[0], words[2:4]) == ("bo", ["create", anna.hyperty])
        assert '"value":7' in words[4]
        assert (await anna.ask(f"chat:bo@{HOST}", 8)).is_ok
        assert (await anna.ask(f"hyperty://{STUB_DOMAIN}/bo", 9)).is_ok
        await legacy.tell(f'MSG bo {anna.hyperty} Hello "Anna"')
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


def speaking(*senders: str, to: str) -> bytes:
    """A stub that is live at once and says something in each name, whatever happens to it."""
    said = [
        GuestAction(Action.DELIVER, 0, f'{{"type":"create","from":"{one}","to":"{to}","body":{{"value":1}}}}'.encode())
        for one in senders
    ]
    return constant(encode_actions([GuestAction(Action.STATUS, 0, b"live"), *said]))


async def test_stub_that_speaks_for_others_is_stopped_and_nobody_hears_it(tmp_path: Path) -> None:
    async with running_legacy(tmp_path, "") as (frontier, legacy):
        anna = frontier.anna
        forged = [f"chat://bo@x.{HOST}", f"sip://bo@{HOST}", anna.hyperty, "user://a.example/anna"]
        legacy.publish(module=speaking(BO, *forged, to=anna.hyperty), serial=2)
        await use_settings(frontier, ADMITTED)
        link = await wait_until(lambda: frontier.link(legacy), lambda one: one.stub_faults >= 1)
        assert link.spoofed >= len(forged)
        await anna.wait_for(lambda: any(one.from_ == BO for one in anna.heard))
        assert not any(one.from_ in forged for one in anna.heard)
        await frontier.assert_unharmed()
