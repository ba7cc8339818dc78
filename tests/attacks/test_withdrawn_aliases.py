"""Aliases that the operator takes back by a reload: no link says anything more in their name, at once.

The proofs of a link are checked again after a reload, but that may take as long as the other domain likes, and a link
that is to begin anew ends in good order first. Here b.example is linked to a node of ours by both ways.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from federation.core.carrier import CarrierUp
from federation.links.domain_link import DomainLink
from msg_node.settings.model import Settings
from msg_node.settings.tables.peers import PeerSettings
from tests.msg_node.wiring.test_every_setting import PROBE, Running, built, settings_of
from tests.support.sides import MemoryCarrier, text

ALIAS = "alias.example"
LISTED = {"peer": [{"aliases": [ALIAS]}]}


class Lasting(MemoryCarrier):
    """One that does not end however it is asked, as a far end that goes on sending."""

    def drain(self) -> None:
        """See `Carrier`."""


def with_peer(settings: Settings, **peer: object) -> Settings:
    entry = msgspec.convert(peer, PeerSettings)
    return msgspec.structs.replace(settings, peer=(*settings.peer, entry))


def says(link: DomainLink, carrier: MemoryCarrier, domain: str) -> int:
    """How many of four messages in the name of `domain` the border took for forgeries."""
    before = link.counters["spoofed"]
    link.inward.take([(0, text(f"hyperty://{domain}/x", "hyperty://a.example/y"))] * 4, "", carrier)
    return link.counters["spoofed"] - before


def linked(running: Running, channel: str, *proved: str) -> tuple[DomainLink, MemoryCarrier]:
    running.node.federation.reach("b.example", PROBE)
    [link] = running.node.federation.links
    carrier = Lasting(link, channel=channel)
    link.handle(CarrierUp(carrier, "", frozenset(proved)))  # of no proved node, so that forgeries end nothing here
    return link, carrier


@pytest.mark.parametrize("channel", ["peer", "stub"])
@pytest.mark.parametrize("change", ["listed no more", "listed for another", "a peer of its own", "barred"])
async def test_a_name_that_a_reload_takes_from_a_domain_is_spoken_for_no_more(
    tmp_path: Path, change: str, channel: str
) -> None:
    before = settings_of(tmp_path, LISTED)
    bare = settings_of(tmp_path)
    after = {
        "listed no more": bare,
        "listed for another": with_peer(bare, domain="c.example", aliases=(ALIAS,)),
        "a peer of its own": with_peer(bare, domain=ALIAS),
        "barred": settings_of(tmp_path, LISTED, {"policy": {"deny": [ALIAS]}}),
    }[change]
    async with built(tmp_path) as running:
        (await running.plan(before)).apply()
        link, carrier = linked(running, channel, "b.example", ALIAS)
        assert says(link, carrier, ALIAS) == 0
        (await running.plan(after)).apply()
        assert says(link, carrier, ALIAS) > 0
        assert link.inward.domains() == {"b.example"}
        assert says(link, carrier, "b.example") == 0


async def test_a_proved_alias_is_lost_to_an_entry_of_its_own_and_others_stay(tmp_path: Path) -> None:
    async with built(tmp_path) as running:
        link, carrier = linked(running, "peer", "b.example", ALIAS, "other.example")
        (await running.plan(with_peer(settings_of(tmp_path), domain=ALIAS))).apply()
        assert link.inward.domains() == {"b.example", "other.example"}
        assert says(link, carrier, "other.example") == 0


async def test_a_reload_that_says_nothing_about_aliases_leaves_what_was_proved(tmp_path: Path) -> None:
    async with built(tmp_path) as running:
        link, carrier = linked(running, "peer", "b.example", ALIAS)
        (await running.plan(settings_of(tmp_path, {"limits": {"links": 9}}))).apply()
        assert says(link, carrier, ALIAS) == 0
