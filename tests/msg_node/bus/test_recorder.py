"""The recorder of conversations: what it writes down, what never, and where it ends."""

from __future__ import annotations

import resource
import signal
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from msg_node.bus.middleware import make_stack
from msg_node.bus.recorder import BY_ANOTHER, BY_BYTES, BY_OPERATOR, BY_STOP, BY_TIME, Recorder, RecordingTerms
from msg_node.records.conversation_file import ConversationFile, fresh_path
from protofly.codec import refusal
from protofly.conversation import Conversation, ConversationRule, SessionChanged, encode_line, open_conversation
from protofly.errors import Code, PeerError
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    NODE,
    RuntimeRig,
    a_message,
    parsed,
    runtime_address,
    runtime_rig,
)
from tests.support.services import until

KEY = b"k" * 32


class At(NamedTuple):
    """A rig with a recorder."""

    rig: RuntimeRig
    recorder: Recorder
    folder: Path

    def start(
        self,
        name: str = "r",
        *,
        rule: ConversationRule | None = None,
        has_bodies: bool = False,
        seconds: float = 60.0,
        max_bytes: int = 1 << 20,
    ) -> Path:
        terms = RecordingTerms(
            rule=rule or ConversationRule(), has_bodies=has_bodies, seconds=seconds, max_bytes=max_bytes, by="ops"
        )
        file = ConversationFile(self.folder / f"{name}.conversation", KEY)
        self.recorder.start(file, terms)
        return file.path

    async def read(self, path: Path) -> Conversation:
        """A recording that ends."""
        await until(lambda: (opened := opened_at(path)) is not None and opened.ended is not None)
        opened = opened_at(path)
        assert opened is not None
        return opened


def opened_at(path: Path) -> Conversation | None:
    try:
        return open_conversation(path.read_bytes(), KEY)
    except PeerError:
        return None  # nothing is in it yet


@asynccontextmanager
async def recording_rig(folder: Path) -> AsyncIterator[At]:
    async with runtime_rig(folder) as rig, trio.open_nursery() as nursery:
        recorder = Recorder(rig.state, rig.bus.send_queues, node=NODE, domain=DOMAIN)

        def changed() -> None:
            looking = [recorder] if recorder.is_looking else []
            stack = make_stack(
                [(one.name, one.step) for one in looking], onlookers=[one.from_domain for one in looking]
            )
            rig.bus.from_sessions.judge_by(stack)
            rig.bus.from_links.judge_by(stack)

        recorder.on_changed = changed
        await nursery.start(recorder.run)
        yield At(rig, recorder, folder)
        nursery.cancel_scope.cancel()


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process grows beyond one byte, as on a full disk."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def said(conversation: Conversation) -> list[tuple[str, str]]:
    return [(one.side, one.type) for one in conversation.messages]


async def test_what_runtimes_domains_and_the_node_say_is_recorded_in_order(tmp_path: Path) -> None:
    async with recording_rig(tmp_path) as at:
        ana, bob = await at.rig.opened("ana"), await at.rig.opened("bob")
        path = at.start(has_bodies=True)
        await ana.say(a_message("create", ana.address, bob.address, {"value": 1}, id_="x"))
        await bob.next()
        await bob.say(a_message("response", bob.address, ana.address, {"code": 200}, id_="x"))
        await ana.next()
        await ana.ask("read", runtime_address("nobody"))
        at.rig.bus.from_links.take(
            FOREIGN, [parsed(a_message("update", f"comm://{FOREIGN}/room", ana.address, {"value": 1}))]
        )
        asked = parsed(a_message("read", ana.address, f"hyperty://{FOREIGN}/h", id_=1))
        at.recorder.over_answers(at.rig.bus.refusals.answer)(refusal(asked, Code.GATEWAY_TIMEOUT, source=NODE))
        at.recorder.stop(BY_OPERATOR)
        conversation = await at.read(path)
        assert said(conversation) == [
            ("runtime", "create"),
            ("runtime", "response"),
            ("runtime", "read"),
            ("node", "response"),
            ("domain", "update"),
            ("node", "response"),
        ]
        first = conversation.messages[0]
        assert (first.origin, bytes(first.id), first.members) == (ana.address, b'"x"', {"value": 1})
        assert conversation.messages[3].members["reason"] == "no-route"
        assert conversation.ended is not None
        assert (conversation.ended.why, conversation.ended.messages) == (BY_OPERATOR, 6)


async def test_nothing_passes_the_recorder_before_and_after_a_recording(tmp_path: Path) -> None:
    async with recording_rig(tmp_path) as at:
        ana = await at.rig.opened("ana")
        await ana.ask("read", runtime_address("nobody"))
        path = at.start()
        at.recorder.stop(BY_OPERATOR)
        await ana.ask("read", runtime_address("nobody"))
        assert (await at.read(path)).messages == []
        assert at.recorder.facts is None


async def test_bodies_are_redacted_unless_asked_for(tmp_path: Path) -> None:
    async with recording_rig(tmp_path) as at:
        ana, bob = await at.rig.opened("ana"), await at.rig.opened("bob")
        path = at.start()
        await ana.say(a_message("create", ana.address, bob.address, {"value": "between us"}, id_=1))
        await bob.next()
        at.recorder.stop(BY_OPERATOR)
        (message,) = (await at.read(path)).messages
        assert message.members.keys() == {"redacted"}


async def test_no_token_is_in_a_recording_and_no_word_of_it_on_the_disk(tmp_path: Path) -> None:
    async with recording_rig(tmp_path) as at:
        ana, bob = await at.rig.opened("ana"), await at.rig.opened("bob")
        path = at.start(has_bodies=True)
        eve = await at.rig.opened("eve")
        await eve.ask("ping", "mn:/session", from_=eve.session_address)
        secrets = {"accessToken": "t0p", "value": {"password": "t0p", "text": "plain"}}
        await ana.say(a_message("create", ana.address, bob.address, secrets, id_=1))
        await bob.next()
        await ana.ask("execute", f"domain://idm.{DOMAIN}", {"method": "login", "params": {"assertion": "t0p"}})
        at.recorder.stop(BY_OPERATOR)
        conversation = await at.read(path)
        text = b"".join(map(encode_line, conversation.lines)).decode()
        assert "plain" in text
        assert "t0p" not in text
        assert eve.token not in text
        assert said(conversation)[0] == ("runtime", "create"), "nothing of the session of eve"
        raw = path.read_bytes()
        assert b"plain" not in raw
        assert b"ana" not in raw
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_only_what_the_rule_takes_is_recorded(tmp_path: Path) -> None:
    async with recording_rig(tmp_path) as at:
        ana, bob, eve = await at.rig.opened("ana"), await at.rig.opened("bob"), await at.rig.opened("eve")
        path = at.start(rule=ConversationRule(one=ana.address, other=bob.address))
        await eve.say(a_message("update", eve.address, bob.address, {}))
        await bob.next()
        await bob.say(a_message("update", bob.address, ana.address, {}))
        await ana.next()
        at.recorder.stop(BY_OPERATOR)
        assert [one.from_ for one in (await at.read(path)).messages] == [bob.address]


async def test_a_recording_ends_by_its_time(tmp_path: Path) -> None:
    async with recording_rig(tmp_path) as at:
        ended = (await at.read(at.start(seconds=0.05))).ended
        assert ended is not None
        assert ended.why == BY_TIME


async def test_a_recording_ends_before_it_is_larger_than_it_may_be(tmp_path: Path) -> None:
    async with recording_rig(tmp_path) as at:
        ana, bob = await at.rig.opened("ana"), await at.rig.opened("bob")
        path = at.start(has_bodies=True, max_bytes=5000)
        for _ in range(10):
            await ana.say(a_message("update", ana.address, bob.address, {"value": "x" * 900}))
            await bob.next()
        conversation = await at.read(path)
        assert conversation.ended is not None
        assert (conversation.ended.why, conversation.ended.messages) == (BY_BYTES, len(conversation.messages))
        assert 0 < len(conversation.messages) < 6
        assert not at.recorder.is_looking


async def test_a_node_that_stops_ends_its_recording_in_order(tmp_path: Path) -> None:
    async with recording_rig(tmp_path) as at:
        ana = await at.rig.opened("ana")
        path = at.start()
        await ana.ask("read", runtime_address("nobody"))
    conversation = open_conversation(path.read_bytes(), KEY)
    assert conversation.ended is not None
    assert (conversation.ended.why, len(conversation.messages)) == (BY_STOP, 2)


async def test_a_second_recording_ends_the_first(tmp_path: Path) -> None:
    async with recording_rig(tmp_path) as at:
        first, second = at.start("1"), at.start("2")
        at.recorder.stop(BY_OPERATOR)
        endings = [one.ended.why for one in (await at.read(first), await at.read(second)) if one.ended is not None]
        assert endings == [BY_ANOTHER, BY_OPERATOR]


async def test_a_disk_that_takes_nothing_ends_the_recording_and_nobody_waits(tmp_path: Path) -> None:
    async with recording_rig(tmp_path) as at:
        ana = await at.rig.opened("ana")
        path = at.start()
        await until(lambda: opened_at(path))
        with no_room():
            await ana.ask("read", runtime_address("nobody"))
            await until(lambda: not at.recorder.is_looking)
        assert (await ana.ask("read", runtime_address("nobody")))["body"]["code"] == 404
        again = at.start("again")
        at.recorder.stop(BY_OPERATOR)
        assert (await at.read(again)).messages == []


async def test_the_end_of_a_session_that_was_recorded_is_recorded(tmp_path: Path) -> None:
    async with recording_rig(tmp_path) as at:
        ana, eve = await at.rig.opened("ana"), await at.rig.opened("eve")
        path = at.start()
        await ana.ask("read", runtime_address("nobody"))
        for one in (eve, ana):
            await one.say(a_message("close", one.address, "mn:/session", id_=9))
            await one.close_code()
        at.recorder.stop(BY_OPERATOR)
        changes = [one for one in (await at.read(path)).lines if isinstance(one, SessionChanged)]
        assert [(one.runtime, one.event) for one in changes] == [(ana.address, "closed")]


def test_a_folder_holds_no_more_recordings_than_it_may(tmp_path: Path) -> None:
    for name in "ab":
        ConversationFile(fresh_path(tmp_path, name, most=2), KEY).discard()
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        fresh_path(tmp_path, "c", most=2)


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a/b", "a b"])
def test_the_name_of_a_recording_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        fresh_path(tmp_path, name, most=2)
