"""Several block lists: what they agree on is blocked while they do, and nothing of what the operator exempts."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.admin.block_subscriptions import BlockSubscriptions, Subscription
from msg_node.admin.changes import block
from msg_node.admin.core.list_agreement import ListWord, agreed_until
from msg_node.kernel.restrictions import Restricted
from msg_node.settings.block_lists import block_list_problems
from msg_node.settings.tables.block_lists import BlockListSettings
from protofly.block_list import BlockedDomain, BlockList, sign_block_list
from protofly.errors import Code, TransportError
from protofly.signatures import SigningKey
from tests.support.admin_rig import AdminRig, admin_rig

KEY = SigningKey.from_seed("k", bytes(32))
START = 2_000_000_000.0
EVIL = "evil.example"


class Author:
    """What one operator publishes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.serial = 0
        self.body = b""

    def put(self, *domains: str, seconds: float = 3600.0) -> None:
        self.serial += 1
        entries = tuple(BlockedDomain(domain=domain, reason="flood") for domain in domains)
        made = BlockList(author=self.name, serial=self.serial, issued=START, expires=START + seconds, entries=entries)
        self.body = sign_block_list(made, KEY)

    async def fetch(self) -> bytes:
        if not self.body:
            raise TransportError(Code.CONNECT_FAILED, "nobody answers")
        return self.body


class Rig:
    """A node that has subscribed to the lists of `x`, `y` and `z`."""

    def __init__(self, rig: AdminRig, policy: dict[str, Any], modes: str = "eee") -> None:
        self.rig = rig
        self.now = START
        self.authors = [Author(f"{name}.example") for name in "xyz"]
        self.settings = rig.node.settings()
        self.choose(**policy)
        stored = SimpleNamespace(domains=tuple)
        self.node = dataclasses.replace(
            rig.node,
            settings=lambda: self.settings,
            trust_store=stored,  # type: ignore[arg-type]
        )
        self.modes = modes
        self.lists = self.restarted()

    def choose(self, **policy: Any) -> None:
        self.settings = msgspec.structs.replace(
            self.settings, policy=msgspec.structs.replace(self.settings.policy, **policy)
        )

    def restarted(self) -> BlockSubscriptions:
        """The subscriptions of another process, which have heard of no list."""
        subscriptions = []
        for author, mode in zip(self.authors, self.modes, strict=True):
            settings = BlockListSettings(
                url=f"https://{author.name}/list.json",
                author=author.name,
                keys=(KEY.record().pub,),
                mode="enforce" if mode == "e" else "report",
            )
            subscriptions.append(Subscription(settings, partial(Author.fetch, author)))
        self.lists = BlockSubscriptions(self.node, subscriptions, lambda: self.now)
        return self.lists

    async def ask(self, *numbers: int) -> set[str]:
        """Ask some authors, or all; returns what is blocked then."""
        for one in self.lists.lists if not numbers else [self.lists.lists[number] for number in numbers]:
            await self.lists.ask(one)
        return self.blocked

    @property
    def blocked(self) -> set[str]:
        return {one.subject for one in self.node.state.restrictions.of(Restricted.PEER)}


@asynccontextmanager
async def subscribed(folder: Path, modes: str = "eee", **policy: Any) -> AsyncIterator[Rig]:
    async with admin_rig(folder) as rig:
        yield Rig(rig, policy, modes)


async def test_a_domain_is_blocked_when_so_many_lists_name_it_and_let_go_when_fewer_do(tmp_path: Path) -> None:
    async with subscribed(tmp_path, lists_agree=2) as rig:
        x, y, z = rig.authors
        x.put(EVIL, "lonely.example")
        y.put("other.example")
        z.put()
        assert await rig.ask() == set()
        y.put(EVIL)
        assert await rig.ask(1) == {EVIL}
        found = rig.node.state.restrictions.find(Restricted.PEER, EVIL)
        assert found is not None
        assert found.reason == "block list of x.example, and 1 more: flood"
        assert [one["domains"] for one in rig.lists.status()] == [[EVIL], [EVIL], []]
        x.put()
        assert await rig.ask(0) == set()


async def test_a_block_ends_when_the_lists_that_agree_have_expired(tmp_path: Path) -> None:
    async with subscribed(tmp_path, lists_agree=2) as rig:
        for author, seconds in zip(rig.authors, (300.0, 100.0, 200.0), strict=True):
            author.put(EVIL, seconds=seconds)
        await rig.ask()
        found = rig.node.state.restrictions.find(Restricted.PEER, EVIL)
        assert found is not None
        assert found.until == START + 200


async def test_a_block_passes_on_to_another_list_without_a_gap(tmp_path: Path) -> None:
    async with subscribed(tmp_path) as rig:
        x, y, z = rig.authors
        for author in (x, y):
            author.put(EVIL)
        z.put()
        assert await rig.ask() == {EVIL}
        restrictions, lifted = rig.node.state.restrictions, list[str]()
        lift = restrictions.lift

        def noted(what: Restricted, subject: str) -> None:
            lifted.append(subject)
            lift(what, subject)

        restrictions.lift = noted  # type: ignore[method-assign]
        x.put()
        assert await rig.ask(0) == {EVIL}
        assert lifted == []
        found = rig.node.state.restrictions.find(Restricted.PEER, EVIL)
        assert found is not None
        assert found.by == "block list of y.example"


async def test_after_a_restart_what_was_agreed_on_stays_while_lists_are_silent(tmp_path: Path) -> None:
    async with subscribed(tmp_path, lists_agree=2) as rig:
        x, y, z = rig.authors
        for author in (x, y):
            author.put(EVIL)
        z.put()
        assert await rig.ask() == {EVIL}
        lists = rig.restarted()
        lists.let_go_unsubscribed()
        assert await rig.ask(0) == {EVIL}  # of y and z nothing is known
        y.body = b""
        assert await rig.ask(1, 2) == {EVIL}
        y.put()
        assert await rig.ask(1) == set()


async def test_a_list_that_only_reports_counts_for_no_other_and_shows_what_it_would_change(tmp_path: Path) -> None:
    async with subscribed(tmp_path, "ere", lists_agree=2) as rig:
        for author in rig.authors[:2]:
            author.put(EVIL)
        rig.authors[2].put()
        assert await rig.ask() == set()
        assert [one["domains"] for one in rig.lists.status()] == [[], [EVIL], []]


async def test_what_the_operator_exempts_or_has_blocked_stands_above_all_lists(tmp_path: Path) -> None:
    async with subscribed(tmp_path, lists_exempt=("good.example", "*.friend.example")) as rig:
        block(rig.node, {"domain": "ours.example", "reason": "ours"}, "ops").apply()
        for author in rig.authors:
            author.put("good.example", "x.friend.example", "ours.example", EVIL)
        assert await rig.ask() == {"ours.example", EVIL}
        rig.choose(lists_exempt=(EVIL,))
        rig.lists.let_go_unsubscribed()
        assert rig.blocked == {"ours.example", "good.example", "x.friend.example"}


def test_more_lists_than_there_are_cannot_agree() -> None:
    assert list(block_list_problems((), 1)) == []
    [(place, text)] = block_list_problems((), 2)
    assert (place, text) == (("policy", "lists_agree"), "2 lists would have to agree, and there are 0")


@pytest.mark.parametrize(("needed", "until"), [(1, 9.0), (2, 5.0), (3, 0.0)])
def test_an_agreement_lasts_as_long_as_the_last_list_that_it_needs(needed: int, until: float) -> None:
    lists = [ListWord({EVIL}, 5.0), ListWord({"other.example"}, 99.0), ListWord({EVIL}, 9.0)]
    assert agreed_until(EVIL, lists, needed) == until


@given(st.lists(st.tuples(st.booleans(), st.floats(1.0, 9.0)), max_size=5), st.integers(1, 5), st.floats(0.0, 10.0))
def test_at_every_moment_of_an_agreement_so_many_lists_name_the_domain(
    said: list[tuple[bool, float]], needed: int, now: float
) -> None:
    lists = [ListWord({EVIL} if names else (), expires) for names, expires in said]
    in_force = sum(names and now < expires for names, expires in said)
    assert (now < agreed_until(EVIL, lists, needed)) == (in_force >= needed)
