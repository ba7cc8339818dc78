"""Who may have the session of a node that has died: by token or good proof; without one, anybody."""

from __future__ import annotations

import msgspec
import pytest

from msg_node.bus.core.moved_session import Asked, may_have
from msg_node.kernel.credentials import Credential, digest_of
from protofly.errors import Code
from tests.support.runtime_rig import runtime_address
from tests.support.state_rig import StateRig

ANA = runtime_address("ana")
NOW = 1000.0


@pytest.mark.parametrize(
    ("stored", "asked", "is_given"),
    [
        ("", Asked(runtime_key=ANA), True),
        ("ana", Asked(runtime_key=ANA), False),
        ("ana", Asked(runtime_key=ANA, credential=digest_of("eve")), False),
        ("ana", Asked(runtime_key=ANA, credential=digest_of("ana")), True),
        ("ana", Asked(runtime_key=ANA, credential=digest_of("eve"), is_in_full=True), True),
        ("ana", Asked(runtime_key=ANA, session_address=f"{ANA}/token"), True),
    ],
)
def test_session_of_a_dead_node_goes_to_its_token_or_a_good_proof(stored: str, asked: Asked, is_given: bool) -> None:
    rig = StateRig(credentials=[Credential(digest_of("ana"), ANA)])
    sid, _ = rig.open("ana", 1)
    session = rig.state.sessions.get(sid)
    assert session is not None
    row = msgspec.structs.replace(session.row(), credential=stored and digest_of(stored))
    refused = may_have(rig.state, asked, row, now=NOW)
    assert (refused is None) is is_given
    assert refused is None or refused.code is Code.ADDRESS_TAKEN
