"""The group chat of the message specification, played by independent runtimes against real nodes.

Theory of operation: `GroupChat.run` is one straight line of steps, each an exchange of the specification (sections
5.1, 7 to 10). Every step is
reported with its time. What is said is entered into the `Ledger` when it is sent and when it arrives, and compared
at the end.
The first message that leaves a domain is the look-up of the other user: its round trip is the first contact.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from interop.chat_cast import Cast
from interop.chat_membership import (
    allocate,
    close,
    find,
    give_back,
    invite,
    leave_room,
    listen,
    observe,
    register,
)
from interop.participant import CHANGES, CHAT, GOODBYE, AccessPoint, Participant
from interop.runtime_client import Answer
from interop.scene import Forbidden, Scene

_BIG: Final = 2**60  # beyond the integers that a float holds: must pass unrounded (message specification, section 1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatStep:
    """One finished step of the conversation."""

    title: str
    detail: str
    taken_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A message that must be refused, and its answer."""

    item: Forbidden
    answer: Answer

    @property
    def is_as_expected(self) -> bool:
        """True if it was refused with the foreseen code and reason."""
        return (self.answer.code, self.answer.reason) == (self.item.code, self.item.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One message that was followed: times are monotonic microseconds at the runtimes."""

    trace: str
    speaker: str
    receiver: str
    sent_at_us: int
    arrived_at_us: int | None


class GroupChat:
    """One performance of a scene."""

    def __init__(
        self, scene: Scene, access_points: Mapping[str, AccessPoint], *, trace: str, on_step: Callable[[ChatStep], None]
    ) -> None:
        self.cast = Cast(scene, access_points)
        self.ledger, self.room = self.cast.ledger, self.cast.room
        self.refusals: list[Refusal] = []
        self.first_contact_ns = 0
        self.traced: Traced | None = None
        self._scene = scene
        self._on_step = on_step
        self._trace = trace
        self._trace_sent_us = 0

    @property
    def uncalled_for(self) -> list[str]:
        """Messages that reached somebody and fit nothing in the conversation: errors, strays, copies to oneself."""
        return [f"{person.name}: {text}" for person in self.cast.people for text in person.uncalled_for]

    @property
    def is_faultless(self) -> bool:
        """True if everything arrived once, equal and in order, and everything forbidden was refused as foreseen."""
        return (
            self.ledger.totals().is_faultless
            and not self.uncalled_for
            and all(refusal.is_as_expected for refusal in self.refusals)
        )

    async def run(self) -> None:
        """Play the scene from the first `open` to the last `close`.

        Raises:
            UnexpectedAnswerError: A party answered otherwise than the scene foresees.
            TransportError: A connection failed or an answer did not come.
        """
        async with trio.open_nursery() as nursery:
            for participant in self.cast.people:
                await self._step(
                    f"{participant.name} opens a session", participant.person.runtime, nursery.start, participant.run
                )
            for title, act in (
                ("hyperties get addresses", partial(allocate, self.cast)),
                ("hyperties and the room are registered", partial(register, self.cast)),
                ("first contact: look-up of a user of the other domain", self._look_up),
                ("look-up in the opposite direction", self._look_up_back),
                ("the reporter listens to the room", partial(listen, self.cast)),
                ("invitations are sent and accepted", partial(invite, self.cast)),
                ("observers subscribe", partial(observe, self.cast)),
                ("chat in both directions", self._chat),
                ("changes of the room", self._change),
                ("forbidden messages are refused", self._try_forbidden),
                ("observers unsubscribe", partial(leave_room, self.cast)),
                ("after leaving, silence", self._goodbye),
                ("entries are unregistered, addresses released", partial(give_back, self.cast)),
                ("sessions are closed", partial(close, self.cast)),
            ):
                await self._step(title, "", act)

    async def _look_up(self) -> str:
        seeker, sought = self.cast.reporter, self.cast.abroad
        self.first_contact_ns = await find(seeker, sought)
        return f"{seeker.name} finds {sought.name}"

    async def _look_up_back(self) -> str:
        seeker, sought = self.cast.abroad, self.cast.reporter
        await find(seeker, sought)
        return f"{seeker.name} finds {sought.name}"

    async def _step(self, title: str, detail: str, act: Callable[..., object], *arguments: object) -> None:
        began = time.perf_counter()
        outcome = await act(*arguments)  # type: ignore[misc]  # every act is an async function
        taken_ms = (time.perf_counter() - began) * 1e3
        self._on_step(ChatStep(title=title, detail=outcome if isinstance(outcome, str) else detail, taken_ms=taken_ms))

    async def _chat(self) -> str:
        async with trio.open_nursery() as nursery:
            for name in self._scene.chat.speakers:
                nursery.start_soon(self._speak, self.cast.by_name[name])
        await self.cast.settle(CHAT)
        self._note_trace()
        return f"{self._scene.chat.messages_each:,} messages from each of {' and '.join(self._scene.chat.speakers)}"

    async def _speak(self, speaker: Participant) -> None:
        chat = self._scene.chat
        began = trio.current_time()
        for number in range(1, chat.messages_each + 1):
            value: dict[str, object] = {
                "text": f"{number}: Grüße aus {speaker.domain}, “{self._scene.room.name}” 🌉",
                "number": _BIG + number,
            }
            body: dict[str, object] = {"resource": f"{speaker.hyperty}#{number}", "value": value}
            if speaker.name == self._scene.chat.speakers[0] and number == (chat.messages_each + 1) // 2:
                body["trace"] = self._trace
                self._trace_sent_us = time.monotonic_ns() // 1000
            self.cast.enter_due(speaker, self.cast.everybody_but(speaker), CHAT, number, value)
            await speaker.client.notify("create", speaker.hyperty, self.room.messages, body)
            await trio.sleep_until(began + number / chat.messages_per_second)

    def _note_trace(self) -> None:
        speaker = self.cast.by_name[self._scene.chat.speakers[0]]
        receiver = next(person for person in self.cast.people if person.domain != speaker.domain)
        self.traced = Traced(
            trace=self._trace,
            speaker=speaker.person.runtime,
            receiver=receiver.person.runtime,
            sent_at_us=self._trace_sent_us,
            arrived_at_us=receiver.traced_at_us.get(self._trace),
        )

    async def _change(self) -> str:
        for _ in range(self._scene.changes.updates):
            await self._announce(self.cast.observers)
        await self.cast.settle(CHANGES)
        return f"{self._scene.changes.updates} updates, version {self.room.version}"

    async def _announce(self, observers: list[Participant]) -> None:
        self.room.version += 1
        value = f"{self._scene.room.topic}, draft {self.room.version}"
        self.room.data["topic"] = value
        self.cast.enter_due(self.cast.reporter, observers, CHANGES, self.room.version, value)
        await self.cast.reporter.client.notify(
            "update",
            self.room.address,
            self.room.changes,
            {"attribute": "topic", "value": value, "version": self.room.version, "source": self.cast.reporter.hyperty},
        )

    async def _try_forbidden(self) -> str:
        for item in self._scene.forbidden:
            speaker = self.cast.by_name[item.speaker]
            body = {"value": {"url": speaker.hyperty, "user": speaker.person.user}}
            answer = await speaker.client.request(item.type, speaker.hyperty, item.to, body)
            self.refusals.append(Refusal(item=item, answer=answer))
        return ", ".join(f"{refusal.answer.code} {refusal.answer.reason}" for refusal in self.refusals)

    async def _goodbye(self) -> str:
        """One more change, due at nobody, then an event that must arrive: the order of both proves the silence."""
        await self._announce([])
        for observer in self.cast.observers:
            self.cast.enter_due(self.cast.reporter, [observer], GOODBYE, 1, "goodbye")
            await self.cast.reporter.client.notify(
                "event", self.cast.reporter.hyperty, observer.hyperty, {"number": 1, "value": "goodbye"}
            )
        await self.cast.settle(GOODBYE)
        return "a change reached nobody, a direct message everybody"
