"""The participants of a group chat, the object that they share, and the account of what each must receive."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import trio

from interop.ledger import Ledger
from interop.participant import AccessPoint, Participant, RoomState, as_text
from interop.scene import Scene

SETTLE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.005


class Cast:
    """The participants of a scene: one of them reports the object, the others observe it."""

    def __init__(self, scene: Scene, access_points: Mapping[str, AccessPoint]) -> None:
        self.scene = scene
        self.ledger = Ledger()
        self.room = RoomState()
        self.people = [
            Participant(person, access_points[person.domain], self.room, self.ledger) for person in scene.person
        ]
        self.by_name = {participant.name: participant for participant in self.people}
        self.reporter = self.by_name[scene.room.reporter]
        self.observers = [participant for participant in self.people if participant is not self.reporter]
        self.abroad = next(participant for participant in self.people if participant.domain != self.reporter.domain)

    def everybody_but(self, speaker: Participant) -> list[Participant]:
        """All participants except the speaker."""
        return [person for person in self.people if person is not speaker]

    def enter_due(
        self, speaker: Participant, receivers: list[Participant], subject: str, number: int, value: object
    ) -> None:
        """Note that each receiver must get this value from the speaker, now."""
        now_ns, text = time.monotonic_ns(), as_text(value)
        for receiver in receivers:
            crosses = receiver.domain != speaker.domain
            flow = self.ledger.flow(speaker.name, receiver.name, subject, crosses=crosses)
            flow.enter_due(number, text, now_ns)

    async def settle(self, subject: str) -> None:
        """Wait until everything due about `subject` has come, or until nothing has come for `SETTLE_SECONDS`."""
        seen, deadline = -1, 0.0
        while self.ledger.due(subject):
            delivered = self.ledger.totals().delivered
            if delivered != seen:
                seen, deadline = delivered, trio.current_time() + SETTLE_SECONDS
            elif trio.current_time() > deadline:
                return
            await trio.sleep(_LOOK_SECONDS)
