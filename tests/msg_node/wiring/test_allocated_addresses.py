"""Which addresses stubs may hear of: what our runtimes own; not what is lent, nor what guests have."""

from __future__ import annotations

from msg_node.addresses.core.allocation import Block
from msg_node.wiring.allocated_addresses import AllocatedAddresses
from protofly.address import canonical_key
from tests.support.state_rig import DOMAIN, StateRig

POOL = {"sip": [f"sip://one@{DOMAIN}", f"sip://two@{DOMAIN}"]}
ROOM = f"comm://{DOMAIN}/room"


def block(scheme: str, seed: int, *, is_guest: bool = False) -> Block:
    return Block(scheme, DOMAIN, 1, "", bytes([seed]) * 16, is_guest)


def test_addresses_of_our_runtimes_are_shown_while_they_last() -> None:
    rig = StateRig(pools=POOL)
    owners = rig.state.owners
    addresses, changes = AllocatedAddresses(rig.state), list[None]()
    stop = addresses.follow("b.example", lambda: changes.append(None))
    sid, _ = rig.open("anna", 1)
    [hyperty] = owners.allocate(sid, block("hyperty", 1))
    assert owners.claim(sid, ROOM)
    owners.allocate(sid, block("sip", 2))
    owners.allocate(sid, block("hyperty", 3, is_guest=True))
    assert list(addresses.now("b.example")) == [hyperty, ROOM]
    assert len(changes) == 4
    owners.release([sid], canonical_key(hyperty))
    assert (list(addresses.now("b.example")), len(changes)) == ([ROOM], 5)
    stop()
    owners.release_all(sid)
    assert (list(addresses.now("b.example")), len(changes)) == ([], 5)
