"""How a scene begins and ends: with an error where nodes take no sessions, and patiently on a crowded machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from interop.hostile.domain import HostileDomain
from interop.lab.actors import Notes
from interop.lab.clients import NewClient, connecting_to
from interop.lab.core.scene import Domain, Fault, LabScene, Runtime
from interop.lab.core.seen import Sent
from interop.lab.run import Play
from interop.participant import AccessPoint
from protofly.errors import Code, TransportError

SCENE = LabScene(
    title="t",
    domain=(Domain(name="a.example"), Domain(name="b.example")),
    runtime=(Runtime(name="anna", domain="a.example"),),
)


class DeafWorld:
    """Nobody listens."""

    def __init__(self) -> None:
        self.hostile: list[HostileDomain] = []

    def clients_of(self, domain: str) -> NewClient:
        assert domain
        return connecting_to([lambda: AccessPoint(url="ws://127.0.0.1:1/ws")])

    async def introduce(self, addresses: Sequence[str]) -> None:
        raise AssertionError(addresses)

    async def suffer(self, fault: Fault, notes: Notes) -> None:
        raise AssertionError(fault, notes)

    async def running(self, domain: str) -> dict[str, str]:
        raise AssertionError(domain)

    async def hops(self, domain: str) -> dict[str, list[tuple[str, float]]]:
        raise AssertionError(domain)


async def test_a_scene_in_which_a_runtime_gets_no_session_ends_and_names_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(
            TransportError, check=lambda error: error.code is Code.NOT_CONNECTED and "anna" in error.detail
        )
    ):
        await Play(SCENE, DeafWorld(), None).run()
    assert autojump_clock.current_time() >= 60


@pytest.mark.parametrize(("crowd", "least", "most"), [(1.0, 3, 6), (4.0, 12, 15)])
async def test_what_is_under_way_gets_more_time_where_more_want_a_processor_than_there_are(
    autojump_clock: trio.testing.MockClock, crowd: float, least: float, most: float
) -> None:
    play = Play(SCENE, DeafWorld(), None, crowd=lambda: crowd)
    lost = Sent(key=("anna", "anna", 1), kind="event", at=-1.0, digest="d", trace="t", record_id="r")
    play.notes.seen.sent.append(lost)
    began = autojump_clock.current_time()
    await play._settle()
    assert least <= autojump_clock.current_time() - began <= most
