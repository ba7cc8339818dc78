"""What is recorded of requests about sessions that are refused."""

from __future__ import annotations

import pytest

from tests.support.state_rig import DOMAIN, StateRig


@pytest.mark.parametrize(
    ("type_", "from_", "codes"),
    [
        ("open", f"runtime://{DOMAIN}/rt/below", ["bad-header"]),
        ("open", f"hyperty://{DOMAIN}/h", ["bad-header"]),
        ("frobnicate", f"runtime://{DOMAIN}/rt", []),
    ],
)
def test_a_refused_open_is_recorded_and_an_unknown_verb_is_not(type_: str, from_: str, codes: list[str]) -> None:
    result = StateRig().session_verb(type_, from_, 1)
    assert [one.code for one in result.news] == codes


def test_an_unknown_session_is_of_no_runtime() -> None:
    rig = StateRig()
    sid, _ = rig.open("rt-ana", 1)
    assert rig.state.sessions.of_runtime(sid) == {sid}
    assert rig.state.sessions.of_runtime(sid + 1) == frozenset()
