"""The group chat of the message specification, played by independent runtimes against real nodes.

Theory of operation: `GroupChat.run` is one straight line of steps, each an exchange of the specification (sections
5.1, 7 to 10). Every step is
reported with its time. What people say is entered into the `Ledger` when it is sent and when it arrives; the books
are closed at the end.
The first message that leaves a domain is the look-up of the other user: its round trip is the first contact.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import trio

from interop.ledger import Ledger
from interop.participant import CHANGES, CHAT, FAREWELL, Door, Participant, RoomState, as_text
from interop.runtime_client import Answer, UnexpectedAnswerError
from interop.scene import Forbidden, Scene

SETTLE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.005
_BIG: Final = 2**60  # beyond the integers that a float holds: must pass unrounded (message specification, section 1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One finished step of the conversation."""

    title: str
    detail: str
    taken_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What happened to a message that must be refused."""

    item: Forbidden
    answer: Answer

    @property
    def is_as_expected(self) -> bool:
        """Whether it was refused with the foreseen code and reason."""
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

    def __init__(self, scene: Scene, doors: Mapping[str, Door], *, trace: str, on_step: Callable[[Step], None]) -> None:
        self.ledger = Ledger()
        self.room = RoomState()
        self.refusals: list[Refusal] = []
        self.first_contact_ns = 0
        self.traced: Traced | None = None
        self._scene = scene
        self._on_step = on_step
        self._trace = trace
        self._trace_sent_us = 0
        self._people = [Participant(person, doors[person.domain], self.room, self.ledger) for person in scene.person]
        self._by_name = {participant.name: participant for participant in self._people}
        self._reporter = self._by_name[scene.room.reporter]
        self._observers = [participant for participant in self._people if participant is not self._reporter]

    @property
    def uncalled_for(self) -> list[str]:
        """Messages that reached somebody and fit nothing in the conversation: errors, strays, copies to oneself."""
        return [f"{person.name}: {text}" for person in self._people for text in person.uncalled_for]

    @property
    def is_faultless(self) -> bool:
        """Whether everything arrived once, equal and in order, and everything forbidden was refused as foreseen."""
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
            for participant in self._people:
                await self._step(
                    f"{participant.name} opens a session", participant.person.runtime, nursery.start, participant.run
                )
            for title, act in (
                ("hyperties get addresses", self._allocate),
                ("hyperties and the room are registered", self._register),
                ("first contact: look-up of a user of the other domain", self._look_up),
                ("look-up in the opposite direction", self._look_up_back),
                ("the reporter listens to the room", self._listen),
                ("invitations are sent and accepted", self._invite),
                ("observers subscribe", self._observe),
                ("chat in both directions", self._chat),
                ("changes of the room", self._change),
                ("forbidden messages are refused", self._try_forbidden),
                ("observers unsubscribe", self._leave_room),
                ("after leaving, silence", self._farewell),
                ("entries are unregistered, addresses released", self._give_back),
                ("sessions are closed", self._close),
            ):
                await self._step(title, "", act)

    async def _step(self, title: str, detail: str, act: Callable[..., object], *arguments: object) -> None:
        began = time.perf_counter()
        outcome = await act(*arguments)  # type: ignore[misc]  # every act is an async function
        taken_ms = (time.perf_counter() - began) * 1e3
        self._on_step(Step(title=title, detail=outcome if isinstance(outcome, str) else detail, taken_ms=taken_ms))

    async def _allocate(self) -> str:
        for participant in self._people:
            [participant.hyperty] = await participant.client.allocate(participant.domain, "hyperty", 1)
        reporter = self._reporter
        [self.room.address] = await reporter.client.allocate(reporter.domain, self._scene.room.scheme, 1)
        for participant in self._people:
            participant.meet(self._people)
        return self.room.address

    async def _register(self) -> str:
        for participant in self._people:
            domain = participant.domain
            await participant.client.register(
                domain,
                {
                    "url": participant.hyperty,
                    "user": participant.person.user,
                    "descriptor": f"hyperty-catalogue://catalogue.{domain}/.well-known/hyperty/Chat",
                    "runtime": participant.person.runtime,
                    "resources": ["chat"],
                    "dataSchemes": [self._scene.room.scheme],
                    "status": "live",
                    "expires": 3600,
                },
            )
        await self._reporter.client.register(
            self._reporter.domain,
            {
                "url": self.room.address,
                "name": self._scene.room.name,
                "schema": self._schema,
                "reporter": self._reporter.hyperty,
                "runtime": self._reporter.person.runtime,
                "resources": ["chat"],
                "dataSchemes": [self._scene.room.scheme],
                "status": "live",
                "expires": 3600,
            },
        )
        return f"{len(self._people)} hyperties, 1 data object"

    @property
    def _schema(self) -> str:
        domain = self._reporter.domain
        return f"hyperty-catalogue://catalogue.{domain}/.well-known/dataschema/Communication"

    async def _look_up(self) -> str:
        other = next(person for person in self._people if person.domain != self._reporter.domain)
        self.first_contact_ns = await self._find(self._reporter, other)
        return f"{self._reporter.name} finds {other.name}"

    async def _look_up_back(self) -> str:
        other = next(person for person in self._people if person.domain != self._reporter.domain)
        await self._find(other, self._reporter)
        return f"{other.name} finds {self._reporter.name}"

    async def _find(self, seeker: Participant, sought: Participant) -> int:
        answer = await seeker.client.look_up(seeker.hyperty, sought.domain, sought.person.user)
        if not isinstance(answer.value, dict) or sought.hyperty not in answer.value:
            raise UnexpectedAnswerError(f"look-up of {sought.person.user}: {sought.hyperty} is missing", answer)
        return answer.taken_ns

    async def _listen(self) -> str:
        resources = [self.room.subscription, self.room.messages]
        await self._reporter.client.subscribe(self._reporter.domain, resources)
        self.room.version = 1
        self.room.data = {"topic": self._scene.room.topic, "participants": [self._reporter.hyperty]}
        return self.room.subscription

    async def _invite(self) -> str:
        body = {
            "source": self._reporter.hyperty,
            "schema": self._schema,
            "value": {"name": self._scene.room.name, "reporter": self._reporter.hyperty},
            "p2p": False,
            "mutual": False,
        }
        for observer in self._observers:
            await self._reporter.client.granted("create", self.room.subscription, observer.hyperty, body)
        accepted = [observer.name for observer in self._observers if observer.invitations == [self.room.subscription]]
        return f"accepted by {', '.join(accepted)}"

    async def _observe(self) -> str:
        resources = [self.room.changes, self.room.messages]
        for observer in self._observers:
            for domain in dict.fromkeys((observer.domain, self._reporter.domain)):
                await observer.client.subscribe(domain, resources)
            answer = await observer.client.granted(
                "subscribe",
                f"{observer.person.runtime}/sm",
                self.room.subscription,
                {"source": observer.hyperty, "resource": self.room.address},
            )
            expected = {"data": self.room.data, "version": self.room.version}
            if answer.value != expected:
                raise UnexpectedAnswerError(f"{observer.name} subscribes: the object differs from {expected}", answer)
        return f"granted to {len(self._reporter.granted)} observers"

    async def _chat(self) -> str:
        async with trio.open_nursery() as nursery:
            for name in self._scene.chat.speakers:
                nursery.start_soon(self._speak, self._by_name[name])
        await self._settle(CHAT)
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
            self._enter_due(speaker, self._everybody_but(speaker), CHAT, number, value)
            await speaker.client.notify("create", speaker.hyperty, self.room.messages, body)
            await trio.sleep_until(began + number / chat.messages_per_second)

    def _everybody_but(self, speaker: Participant) -> list[Participant]:
        return [person for person in self._people if person is not speaker]

    def _enter_due(
        self, speaker: Participant, receivers: list[Participant], subject: str, number: int, value: object
    ) -> None:
        now_ns, text = time.monotonic_ns(), as_text(value)
        for receiver in receivers:
            crosses = receiver.domain != speaker.domain
            flow = self.ledger.flow(speaker.name, receiver.name, subject, crosses=crosses)
            flow.enter_due(number, text, now_ns)

    async def _settle(self, subject: str) -> None:
        """Wait until everything due about `subject` has come, or until nothing has come for `SETTLE_SECONDS`."""
        seen, deadline = -1, 0.0
        while self.ledger.due(subject):
            delivered = self.ledger.totals().delivered
            if delivered != seen:
                seen, deadline = delivered, trio.current_time() + SETTLE_SECONDS
            elif trio.current_time() > deadline:
                return
            await trio.sleep(_LOOK_SECONDS)

    def _note_trace(self) -> None:
        speaker = self._by_name[self._scene.chat.speakers[0]]
        receiver = next(person for person in self._people if person.domain != speaker.domain)
        self.traced = Traced(
            trace=self._trace,
            speaker=speaker.person.runtime,
            receiver=receiver.person.runtime,
            sent_at_us=self._trace_sent_us,
            arrived_at_us=receiver.traced_at_us.get(self._trace),
        )

    async def _change(self) -> str:
        for _ in range(self._scene.changes.updates):
            await self._announce(self._observers)
        await self._settle(CHANGES)
        return f"{self._scene.changes.updates} updates, version {self.room.version}"

    async def _announce(self, observers: list[Participant]) -> None:
        self.room.version += 1
        value = f"{self._scene.room.topic}, draft {self.room.version}"
        self.room.data["topic"] = value
        self._enter_due(self._reporter, observers, CHANGES, self.room.version, value)
        await self._reporter.client.notify(
            "update",
            self.room.address,
            self.room.changes,
            {"attribute": "topic", "value": value, "version": self.room.version, "source": self._reporter.hyperty},
        )

    async def _try_forbidden(self) -> str:
        for item in self._scene.forbidden:
            speaker = self._by_name[item.speaker]
            body = {"value": {"url": speaker.hyperty, "user": speaker.person.user}}
            answer = await speaker.client.request(item.type, speaker.hyperty, item.to, body)
            self.refusals.append(Refusal(item=item, answer=answer))
        return ", ".join(f"{refusal.answer.code} {refusal.answer.reason}" for refusal in self.refusals)

    async def _leave_room(self) -> str:
        resources = [self.room.changes, self.room.messages]
        for observer in self._observers:
            await observer.client.granted(
                "unsubscribe",
                f"{observer.person.runtime}/sm",
                self.room.subscription,
                {"source": observer.hyperty, "resource": self.room.address},
            )
            for domain in dict.fromkeys((self._reporter.domain, observer.domain)):
                await observer.client.unsubscribe(domain, resources)
        return f"{len(self._reporter.granted)} observers left"

    async def _farewell(self) -> str:
        """One more change, due at nobody, then an event that must arrive: the order of both proves the silence."""
        await self._announce([])
        for observer in self._observers:
            self._enter_due(self._reporter, [observer], FAREWELL, 1, "goodbye")
            await self._reporter.client.notify(
                "event", self._reporter.hyperty, observer.hyperty, {"number": 1, "value": "goodbye"}
            )
        await self._settle(FAREWELL)
        return "a change reached nobody, a direct message everybody"

    async def _give_back(self) -> str:
        await self._reporter.client.unregister(self._reporter.domain, self.room.address)
        await self._reporter.client.release(self._reporter.domain, self._scene.room.scheme)
        for participant in self._people:
            await participant.client.unregister(participant.domain, participant.hyperty)
            await participant.client.release(participant.domain, "hyperty")
        return f"{len(self._people) + 1} addresses"

    async def _close(self) -> str:
        closed = [await participant.client.close() for participant in self._people]
        return f"{sum(closed)} of {len(closed)} closed by their node"
