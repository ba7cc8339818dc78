"""Aliases over a link: self-asserted ones count for nothing, proved ones for their connection, as long as proved.

Trust and hosts, section 7, row 57. Here b.example is visited by a.example; c.example is its neighbour.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from catalogue_client.core.state import DomainTrust
from federation.core.alias_rules import AliasRules
from federation.core.carrier import CarrierDown, CarrierProved, CarrierUp
from federation.links.peer_session import RECHECK_SECONDS
from protofly.errors import PeerError
from protofly.limits import PING_SECONDS
from tests.support.link_endpoint import Documents, LinkClient, LinkRig, link_rig, make_world
from tests.support.repository import PublishedDomain, World
from tests.support.sides import Aliases, Bus, MemoryCarrier, Pair, inbound, node_of, text

US, THEM, LAB = "hyperty://b.example/bo", "hyperty://a.example/ana", "hyperty://a-lab.example/lab"
NEIGHBOUR = "hyperty://c.example/carl"
STREAM = "5" * 32


class AliasRig(LinkRig):
    """b.example as it believes aliases by `rules`; a.example claims `claimed`."""

    claimed: list[str]

    @asynccontextmanager
    async def visitor(self, stream: str = "a" * 32) -> AsyncIterator[LinkClient]:
        identity = self.documents.identity("a.example", domains=["a.example", *self.claimed])
        async with self.live_client(identity, stream=stream) as client:
            yield client


def publish_aliases(documents: Documents, domain: str, *aliases: str) -> None:
    published = documents.published[domain]
    published.rotate_root(aliases=list(aliases))
    documents.publish_keys(domain, documents.keys[domain])


@asynccontextmanager
async def alias_rig(
    folder: Path, *claimed: str, rules: AliasRules | None = None, lab: PublishedDomain | None = None
) -> AsyncIterator[AliasRig]:
    lab = lab or PublishedDomain("a-lab.example", keys_of="a.example")
    base = make_world(folder / "base")
    world = World(folder, *base.published, lab, PublishedDomain("c.example"))
    base.close()
    async with link_rig(world) as rig:
        rig.__class__ = AliasRig
        assert isinstance(rig, AliasRig)
        rig.claimed = list(claimed)
        documents = rig.documents
        publish_aliases(documents, "a.example", *claimed)
        publish_aliases(documents, "a-lab.example", "a.example")
        rig.endpoint.acceptor.identity = documents.identity("b.example", rules=rules or AliasRules())
        yield rig
    world.close()


async def senders_heard(rig: LinkRig, client: LinkClient, *senders: str) -> list[str]:
    """Who of `senders` is heard, between two messages of a.example itself."""
    before = len(rig.bus.delivered)
    client.send_messages(*[text(name, US) for name in (THEM, *senders, THEM)])
    await rig.wait_until(lambda: [one.from_ for one in rig.bus.delivered[before:]].count(THEM) == 2)
    return [one.from_ for one in rig.bus.delivered[before:] if one.from_ != THEM]


async def test_a_neighbour_named_as_an_alias_in_the_own_root_is_not_spoken_for(tmp_path: Path) -> None:
    async with alias_rig(tmp_path, "c.example") as rig, rig.visitor() as client:
        assert await senders_heard(rig, client, NEIGHBOUR, "domain://registry.c.example") == []
        assert rig.link.inward.domains() == {"a.example"}
        assert rig.link.inward.forged_names.most(8) == {NEIGHBOUR: 1, "domain://registry.c.example": 1}


async def test_a_proved_alias_is_spoken_for_and_a_third_forgery_beside_it_ends_the_connection(tmp_path: Path) -> None:
    async with alias_rig(tmp_path, "a-lab.example", "c.example") as rig:
        async with rig.visitor() as client:
            assert await senders_heard(rig, client, LAB, NEIGHBOUR) == [LAB]
            assert rig.link.inward.domains() == {"a.example", "a-lab.example"}
            client.send_messages(*[text(NEIGHBOUR, US)] * 2, first=9)
            assert await client.code_of_bye() == "spoofed-source"
        await rig.wait_until(lambda: not rig.link.is_live)
        assert rig.link.inward.domains() == {"a.example"}


@pytest.mark.parametrize(
    "rules",
    [
        AliasRules(peers=("a-lab.example",)),
        AliasRules(is_barred=lambda name: name == "a-lab.example"),
        AliasRules(own_domains=("a-lab.example",)),
        AliasRules(listed={"c.example": ["a-lab.example"]}),
    ],
    ids=["peer of its own", "barred", "ours", "listed for another"],
)
async def test_no_documents_make_these_names_aliases(tmp_path: Path, rules: AliasRules) -> None:
    async with alias_rig(tmp_path, "a-lab.example", rules=rules) as rig, rig.visitor() as client:
        assert await senders_heard(rig, client, LAB) == []
        assert not rig.documents.claimed


async def test_an_alias_with_other_root_keys_is_not_spoken_for(tmp_path: Path) -> None:
    stranger = PublishedDomain("a-lab.example")
    async with alias_rig(tmp_path, "a-lab.example", lab=stranger) as rig, rig.visitor() as client:
        assert await senders_heard(rig, client, LAB) == []


async def test_an_alias_that_takes_its_word_back_is_not_spoken_for_any_more(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with alias_rig(tmp_path, "a-lab.example") as rig, rig.visitor() as client:
        assert await senders_heard(rig, client, LAB) == [LAB]
        publish_aliases(rig.documents, "a-lab.example")
        await rig.documents.trust_of("a-lab.example", is_refresh=True)
        client.patience_seconds = float("inf")
        for _ in range(int(RECHECK_SECONDS / PING_SECONDS) + 1):
            await trio.testing.wait_all_tasks_blocked(0.0005)
            mock_clock.jump(PING_SECONDS)
            await trio.testing.wait_all_tasks_blocked(0.0005)
            if rig.link.inward.domains() == {"a.example"}:
                break
        assert rig.link.inward.domains() == {"a.example"}


async def test_renewed_documents_are_looked_at_at_once(tmp_path: Path) -> None:
    async with alias_rig(tmp_path, "a-lab.example") as rig, rig.visitor() as client:
        assert await senders_heard(rig, client, LAB) == [LAB]
        publish_aliases(rig.documents, "a-lab.example")
        await rig.documents.trust_of("a-lab.example", is_refresh=True)
        rig.endpoint.acceptor.identity.documents_renewed("a-lab.example")
        await rig.wait_until(lambda: rig.link.inward.domains() == {"a.example"})
        client.send_messages(text(LAB, US), text(THEM, US), first=9)
        await rig.wait_until(lambda: rig.link.counters["spoofed"] == 1)
        assert rig.link.is_live


async def test_what_is_renewed_while_a_proof_is_checked_has_it_checked_again_at_once(tmp_path: Path) -> None:
    async with alias_rig(tmp_path, "a-lab.example") as rig:
        identity, documents, answer = rig.endpoint.acceptor.identity, rig.documents, trio.Event()
        aliases = identity._aliases
        assert aliases is not None

        async def drawn_out(alias: str, *, of: str) -> DomainTrust:
            before = await documents.alias_trust_of(alias, of=of)
            await answer.wait()
            return before

        async with rig.visitor() as client:
            assert await senders_heard(rig, client, LAB) == [LAB]
            aliases._trust_of = drawn_out
            identity.documents_renewed("a.example")
            await rig.wait_until(lambda: documents.claimed["a-lab.example", "a.example"] == 2)
            publish_aliases(documents, "a-lab.example")
            await documents.trust_of("a-lab.example", is_refresh=True)
            identity.documents_renewed("a-lab.example")
            answer.set()
            await rig.wait_until(lambda: rig.link.inward.domains() == {"a.example"})


async def test_what_is_renewed_while_a_visitor_proves_itself_has_its_proof_checked_again(tmp_path: Path) -> None:
    async with alias_rig(tmp_path, "a-lab.example") as rig:
        identity, documents = rig.endpoint.acceptor.identity, rig.documents
        aliases = identity._aliases
        assert aliases is not None

        async def drawn_out(alias: str, *, of: str) -> DomainTrust:
            before = await documents.alias_trust_of(alias, of=of)
            aliases._trust_of = documents.alias_trust_of
            publish_aliases(documents, "a-lab.example")
            await documents.trust_of("a-lab.example", is_refresh=True)
            identity.documents_renewed("a-lab.example")
            return before

        aliases._trust_of = drawn_out
        async with rig.visitor():
            await rig.wait_until(lambda: documents.claimed["a-lab.example", "a.example"] == 2)
            await rig.wait_until(lambda: rig.link.inward.domains() == {"a.example"})


# What was proved belongs to the connection.


def live(pair: Pair, *domains: str, origin: str = "") -> MemoryCarrier:
    carrier = pair.back()
    carrier.origin = origin
    pair.to_a.handle(CarrierUp(carrier, node_of("a.example"), domains=frozenset(domains)))
    return carrier


def test_a_connection_speaks_for_what_was_proved_on_it_and_not_on_another() -> None:
    pair = Pair()
    wide, narrow = live(pair, "a.example", "a-lab.example"), live(pair, "a.example")
    for carrier, heard in ((wide, 1), (narrow, 1), (None, 1), (wide, 2)):
        pair.to_a.inbound([(0, text(LAB, US))], "", carrier)
        assert len(pair.b.delivered) == heard


def test_what_was_proved_is_gone_with_its_connection_and_the_next_one_proves_anew() -> None:
    pair = Pair()
    first = live(pair, "a.example", "a-lab.example")
    pair.to_a.handle(CarrierDown(first))
    assert pair.to_a.inward.domains() == {"a.example"}
    second = live(pair, "a.example")
    for carrier in (first, second):
        pair.to_a.inbound([(0, text(LAB, US))], "", carrier)
    assert pair.b.delivered == []


def test_a_connection_that_is_replaced_takes_its_proof_along() -> None:
    pair = Pair()
    live(pair, "a.example", "a-lab.example", origin="s")
    live(pair, "a.example", origin="s")
    assert pair.to_a.inward.domains() == {"a.example"}


def test_a_sender_that_was_heard_before_is_judged_anew_when_domains_shrink() -> None:
    pair = Pair()
    carrier = live(pair, "a.example", "a-lab.example")
    pair.to_a.inbound(inbound(text(LAB, US)), STREAM, carrier)
    pair.to_a.handle(CarrierProved(carrier, frozenset({"a.example"})))
    pair.to_a.inbound(inbound(text(LAB, US), text(THEM, US), first=2), STREAM, carrier)
    assert [one.from_ for one in pair.b.delivered] == [LAB, THEM]


def test_forgeries_of_one_connection_do_not_end_another() -> None:
    pair = Pair()
    forger, honest = live(pair, "a.example"), live(pair, "a.example")
    pair.to_a.inbound([(0, text(NEIGHBOUR, US)), (0, text(NEIGHBOUR, US))], "", forger)
    pair.to_a.inbound([(0, text(NEIGHBOUR, US)), (0, text(THEM, US))], "", honest)
    assert (len(pair.b.delivered), pair.to_a.counters["spoofed"]) == (1, 3)


def test_an_alias_that_the_operator_lists_needs_no_proof() -> None:
    pair = Pair(b=Bus("b.example", aliases=Aliases(listed=lambda _: frozenset({"a-lab.example"}))))
    carrier = live(pair)
    pair.to_a.inbound(inbound(text(LAB, US), text(NEIGHBOUR, US)), STREAM, carrier)
    assert [one.from_ for one in pair.b.delivered] == [LAB]


# A far end that has proved nothing: its users forge, and it cannot know.


def test_forged_senders_of_a_far_end_that_checks_none_cost_nobody_else() -> None:
    pair = Pair()
    carrier = pair.back()
    pair.to_a.handle(CarrierUp(carrier, ""))
    forged = [(0, text(f"hyperty://c.example/{number % 3}", US)) for number in range(500)]
    pair.to_a.inbound([*forged, (0, text(THEM, US))], "", carrier)
    pair.to_a.inbound(forged, "", carrier)
    assert [one.from_ for one in pair.b.delivered] == [THEM]
    assert pair.to_a.is_live
    assert pair.to_a.counters["spoofed"] == 1000
    assert pair.to_a.inward.forged_names.most(8)["hyperty://c.example/0"] == 334
    assert 3 < pair.b.events.count("spoofed") <= 60


def test_a_node_that_has_proved_itself_answers_for_its_senders() -> None:
    pair = Pair()
    carrier = live(pair)
    forged = [(0, text(NEIGHBOUR, US))] * 3
    with pytest.raises(PeerError, match="spoofed-source"):
        pair.to_a.inbound(forged, "", carrier)
