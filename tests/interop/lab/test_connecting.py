"""A scene whose nodes take no sessions ends with an error, not never."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from interop.hostile.domain import HostileDomain
from interop.lab.actors import Notes
from interop.lab.clients import NewClient, connecting_to
from interop.lab.core.scene import Domain, Fault, LabScene, Runtime
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
