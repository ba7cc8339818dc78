"""Plays a recorded conversation against a laboratory, and compares its answers with the recorded ones.

Order is kept where it may matter: what was said after an answer had come is said after that answer has come here, at
every speed. Runtimes answer what they are asked as they did, and say nothing where they said nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Final, cast

import msgspec
import trio

from interop.figures import percentile
from interop.lab.core.replaying import Addresses, Asked, Part, Script, allocated_in, compared, make_script
from interop.lab.kept import DOMAINS, KeptLab
from interop.participant import AccessPoint
from interop.runtime_client import Answer, Incoming, RuntimeClient, UnexpectedAnswerError
from protofly.conversation import Conversation, Passed, SessionChanged, redacted_body, shown_body
from protofly.errors import TransportError

FASTEST: Final = math.inf
"""The speed at which nothing waits but for answers."""
PATIENCE_SECONDS: Final = 5.0
"""How much longer than recorded an answer may take."""
SETTLE_SECONDS: Final = 0.3
"""After the last message, for events that are on their way."""
_SERVICE: Final = "domain://"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One request that is answered otherwise.

    Attributes:
        at: Seconds since the start of the recording.
        what: The request, in the addresses of the recording.
        lines: What was recorded (`- `) and what is said here (`+ `).
    """

    at: float
    what: str
    lines: tuple[str, ...]


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of replaying a recording.

    Attributes:
        node: That recorded it.
        is_whole: The recording has its end.
        domains: Of the laboratory, by recorded domain.
        runtimes: How many played.
        requests: Requests that were played and compared.
        differences: Those that were answered otherwise.
        open: Requests whose answer the recording does not have, since it ended.
        events: Events that were sent.
        heard: Events that arrived.
        skipped: What was not played: how much, by reason.
        recorded_ms: Median and 99th percentile of times to an answer, as recorded; none without answers.
        here_ms: The same here.
    """

    node: str
    is_whole: bool
    domains: dict[str, str]
    runtimes: int
    requests: int
    differences: tuple[Difference, ...]
    open: int
    events: int
    heard: int
    skipped: dict[str, int]
    recorded_ms: tuple[float, ...]
    here_ms: tuple[float, ...]


@dataclass(slots=True)
class _Player:
    """Who plays one part here."""

    part: Part
    client: RuntimeClient
    is_open: bool = False


@dataclass(slots=True)
class _Result:
    """The result of one act."""

    asked: Asked
    body: dict[str, Any] | None = None
    taken_ms: float = 0.0
    done: trio.Event = field(default_factory=trio.Event)


class Replay:
    """One recording at one laboratory that runs.

    Args:
        conversation: As it was recorded.
        lab: With at least as many domains.
        speed: 1 is that of the recording; `FASTEST` waits for nothing but answers.

    Raises:
        SettingsError: It cannot be played there.
    """

    def __init__(self, conversation: Conversation, lab: KeptLab, *, speed: float) -> None:
        self._conversation = conversation
        self._lab = lab
        self._speed = speed
        self._script: Script = make_script(conversation, most_domains=len(lab.domains))
        domains = dict(zip(self._script.domains, lab.domains, strict=False))
        self._addresses = Addresses(domains)
        node = conversation.started.node
        self._addresses.learn([node], [f"runtime://{domains[self._script.domains[0]]}/{node.rpartition('/')[2]}"])
        self._players: list[_Player] = []
        self._sent: dict[tuple[str, str, object], Asked] = {}
        self._results: list[_Result] = []
        self._heard = 0
        self._skipped: Counter[str] = Counter()
        self._answering: trio.Nursery

    async def run(self) -> ReplayReport:
        """Play everything, and compare.

        Raises:
            TransportError: A node takes no runtime.
            UnexpectedAnswerError: A node refuses a session.
        """
        async with trio.open_nursery() as nursery:
            self._answering = nursery
            for number, part in enumerate(self._script.cast):
                await self._cast(number, part, nursery)
            began = trio.current_time()
            for act in self._script.acts:
                await self._wait_for_turn(act, began)
                if isinstance(act, Asked):
                    await self._say(act, nursery)
                else:
                    await self._change(act[0], self._players[act[1]], nursery)
            for result in self._results:
                await result.done.wait()
            await trio.sleep(SETTLE_SECONDS)
            for player in self._players:
                if player.is_open:
                    await player.client.close()
            nursery.cancel_scope.cancel()
        return self._report()

    async def _cast(self, number: int, part: Part, nursery: trio.Nursery) -> None:
        """Open the session of a part, with the addresses that it has from the start."""
        domain = self._addresses.domains[part.domain]
        access: AccessPoint = self._lab.access_point(domain, number)
        runtime = f"runtime://{domain}/replay-{token_hex(4)}"
        client = RuntimeClient(
            url=access.url,
            runtime=runtime,
            ssl_context=access.ssl_context,
            on_message=lambda message: self._take(number, message),
        )
        player = _Player(part, client)
        self._players.append(player)
        await nursery.start(client.run)
        player.is_open = True
        if part.is_runtime:
            self._addresses.learn([part.name], [runtime])
        for address in part.addresses:
            scheme = address.partition(":")[0]
            if scheme == "runtime":
                self._addresses.learn([address], [runtime])
            elif not address.startswith(_SERVICE):
                await self._allocate(client, domain, scheme, address)

    async def _allocate(self, client: RuntimeClient, domain: str, scheme: str, address: str) -> None:
        try:
            self._addresses.learn([address], await client.at(domain).allocate(scheme, 1))
        except UnexpectedAnswerError:
            return  # of no scheme that is allocated: it is used as it is, in its domain here

    async def _wait_for_turn(self, act: Asked | tuple[SessionChanged, int], began: float) -> None:
        """Wait for the time of an act, and for the answers that had come before it."""
        at = act.message.at if isinstance(act, Asked) else act[0].at
        if math.isfinite(self._speed):
            await trio.sleep_until(began + at / self._speed)
        for result in self._results:
            answer = result.asked.answer
            if answer is not None and answer.at <= at:
                await result.done.wait()

    async def _change(self, changed: SessionChanged, player: _Player, nursery: trio.Nursery) -> None:
        """Do what happened to a session."""
        if changed.event in ("closed", "expired", "lost") and player.is_open:
            player.is_open = False
            if changed.event == "lost":
                player.client.drop()
            else:
                await player.client.close()
                player.client.token = ""
        elif changed.event in ("opened", "re-opened") and not player.is_open:
            try:
                await nursery.start(player.client.run)
            except (TransportError, UnexpectedAnswerError):
                player.client.token = ""
                await nursery.start(player.client.run)
            player.is_open = True

    async def _say(self, asked: Asked, nursery: trio.Nursery) -> None:
        message, player = asked.message, self._players[asked.part]
        if asked.skipped or not player.is_open:
            self._skipped[asked.skipped or "its runtime has no session"] += 1
            return
        here = self._addresses
        sender, recipient = here.here(message.from_), here.here(message.to)
        body = cast("dict[str, object]", here.value(message.members)) if message.body else None
        result = _Result(asked)
        self._results.append(result)
        if not asked.is_request:
            await player.client.notify(message.type, sender, recipient, body or {})
            result.done.set()
            return
        self._sent[sender, recipient, player.client.next_id] = asked

        async def ask() -> None:
            with trio.move_on_after(_patience(asked)):
                try:
                    self._answered(result, await player.client.request(message.type, sender, recipient, body))
                except TransportError:
                    result.body = None
            result.done.set()

        nursery.start_soon(ask)
        await trio.lowlevel.checkpoint()

    def _answered(self, result: _Result, answer: Answer) -> None:
        recorded, message = result.asked.answer, result.asked.message
        raw = msgspec.json.encode(answer.body)
        if self._conversation.started.has_bodies:
            raw = shown_body(raw)
        else:
            is_of_node = recorded is None or recorded.side == "node"
            raw = redacted_body(raw, from_=message.to, to=message.from_, is_of_node=is_of_node)
        result.body = msgspec.json.decode(raw)
        result.taken_ms = answer.taken_ns / 1e6
        if recorded is not None:
            self._addresses.learn(allocated_in(recorded.members), allocated_in(result.body or {}))

    def _take(self, number: int, message: Incoming) -> None:
        """A player hears something."""
        if message.id is None:
            self._heard += 1
            return
        asked = self._sent.get((message.from_, message.to, message.id))
        if asked is not None and asked.answer is not None and asked.answer.side != "node":
            self._answering.start_soon(self._reply, self._players[number], message, asked.answer, asked.message.at)

    async def _reply(self, player: _Player, message: Incoming, answer: Passed, asked_at: float) -> None:
        """Say what was answered, after as long."""
        if math.isfinite(self._speed):
            await trio.sleep((answer.at - asked_at) / self._speed)
        try:
            await player.client.respond(message, self._addresses.value(answer.members))
        except TransportError:
            return  # its session has ended: who asks learns it from the node

    def _report(self) -> ReplayReport:
        requests = [one for one in self._results if one.asked.is_request]
        ends_at = max(line.at for line in self._conversation.lines)
        unknown = [one for one in requests if one.asked.answer is None and one.asked.message.at > ends_at - 1.0]
        judged = [one for one in requests if one not in unknown]
        both = [one for one in judged if one.asked.answer is not None and one.body is not None]
        return ReplayReport(
            node=self._conversation.started.node,
            is_whole=self._conversation.ended is not None,
            domains=dict(self._addresses.domains),
            runtimes=len(self._players),
            requests=len(judged),
            differences=tuple(filter(None, map(self._difference, judged))),
            open=len(unknown),
            events=len(self._results) - len(requests),
            heard=self._heard,
            skipped=dict(self._skipped),
            recorded_ms=_percentiles(
                [(one.asked.answer.at - one.asked.message.at) * 1e3 for one in both if one.asked.answer]
            ),
            here_ms=_percentiles([one.taken_ms for one in both]),
        )

    def _difference(self, result: _Result) -> Difference | None:
        message, answer = result.asked.message, result.asked.answer
        recorded: Mapping[str, Any] | None = None if answer is None else self._addresses.value(answer.members)
        lines = compared(recorded, result.body)
        what = f"{message.type} {message.from_} → {message.to}"
        return Difference(at=message.at, what=what, lines=tuple(lines)) if lines else None


def _patience(asked: Asked) -> float:
    took = 0.0 if asked.answer is None else asked.answer.at - asked.message.at
    return took + PATIENCE_SECONDS


def _percentiles(samples: Sequence[float]) -> tuple[float, ...]:
    found = (percentile(samples, 0.5), percentile(samples, 0.99))
    return tuple(round(one, 1) for one in found if one is not None)


def domains_needed(conversation: Conversation) -> int:
    """Least number of domains of a laboratory for a recording. Raises SettingsError: more than any laboratory has."""
    return max(2, len(make_script(conversation, most_domains=len(DOMAINS)).domains))
