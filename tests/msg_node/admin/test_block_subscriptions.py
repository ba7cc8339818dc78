"""Subscriptions to block lists, over HTTP: what report mode shows, what enforce mode does, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from msg_node.admin.block_subscriptions import BlockSubscriptions, Subscription
from msg_node.admin.changes import block
from msg_node.kernel.restrictions import Restricted, Restriction
from msg_node.settings.block_lists import block_list_problems
from msg_node.settings.tables.block_lists import BlockListSettings
from msg_node.wiring.block_lists import build_block_lists
from protofly.block_list import BlockedDomain, BlockList, sign_block_list
from protofly.signatures import SigningKey
from tests.support.admin_rig import AdminRig, admin_rig
from tests.support.rest_server import Asked, Said, rest_server
from tests.support.runtime_rig import DOMAIN

KEY = SigningKey.from_seed("k", bytes(32))
AUTHOR = "lists.example"


class Published:
    """What the author publishes now."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.serial = 0
        self.status = 200
        self.body = b""

    def put(self, *domains: str, key: SigningKey = KEY, serial: int | None = None) -> None:
        self.serial = self.serial + 1 if serial is None else serial
        entries = tuple(BlockedDomain(domain=domain, reason="flood") for domain in domains)
        made = BlockList(author=AUTHOR, serial=self.serial, issued=self.now, expires=self.now + 3600, entries=entries)
        self.body = sign_block_list(made, key)

    def answer(self, _: Asked) -> Said:
        return Said(self.status, self.body)


class Rig:
    """A node that has subscribed."""

    def __init__(self, rig: AdminRig, lists: BlockSubscriptions, published: Published) -> None:
        self.rig = rig
        self.lists = lists
        self.published = published

    @property
    def one(self) -> Subscription:
        return self.lists.lists[0]

    async def ask(self) -> None:
        await self.lists.ask(self.one)

    async def stored(self) -> None:
        """Wait until everything is durable that was to be."""
        with trio.fail_after(5):
            while not self.rig.rig.store.is_settled:
                await trio.lowlevel.checkpoint()

    @property
    def blocked(self) -> dict[str, str]:
        return {one.subject: one.by for one in self.rig.node.state.restrictions.of(Restricted.PEER)}

    @property
    def status(self) -> dict[str, Any]:
        return self.lists.status()[0]


@asynccontextmanager
async def subscribed(folder: Path, mode: str, exempt: tuple[str, ...] = ()) -> AsyncIterator[Rig]:
    published = Published(2_000_000_000.0)
    async with admin_rig(folder) as rig, rest_server(published.answer) as server:
        settings = BlockListSettings(
            url=f"{server.url}/block-list.json",
            insecure_plaintext=True,
            author=AUTHOR,
            keys=(KEY.record().pub,),
            mode=mode,  # type: ignore[arg-type]
            exempt=exempt,
        )
        changed = msgspec.structs.replace(rig.node.settings(), block_list=(settings,))
        stored = SimpleNamespace(domains=tuple)
        node = dataclasses.replace(rig.node, settings=lambda: changed, trust_store=stored)  # type: ignore[arg-type]
        lists = build_block_lists(node)
        lists.clock = lambda: published.now
        yield Rig(rig, lists, published)


async def test_report_mode_shows_what_would_be_blocked_and_blocks_nothing(tmp_path: Path) -> None:
    async with subscribed(tmp_path, "report") as rig:
        rig.published.put("evil.example", "bad.example")
        await rig.ask()
        assert rig.blocked == {}
        assert rig.status["domains"] == ["bad.example", "evil.example"]
        rig.published.now += 3600
        assert rig.status["domains"] == []
        rig.published.now -= 3600
        assert (rig.status["mode"], rig.status["serial"], rig.status["problem"]) == ("report", 1, "")
        await rig.ask()
        [event] = rig.rig.events
        assert (event.operation, event.actor) == ("block-list", f"block list of {AUTHOR}")


async def test_enforce_mode_blocks_while_the_list_is_valid_and_lets_go_what_has_left_it(tmp_path: Path) -> None:
    async with subscribed(tmp_path, "enforce") as rig:
        rig.published.put("evil.example", "bad.example")
        await rig.ask()
        assert set(rig.blocked) == {"evil.example", "bad.example"}
        found = rig.rig.node.state.restrictions.find(Restricted.PEER, "evil.example")
        assert found is not None
        assert (found.until, found.reason) == (rig.published.now + 3600, f"block list of {AUTHOR}: flood")
        rig.published.put("bad.example")
        await rig.ask()
        assert set(rig.blocked) == {"bad.example"}
        assert [one.operation for one in rig.rig.events] == ["block-list", "block-list"]


async def test_our_own_domain_exempt_ones_and_blocks_of_operators_are_left_alone(tmp_path: Path) -> None:
    async with subscribed(tmp_path, "enforce", exempt=("good.example", "*.friend.example")) as rig:
        node = dataclasses.replace(rig.rig.node, trust_store=SimpleNamespace(domains=tuple))  # type: ignore[arg-type]
        block(node, {"domain": "evil.example", "reason": "theirs"}, "ops").apply()
        rig.published.put("evil.example", DOMAIN, "good.example", "x.friend.example", "bad.example")
        await rig.ask()
        assert rig.blocked == {"evil.example": "ops", "bad.example": f"block list of {AUTHOR}"}
        rig.published.put()
        await rig.ask()
        assert rig.blocked == {"evil.example": "ops"}


@pytest.mark.parametrize("mode", ["report", "enforce"])
async def test_a_list_that_cannot_be_believed_changes_nothing_and_says_why(tmp_path: Path, mode: str) -> None:
    async with subscribed(tmp_path, mode) as rig:
        rig.published.put("evil.example")
        await rig.ask()
        assert rig.status["domains"] == ["evil.example"]
        rig.published.put("other.example", key=SigningKey.from_seed("k", b"1" * 32))
        await rig.ask()
        assert rig.status["problem"].startswith("too-few-signatures: ")
        rig.published.put("other.example")
        await rig.ask()
        assert rig.status["problem"] == ""
        rig.published.put(serial=1)
        await rig.ask()
        assert rig.status["problem"].startswith("rollback: ")
        rig.published.status = 500
        await rig.ask()
        assert rig.status["problem"].startswith("http-status: ")
        rig.published.status, rig.published.body = 200, b" " * (2 << 20)
        await rig.ask()
        assert rig.status["problem"].startswith("document-too-large: ")
        assert rig.status["domains"] == ["other.example"]


async def test_what_was_enforced_is_let_go_when_the_mode_becomes_report(tmp_path: Path) -> None:
    async with subscribed(tmp_path, "enforce") as rig:
        rig.published.put("evil.example")
        await rig.ask()
        assert set(rig.blocked) == {"evil.example"}
        reporting = msgspec.structs.replace(rig.one.settings, mode="report")
        rig.lists.lists = [Subscription(reporting, rig.one.fetch)]  # as after a restart with other settings
        await rig.ask()
        assert rig.blocked == {}
        assert rig.status["domains"] == ["evil.example"]


async def test_blocks_of_a_list_that_is_not_subscribed_to_any_more_are_lifted_and_those_of_operators_are_not(
    tmp_path: Path,
) -> None:
    async with subscribed(tmp_path, "enforce") as rig:
        rig.published.put("evil.example")
        await rig.ask()
        rig.lists.let_go_unsubscribed()
        own = Restriction(what=Restricted.PEER, subject="c.example", reason="", by="ops by socket", since=1.0)
        rig.rig.node.state.restrictions.set(own)
        assert set(rig.blocked) == {"evil.example", "c.example"}
        rig.lists.lists = []
        rig.lists.let_go_unsubscribed()
        assert set(rig.blocked) == {"c.example"}


async def test_other_lists_are_followed_at_once_and_one_that_is_only_to_report_lets_go_although_nobody_answers(
    tmp_path: Path,
) -> None:
    async with subscribed(tmp_path, "enforce") as rig, trio.open_nursery() as nursery:
        one = rig.one
        rig.published.put("evil.example")
        rig.lists.follow([])
        nursery.start_soon(rig.lists.run)
        await trio.testing.wait_all_tasks_blocked()
        assert rig.blocked == {}
        rig.lists.follow([one])
        with trio.fail_after(10):
            while set(rig.blocked) != {"evil.example"}:
                await trio.lowlevel.checkpoint()
        again = Subscription(one.settings, one.fetch)
        rig.lists.follow([again])
        assert rig.one is one  # with what is known of it
        rig.published.status = 500
        rig.lists.follow([Subscription(msgspec.structs.replace(one.settings, mode="report"), one.fetch)])
        with trio.fail_after(10):
            while rig.blocked:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("mode", ["report", "enforce"])
async def test_an_older_list_does_not_come_back_by_a_restart(tmp_path: Path, mode: str) -> None:
    async with subscribed(tmp_path, mode) as rig:
        rig.published.put("good.example")
        older = rig.published.body
        await rig.ask()
        rig.published.put("evil.example")
        newer = rig.published.body
        await rig.ask()
        await rig.stored()
    async with subscribed(tmp_path, mode) as rig:
        assert set(rig.blocked) == ({"evil.example"} if mode == "enforce" else set())
        rig.published.body = older
        await rig.ask()
        assert rig.status["problem"].startswith("rollback: ")
        assert (rig.status["domains"], rig.status["serial"]) == ([], 0)
        assert set(rig.blocked) == ({"evil.example"} if mode == "enforce" else set())
        rig.published.body = newer
        await rig.ask()
        assert (rig.status["problem"], rig.status["domains"]) == ("", ["evil.example"])


def test_settings_name_a_list_of_each_author_once_with_usable_keys() -> None:
    good = BlockListSettings(url="https://lists.example/x", author=AUTHOR, keys=(KEY.record().pub,))
    weak = msgspec.structs.replace(good, author="b.example", keys=("A" * 43,), url="http://b.example")
    assert list(block_list_problems([good])) == []
    assert [place for place, _ in block_list_problems([good, good, weak])] == [
        ("block_list", 1, "author"),
        ("block_list", 2, "url"),
        ("block_list", 2, "keys"),
    ]
