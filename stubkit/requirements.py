"""The requirements that `stub certify` tests: the numbers and titles of docs/stub-requirements.md, and their tests."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from protofly.errors import StubFaultError
from protofly.limits import IN_FLIGHT_MESSAGES, INPUT_BYTES
from sandbox.core.exchange import FLAG_GRANTED, FLAG_TEXT, Action, Event, GuestAction, GuestEvent
from sandbox.core.frames import Reply
from sandbox.stub_process import Calls
from stubkit.certification import RequirementVerdict, Result
from stubkit.fuzz import fuzz
from stubkit.live_stub import NotLiveError, StubUnderTest, fault_of, numbered_message
from stubkit.scripted_run import play_case
from stubkit.trial import CheckStep, Trial
from stubkit.virtual_host import start_event

FUEL_SHARE_MAX: Final = 0.25
FUZZ_CALLS: Final = 1000
FUZZ_SEED: Final = 20_261_123
FLAT_MESSAGES: Final = 20_000
ORDERED_MESSAGES: Final = 200
BATCH: Final = 16
LARGE_BYTES: Final = 1 << 20
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
ATTEMPTS_PER_HOUR: Final = 3600
SHORTEST_MS: Final = 100
DRAIN_MS: Final = 30_000
TOKEN: Final = b"eyJhbGciOiJFZERTQSJ9.certification.token"
_SHOWN: Final = frozenset({Action.LOG, Action.STATUS})

Check = Callable[[StubUnderTest], Awaitable[str]]
"""Returns what was measured. Raises `Failed` for a requirement that is not met."""


class Failed(Exception):  # noqa: N818 - a verdict, no defect
    """The stub does not meet a requirement; the text says in what."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of docs/stub-requirements.md."""

    number: str
    title: str
    check: Check


async def _cases(under_test: StubUnderTest) -> str:
    script = under_test.script
    for case in script.cases:
        result = await play_case(under_test.compiled, case, script)
        if result.problem:
            raise Failed(f"case {case.name!r}, {result.problem}")
    return f"{len(script.cases)} cases"


async def _trial(under_test: StubUnderTest) -> list[CheckStep]:
    async with under_test.instance() as host:
        return await Trial(host.stub, sorted(under_test.endpoints), under_test.compiled.module).play()


async def _hostile(under_test: StubUnderTest) -> str:
    steps = await _trial(under_test)
    for step in steps:
        if step.complaint:
            raise Failed(f"{step.name}: {step.complaint}")
    return f"{len(steps)} steps, {sum(step.events for step in steps)} events"


async def _fuel(under_test: StubUnderTest) -> str:
    dearest = max(await _trial(under_test), key=lambda step: step.fuel_share)
    if dearest.fuel_share > FUEL_SHARE_MAX:
        raise Failed(f"{dearest.name} takes {dearest.fuel_share:.0%} of its fuel; at most {FUEL_SHARE_MAX:.0%}")
    return f"at most {dearest.fuel_share:.1%} of the fuel of a call"


class _Digest:
    """Digest of all that an instance answers (see `ExchangeRecorder`)."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def handed(self, calls: Calls) -> None:
        """Nothing: the calls are the same."""

    def answered(self, reply: Reply) -> None:
        """Take in the answers."""
        for output in reply.outputs:
            self.sha256.update(len(output).to_bytes(4, "little") + output)

    async def faulted(self, fault: str) -> None:
        """Take in the fault."""
        self.sha256.update(fault.encode())


async def _deterministic(under_test: StubUnderTest) -> str:
    digests = []
    for _ in range(2):
        async with under_test.instance() as host:
            host.stub.record(digest := _Digest())
            await Trial(host.stub, sorted(under_test.endpoints), under_test.compiled.module).play()
            digests.append(digest.sha256.hexdigest())
    if digests[0] != digests[1]:
        raise Failed("the same events, time and random bytes led to other actions")
    return f"actions sha256 {digests[0][:16]}"


async def _survives_noise(under_test: StubUnderTest) -> str:
    result = await fuzz(under_test, calls=FUZZ_CALLS, seed=FUZZ_SEED)
    if result.problem:
        raise Failed(f"{result.problem}; `stub fuzz --seed {FUZZ_SEED}` shows the events")
    return f"{result.calls:,} calls, seed {result.seed}"


async def _reconnects(under_test: StubUnderTest) -> str:
    async with under_test.instance() as host:
        await host.give(start_event({"endpoints": sorted(under_test.endpoints)}))
        if not host.channels:
            return "it opens nothing at its start"
        await host.give(*[GuestEvent(Event.CLOSED, channel, b"connect-failed") for channel in host.channels])
        for minute in range(10):
            if host.channels:
                return f"within {minute} min"
            await host.wait(MINUTE_MS)
        if not host.channels:
            raise Failed("ten minutes after its line was lost, it has not opened another one")
        return "within 10 min"


async def _backs_off(under_test: StubUnderTest) -> str:
    async with under_test.instance() as host:
        await host.give(start_event({"endpoints": sorted(under_test.endpoints)}))
        attempts = passed_ms = 0
        while passed_ms < HOUR_MS:
            if host.channels:
                attempts += len(host.channels)
                await host.give(*[GuestEvent(Event.CLOSED, channel, b"connect-failed") for channel in host.channels])
            if host.channels:
                raise Failed("it opens a line again in the same moment in which the last one failed")
            if attempts > ATTEMPTS_PER_HOUR:
                raise Failed(
                    f"{attempts:,} attempts within {passed_ms / 1000:,.0f} s; at most one a second, on average"
                )
            step_ms = min(max(host.idle_ms, SHORTEST_MS), HOUR_MS - passed_ms)
            await host.wait(step_ms)
            passed_ms += step_ms
        return f"{attempts:,} attempts in an hour without a far end"


async def _becomes_live(under_test: StubUnderTest) -> str:
    async with under_test.live_instance() as host:
        return f"with {len(host.channels)} channels"


async def _keeps_order(under_test: StubUnderTest) -> str:
    async with under_test.live_instance() as host:
        events = [numbered_message(number) for number in range(1, ORDERED_MESSAGES + 1)]
        sent = b"".join(action.payload for action in await host.give(*events) if action.op == Action.SEND)
    places = [sent.find(b"#%d#" % number) for number in range(1, ORDERED_MESSAGES + 1)]
    left = [place for place in places if place >= 0]
    if not left:
        return "not to be seen: messages do not leave as they came"
    if left != sorted(left):
        raise Failed("messages leave in another order than they came")
    if places[: len(left)] != left:
        raise Failed(f"message {places.index(-1) + 1} does not leave, and later ones do")
    return f"{len(left)} messages"


async def _answers_for_messages(under_test: StubUnderTest) -> str:
    live = under_test.script.live
    async with under_test.live_instance() as host:
        events = [numbered_message(number) for number in range(1, BATCH + 1)]
        early = _highest_accepted(await host.give(*events))
        half = _highest_accepted(await host.give(*live.accepting(BATCH // 2))) if live and live.accept else 0
        rest = _highest_accepted(await host.give(*live.accepting(BATCH))) if live and live.accept else 0
    if max(early, half, rest) > BATCH:
        raise Failed(f"message {max(early, half, rest)} is accepted, which never came")
    if live and live.accept and (early or half > BATCH // 2):
        raise Failed("messages are accepted before the far end has them")
    if max(early, rest) < BATCH:
        raise Failed("messages that the far end has are not accepted")
    return "accepted when the far end has them" if live and live.accept else "accepted as soon as they are sent"


async def _bears_silence(under_test: StubUnderTest) -> str:
    async with under_test.live_instance() as host:
        for first in range(1, IN_FLIGHT_MESSAGES, 512):
            fault = await fault_of(host, *[numbered_message(number) for number in range(first, first + 512)])
            if fault:
                raise Failed(f"at message {first}: {fault}")
        return f"{IN_FLIGHT_MESSAGES:,} messages, memory {host.take_cost().memory_bytes >> 10:,} KiB"


async def _stays_flat(under_test: StubUnderTest) -> str:
    async with under_test.live_instance() as host:
        rate = await under_test.carry(host, FLAT_MESSAGES, BATCH)
    if rate.memory_bytes > rate.first_memory_bytes:
        raise Failed(f"memory grew from {rate.first_memory_bytes:,} to {rate.memory_bytes:,} bytes")
    return f"{rate.memory_bytes >> 10:,} KiB over {FLAT_MESSAGES:,} messages, {rate.fuel:,.0f} fuel each"


async def _takes_large(under_test: StubUnderTest) -> str:
    async with under_test.live_instance() as host:
        fault = await fault_of(host, numbered_message(1, LARGE_BYTES))
        if fault:
            raise Failed(fault)
        return f"1 MiB, memory {host.take_cost().memory_bytes >> 10:,} KiB"


async def _leaves_strangers(under_test: StubUnderTest) -> str:
    nonsense = [b"", b"\xff" * 300, b"{" * 500, b"\n" * 500, b"9" * 500, b"\0" * (INPUT_BYTES - 100)]
    kinds = [(raw, flags) for raw in nonsense for flags in (0, FLAG_TEXT)]
    for raw, flags in kinds:
        problem = await _problem_with(under_test, raw, flags)
        if problem:
            raise Failed(f"{raw[:20]!r}…: {problem}")
    return f"{len(kinds)} kinds of nonsense"


async def _problem_with(under_test: StubUnderTest, raw: bytes, flags: int) -> str:
    """The problem of a live instance that gets these bytes on all its channels, "" for none."""
    async with under_test.live_instance() as host:
        for channel in list(host.channels):
            if fault := await fault_of(host, GuestEvent(Event.DATA, channel, raw, flags)):
                return fault
        return under_test.complaints(host.take_cost().actions)


async def _drains(under_test: StubUnderTest) -> str:
    async with under_test.live_instance() as host:
        await host.give(GuestEvent(Event.DRAIN, 0, b""))
        await host.wait(DRAIN_MS)
        if host.channels:
            raise Failed(f"{DRAIN_MS // 1000} s after `drain`, channels {sorted(host.channels)} are open")
    return "all channels closed"


async def _keeps_secrets(under_test: StubUnderTest) -> str:
    live = under_test.script.live
    assert live is not None
    case = under_test.script.case(live.case)
    given = [event for step in under_test.script.steps_of(case) for event in step.events()]
    tokens = [event.payload for event in given if event.op == Event.AUTH_TOKEN and len(event.payload) >= 8]
    result = await play_case(under_test.compiled, case, under_test.script)
    shown = [
        str(action.get("text", ""))
        for entry in result.trace
        for action in entry["actions"]  # type: ignore[attr-defined]
        if action["action"] in ("log", "status")
    ]
    for token in tokens:
        if any(token.decode("utf-8", "replace") in text for text in shown):
            raise Failed("a token stands in a log line or a status")
    async with under_test.live_instance() as host:
        channels = list(host.channels)
        await host.give(*[GuestEvent(Event.AUTH_TOKEN, channel, TOKEN, FLAG_GRANTED) for channel in channels])
        if any(TOKEN in action.payload for action in host.take_cost().actions if action.op in _SHOWN):
            raise Failed("a token that it did not ask for stands in a log line or a status")
    return f"{len(tokens)} tokens, {len(shown)} log lines and states"


async def _delivers(under_test: StubUnderTest) -> str:
    live = under_test.script.live
    if live is None or not live.deliver:
        raise NotLiveError("the script has no `deliver`")
    texts = [numbered_message(number).payload.decode() for number in range(1, BATCH + 1)]
    async with under_test.live_instance() as host:
        events = [event for number, text in enumerate(texts, start=1) for event in live.delivering(number, text)]
        delivered = [action.payload for action in await host.give(*events) if action.op == Action.DELIVER]
    if len(delivered) != BATCH:
        raise Failed(f"{len(delivered)} of {BATCH} messages of the far end are delivered")
    if [msgspec.json.decode(raw) for raw in delivered] != [msgspec.json.decode(text) for text in texts]:
        raise Failed("messages of the far end are delivered in another order, or changed")
    return f"{BATCH} messages"


def _highest_accepted(actions: list[GuestAction]) -> int:
    return max((action.arg for action in actions if action.op == Action.ACCEPTED), default=0)


REQUIREMENTS: Final = (
    Requirement("SR-02", "Does what its author's cases say", _cases),
    Requirement("SR-03", "Takes everything that a hostile host and far end do", _hostile),
    Requirement("SR-04", "Stays far below its fuel", _fuel),
    Requirement("SR-05", "Answers the same to the same", _deterministic),
    Requirement("SR-06", "Survives random events", _survives_noise),
    Requirement("SR-07", "Opens a lost line again", _reconnects),
    Requirement("SR-08", "Does not storm a far end that is gone", _backs_off),
    Requirement("SR-09", "Becomes live", _becomes_live),
    Requirement("SR-10", "Keeps the order of messages", _keeps_order),
    Requirement("SR-11", "Answers for messages, and only for those that arrived", _answers_for_messages),
    Requirement("SR-12", "Bears a far end that accepts nothing", _bears_silence),
    Requirement("SR-13", "Keeps its memory flat", _stays_flat),
    Requirement("SR-14", "Takes a message of 1 MiB", _takes_large),
    Requirement("SR-15", "Survives nonsense while it is live", _leaves_strangers),
    Requirement("SR-16", "Closes its channels when it is drained", _drains),
    Requirement("SR-17", "Shows no token", _keeps_secrets),
    Requirement("SR-18", "Delivers what the far end sends, in order", _delivers),
)
"""SR-01, the module itself, comes before: nothing of a refused module can be run."""


async def judge(requirement: Requirement, under_test: StubUnderTest) -> RequirementVerdict:
    """Test one requirement."""
    result: Result = "failed"
    try:
        result, detail = "passed", await requirement.check(under_test)
    except (Failed, StubFaultError) as exc:
        detail = str(exc)
    except NotLiveError as exc:
        result, detail = "failed" if requirement.number == "SR-09" else "not-tested", str(exc)
    return RequirementVerdict(number=requirement.number, title=requirement.title, result=result, detail=detail)
