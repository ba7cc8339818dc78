"""Whose alias a name is: both domains say so with the same root keys, or the operator does; some names never are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from catalogue_client.core.aliases import stored_aliases, why_no_alias
from catalogue_client.core.state import DomainTrust, TrustState, retrusted
from federation.core.alias_rules import AliasRules
from federation.discovery.aliases import Aliases
from protofly.documents import TrustLevel
from protofly.errors import Code, PeerError
from protofly.limits import ALIAS_SECONDS, ALIASES_PER_PEER
from tests.support.repository import PublishedDomain, World

MAIN, LAB = "a.example", "a-lab.example"


def domain(name: str, *aliases: str, keys_of: str = MAIN) -> PublishedDomain:
    made = PublishedDomain(name, keys_of=keys_of)
    if aliases:
        made.rotate_root(aliases=list(aliases))
        made.publish_live()
    return made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, domain(MAIN, LAB), domain(LAB, MAIN))
    yield made
    made.close()


async def trusts(world: World, *, lab: PublishedDomain | None = None) -> tuple[DomainTrust, DomainTrust]:
    if lab is not None:
        world.fetcher.published = (world.published[0], lab)
    return await world.refresh(world.published[0]), await world.refresh(lab or world.published[1])


async def test_two_domains_that_name_each_other_with_the_same_root_keys_are_aliases(world: World) -> None:
    main, lab = await trusts(world)
    assert why_no_alias(lab, main) == ""
    assert why_no_alias(main, lab) == ""
    assert list(stored_aliases(state_of(world, MAIN), world.store.load)) == [LAB]


async def test_a_name_of_which_nothing_or_no_root_is_stored_is_no_alias(world: World) -> None:
    await trusts(world)
    main, lab = state_of(world, MAIN), state_of(world, LAB)
    pending = retrusted(lab, LAB, lab.fingerprints[-1])
    for load in (lambda _name: None, lambda _name: pending):
        assert list(stored_aliases(main, load)) == []
    assert list(stored_aliases(retrusted(main, MAIN, main.fingerprints[-1]), lambda _name: lab)) == []


def state_of(world: World, name: str) -> TrustState:
    found = world.store.load(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: domain(LAB), "does not name a.example"),
        (lambda: domain(LAB, "c.example"), "does not name a.example"),
        (lambda: domain(LAB, MAIN, keys_of="evil.example"), "root keys"),
    ],
)
async def test_an_alias_that_does_not_say_the_same_is_none(tmp_path: Path, made: object, why: str) -> None:
    lab: PublishedDomain = made()  # type: ignore[operator]
    world = World(tmp_path, domain(MAIN, LAB), lab)
    main, trust = await trusts(world)
    assert why in why_no_alias(trust, main)
    world.close()


async def test_a_domain_that_the_main_one_does_not_name_is_no_alias_of_it(tmp_path: Path) -> None:
    world = World(tmp_path, domain(MAIN, "other.example"), domain(LAB, MAIN))
    main, lab = await trusts(world)
    assert "does not name it" in why_no_alias(lab, main)
    world.close()


@pytest.mark.parametrize("root_keys", [("K2",), ("K1", "K2")])
async def test_a_key_set_that_differs_in_one_key_or_more_is_another_one(
    world: World, root_keys: tuple[str, ...]
) -> None:
    world.published[1].rotate_root(aliases=[MAIN], root_keys=root_keys)
    world.published[1].publish_live()
    main, lab = await trusts(world)
    assert "root keys" in why_no_alias(lab, main)


@pytest.mark.parametrize(
    ("main_level", "lab_level", "is_alias"),
    [
        (TrustLevel.WEB, TrustLevel.WEB, True),
        (TrustLevel.WEB, TrustLevel.DNSSEC, True),
        (TrustLevel.DNSSEC, TrustLevel.WEB, False),
        (TrustLevel.PINNED, TrustLevel.WEB, False),
        (TrustLevel.PINNED, TrustLevel.DNSSEC, False),
        (TrustLevel.PINNED, TrustLevel.PINNED, True),
    ],
)
async def test_an_alias_is_believed_at_the_level_of_its_main_domain_or_better(
    world: World, main_level: TrustLevel, lab_level: TrustLevel, is_alias: bool
) -> None:
    main, lab = await trusts(world)
    assert (why_no_alias(replace(lab, level=lab_level), replace(main, level=main_level)) == "") is is_alias


# What the settings say.


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        (LAB, True),
        ("us.example", False),
        ("us-lab.example", False),
        ("peer.example", False),
        ("barred.example", False),
        ("listed-for-another.example", False),
        (MAIN, False),
        ("A-lab.example", False),
        ("a-lab.example.", False),
        ("a-lab.example:443", False),
        ("localhost", False),
        ("127.0.0.1", False),
    ],
)
def test_our_own_names_peers_and_barred_domains_are_nobodys_aliases(name: str, may_be: bool) -> None:
    rules = AliasRules(
        own_domains=("us.example", "us-lab.example"),
        peers=(MAIN, "peer.example"),
        listed={"peer.example": ["listed-for-another.example"], MAIN: [name]},
        is_barred=lambda one: one == "barred.example",
    )
    assert rules.may_be_alias(name, MAIN) is may_be
    assert rules.listed(MAIN) == (frozenset({name}) if may_be else frozenset())


# Looking them up.


class Lookups:
    """Documents by name; `asked` are the names that were looked up, each `of` whom."""

    def __init__(self, *known: DomainTrust) -> None:
        self.known = {one.domain: one for one in known}
        self.asked: list[tuple[str, str]] = []
        self.stalls: Collection[str] = ()

    async def __call__(self, alias: str, *, of: str) -> DomainTrust:
        self.asked.append((alias, of))
        if alias in self.stalls:
            await trio.sleep_forever()
        if alias not in self.known:
            raise PeerError(Code.NO_SUCH_DOMAIN, "nobody there", domain=alias)
        return self.known[alias]


def test_a_domain_is_no_alias_of_itself() -> None:
    assert not AliasRules(listed={MAIN: [MAIN]}).may_be_alias(MAIN, MAIN)
    assert AliasRules(listed={MAIN: [MAIN, LAB]}).listed(MAIN) == {LAB}


async def test_of_what_is_claimed_only_what_is_proved_or_listed_counts(world: World) -> None:
    main, lab = await trusts(world)
    lookups = Lookups(lab)
    aliases = Aliases(AliasRules(own_domains=("us.example",), listed={MAIN: ["old.example"]}), lookups)
    claimed = [LAB, "old.example", "us.example", "nobody.example"]
    assert await aliases.proved(main, claimed) == {LAB, "old.example"}
    assert sorted(lookups.asked) == [(LAB, MAIN), ("nobody.example", MAIN)]


async def test_of_very_many_names_a_few_are_looked_up(world: World) -> None:
    main, _ = await trusts(world)
    lookups = Lookups()
    await Aliases(AliasRules(), lookups).proved(main, [f"n{number}.example" for number in range(100)])
    assert len(lookups.asked) == ALIASES_PER_PEER


@pytest.mark.usefixtures("autojump_clock")
async def test_a_name_that_is_not_found_in_time_does_not_count_and_holds_nobody_up(world: World) -> None:
    main, lab = await trusts(world)
    lookups = Lookups(lab)
    lookups.stalls = ["slow.example"]
    started = trio.current_time()
    assert await Aliases(AliasRules(), lookups).proved(main, [LAB, "slow.example"]) == {LAB}
    assert trio.current_time() - started == pytest.approx(ALIAS_SECONDS, abs=0.5)


@pytest.mark.usefixtures("autojump_clock")
@pytest.mark.parametrize(
    "rules",
    [
        AliasRules(peers=(LAB,), listed={MAIN: ["old.example"]}),
        AliasRules(is_barred=lambda name: name == LAB, listed={MAIN: ["old.example"]}),
        AliasRules(listed={"c.example": [LAB], MAIN: ["old.example"]}),
    ],
    ids=["a peer of its own", "barred", "listed for another"],
)
async def test_rules_that_change_during_a_look_up_count(world: World, rules: AliasRules) -> None:
    main, lab = await trusts(world)
    lookups = Lookups(lab)
    lookups.stalls = ["slow.example"]
    aliases = Aliases(AliasRules(listed={MAIN: ["old.example", "older.example"]}), lookups)
    found: list[frozenset[str]] = []

    async def look_up() -> None:
        found.append(await aliases.proved(main, [LAB, "old.example", "older.example", "slow.example"]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look_up)
        await trio.testing.wait_all_tasks_blocked()
        aliases.rules = rules
    assert found == [{"old.example"}]
