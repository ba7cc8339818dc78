"""A domain that an operator has cut off goes on under another name of its own, or takes a neighbour down with it.

Here a.example is cut off by b.example; a-lab.example is its alias, c.example a neighbour that it only claims.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federation.links.visitors import greeting
from msg_node.admin.blocked_names import blocked_names, known_aliases
from msg_node.kernel.changes import Journal
from msg_node.kernel.restrictions import Restricted, Restriction, Restrictions
from msg_node.settings.model import Settings
from policy.core.gate import Gate, PeerRule
from policy.core.model import Facts
from protofly.errors import Code
from tests.attacks.test_link_aliases import alias_rig, senders_heard
from tests.support.repository import PublishedDomain, World

BLOCK = Restriction(what=Restricted.PEER, subject="a.example", reason="", by="root", since=1.0)


def settings(*peers: dict[str, Any]) -> Settings:
    plain = {"node": {"domain": "b.example", "data_dir": "/data"}, "peer": peers}
    return msgspec.convert(plain, Settings, dec_hook=lambda type_, value: type_(value))


def blocked(restriction: Restriction, chosen: Settings) -> frozenset[str]:
    restrictions = Restrictions(Journal())
    restrictions.set(restriction)
    return blocked_names(restrictions, chosen.peer)


def code_of(gate: Gate, domain: str) -> Code | None:
    """What the gate says to a node that comes as `domain`."""
    probe = greeting(f"runtime://{domain}/mn", "runtime://b.example/mn")
    return gate.judge(Facts("peer", probe, domain, domain, domain, len(probe.raw), 0, time.time())).code


def published(name: str, *aliases: str, keys_of: str = "a.example") -> PublishedDomain:
    made = PublishedDomain(name, keys_of=keys_of)
    made.rotate_root(aliases=list(aliases))
    made.publish_live()
    return made


async def test_a_domain_that_was_cut_off_does_not_come_back_under_an_alias_that_was_proved(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        published("a.example", "a-lab.example", "c.example", "d.example"),
        published("a-lab.example", "a.example"),
        published("c.example", keys_of="c.example"),
        published("d.example", "a.example", keys_of="d.example"),
    )
    for one in world.published:
        await world.refresh(one)
    gate = Gate(None, {"*": PeerRule()})
    assert [code_of(gate, name) for name in ("a.example", "a-lab.example", "c.example")] == [None, None, None]

    aliases = known_aliases(BLOCK, settings(), [], world.store)
    assert aliases == ("a-lab.example",)
    stored = msgspec.structs.replace(BLOCK, aliases=aliases)
    gate.cut_off(blocked(stored, settings()))
    assert [code_of(gate, name) for name in ("a.example", "a-lab.example")] == [Code.DOMAIN_BLOCKED] * 2
    assert [code_of(gate, name) for name in ("c.example", "d.example", "b-lab.example")] == [None] * 3
    world.close()


async def test_what_a_link_has_proved_is_cut_off_and_what_its_node_only_claims_is_not(tmp_path: Path) -> None:
    async with alias_rig(tmp_path, "a-lab.example", "c.example") as rig, rig.visitor() as client:
        assert await senders_heard(rig, client, "hyperty://a-lab.example/lab") == ["hyperty://a-lab.example/lab"]
        empty = World(tmp_path / "nothing")
        assert known_aliases(BLOCK, settings(), [rig.link], empty.store) == ("a-lab.example",)
        others = msgspec.structs.replace(BLOCK, subject="c.example")
        assert known_aliases(others, settings(), [rig.link], empty.store) == ()
        empty.close()


async def test_an_alias_with_an_entry_of_its_own_is_a_peer_by_itself(tmp_path: Path) -> None:
    world = World(tmp_path, published("a.example", "a-lab.example"), published("a-lab.example", "a.example"))
    for one in world.published:
        await world.refresh(one)
    assert known_aliases(BLOCK, settings({"domain": "a-lab.example"}), [], world.store) == ()
    world.close()


@pytest.mark.parametrize("subject", ["a.example", "*.example"])
def test_an_alias_that_the_settings_list_later_is_cut_off_too(subject: str) -> None:
    restriction = msgspec.structs.replace(BLOCK, subject=subject)
    listing = settings({"domain": "a.example", "aliases": ["other.test"]}, {"domain": "c.test", "aliases": ["d.test"]})
    assert blocked(restriction, listing) == {subject, "other.test"}
