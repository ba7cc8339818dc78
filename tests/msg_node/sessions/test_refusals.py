"""What is recorded of requests about sessions that are refused."""

from __future__ import annotations

import pytest

from tests.support.state_house import DOMAIN, StateHouse


@pytest.mark.parametrize(
    ("type_", "from_", "codes"),
    [
        ("open", f"runtime://{DOMAIN}/rt/below", ["bad-header"]),
        ("open", f"hyperty://{DOMAIN}/h", ["bad-header"]),
        ("frobnicate", f"runtime://{DOMAIN}/rt", []),
    ],
)
def test_a_refused_open_is_recorded_and_an_unknown_verb_is_not(type_: str, from_: str, codes: list[str]) -> None:
    result = StateHouse().session_verb(type_, from_, 1)
    assert [one.code for one in result.news] == codes


def test_an_unknown_session_is_of_no_runtime() -> None:
    house = StateHouse()
    sid, _ = house.open("rt-ana", 1)
    assert house.state.sessions.of_runtime(sid) == {sid}
    assert house.state.sessions.of_runtime(sid + 1) == frozenset()
