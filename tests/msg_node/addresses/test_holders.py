"""Who answers for an address, as a table: owners, runtimes, reporters, the node itself."""

from __future__ import annotations

import pytest

from msg_node.addresses.core.holders import NODE_ITSELF, Holders
from tests.msg_node.bus.test_router import ROOM, Rig
from tests.support.runtime_rig import DOMAIN

NODE = f"runtime://{DOMAIN}/mn-1"
FREE = f"comm://{DOMAIN}/free"


@pytest.fixture
def holders() -> Holders:
    """Session 1 is ana's and owns a room; session 2 is bo's and takes the subscriptions of what nobody owns."""
    rig = Rig(nodes=[NODE])
    ana, bo = rig.session("ana"), rig.session("bo")
    rig.state.owners.claim(ana, ROOM)
    rig.state.owners.claim(bo, f"runtime://{DOMAIN}/p2phandler/7")
    rig.listen(bo, f"{FREE}/subscription")
    return rig.state.holders


@pytest.mark.parametrize(
    ("key", "holder", "reporter"),
    [
        (ROOM, 1, 1),
        (f"{ROOM}/changes", 1, 1),
        (f"{ROOM}/children/m", 1, 1),
        (f"{ROOM}/a/b", 1, 1),
        (f"{ROOM}-2", None, None),
        (f"runtime://{DOMAIN}/ana", 1, 1),
        (f"runtime://{DOMAIN}/ana/sm", 1, 1),
        (f"runtime://{DOMAIN}/bo/x", 2, 2),
        (f"runtime://{DOMAIN}/nobody", None, None),
        (f"runtime://{DOMAIN}/p2phandler/7", 2, 2),
        (f"runtime://{DOMAIN}/p2phandler/7/status", 2, 2),
        (f"runtime://{DOMAIN}/p2phandler/8", None, None),
        (NODE, NODE_ITSELF, NODE_ITSELF),
        (f"{NODE}/status", NODE_ITSELF, NODE_ITSELF),
        (FREE, None, 2),
        (f"{FREE}/subscription", None, 2),
        (f"{FREE}/changes", None, 2),
        (f"{FREE}/children/m", None, 2),
        ("plain", None, None),
    ],
)
def test_who_answers_for_an_address(holders: Holders, key: str, holder: int | None, reporter: int | None) -> None:
    assert holders.holder(key) == holder
    assert holders.reporter_of(key) == reporter
    assert holders.speaker_of(key) == (None if holder == NODE_ITSELF else holder)
    assert holders.is_of_node(key) is (holder == NODE_ITSELF)
