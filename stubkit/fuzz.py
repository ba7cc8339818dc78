"""Events that no sane host sends, from a seed: a stub has to take all of them without a fault.

A finding comes with the events that led to it, as a script that `stub run --script` plays again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from protofly.errors import StubFaultError
from sandbox.core.exchange import Event, GuestEvent
from stubkit.live_stub import NotLiveError, StubUnderTest
from stubkit.record_facts import event_facts
from stubkit.virtual_host import VirtualHost, start_event

CALLS_PER_INSTANCE: Final = 100
EVENTS_PER_CALL: Final = 6
_OPS: Final = tuple(event for event in Event if event is not Event.START)
_SEEDS: Final = (
    b"",
    b"{}",
    b"[[[[[[[[",
    b'{"id":1,"type":"read","from":"hyperty://a.example/1","to":"hyperty://b.example/2","body":{"a":"\\u00e9"}}',
    b'{"status":200,"headers":{}}\n{}',
    b"+hyperty://a.example/1\n-hyperty://a.example/1\n",
    b"\xff\xfe\xfd",
    b"4294967296 -1 0 99999999999999999999\n",
    b'{"a":"\\ud800"}',
    b"x" * 5000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzResult:
    """Result of a number of random calls. If nothing was found, `problem` is "" and `steps` is empty."""

    seed: int
    calls: int
    problem: str = ""
    steps: tuple[dict[str, Any], ...] = ()
    """Steps of a script that leads to the problem, behind those of the case `after`."""
    after: str = ""


async def fuzz(under_test: StubUnderTest, *, calls: int, seed: int) -> FuzzResult:
    """Give random events to fresh instances, every other one live; the same seed, the same events.

    Raises:
        StubFaultError: No worker can be started.
    """
    source = random.Random(seed)  # noqa: S311 - it has to be repeatable
    corpus = [*_SEEDS, *_spoken(under_test)]
    done = 0
    is_live = False
    while done < calls:
        size = min(CALLS_PER_INSTANCE, calls - done)
        is_live = not is_live and under_test.script.live is not None
        steps, problem = await _one_life(under_test, source, corpus, size, is_live=is_live)
        done += size
        if problem:
            after = under_test.script.live.case if is_live and under_test.script.live else ""
            return FuzzResult(seed=seed, calls=done, problem=problem, steps=tuple(steps), after=after)
    return FuzzResult(seed=seed, calls=done)


async def _one_life(
    under_test: StubUnderTest, source: random.Random, corpus: list[bytes], size: int, *, is_live: bool
) -> tuple[list[dict[str, Any]], str]:
    """The events of one instance so far, and what was wrong with the last of them, "" for nothing."""
    steps: list[dict[str, Any]] = []
    complaint = ""
    try:
        async with under_test.live_instance() if is_live else under_test.instance() as host:
            if not is_live:
                await host.give(start_event({"endpoints": sorted(under_test.endpoints)}))
            while len(steps) < size and not complaint:
                events = [_event(source, corpus, host) for _ in range(source.randint(1, EVENTS_PER_CALL))]
                steps.append({"give": [event_facts(event) for event in events]})
                complaint = under_test.complaints(await host.give(*events))
    except StubFaultError as exc:
        complaint = str(exc)
    except NotLiveError:
        return [], ""  # a requirement of its own
    return steps, complaint


def _event(source: random.Random, corpus: list[bytes], host: VirtualHost) -> GuestEvent:
    known = [*host.channels, 1, 2]
    arg = source.choice([*known, *known, source.randrange(1 << 32), 0])
    payload = _mutated(source, source.choice(corpus))
    return GuestEvent(source.choice(_OPS), arg, payload, source.randrange(2))


def _mutated(source: random.Random, payload: bytes) -> bytes:
    if source.random() < 0.4:
        return payload
    raw = bytearray(payload)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(raw) + 1)
        match source.randrange(4):
            case 0:
                raw[at:at] = source.randbytes(source.randint(1, 8))
            case 1:
                del raw[at : at + source.randint(1, 16)]
            case 2:
                raw[at : at + 1] = bytes([source.randrange(256)])
            case _:
                raw[at:at] = raw[: source.randint(0, 64)]
    return bytes(raw)


def _spoken(under_test: StubUnderTest) -> list[bytes]:
    """The bytes that the far end of the author's script sends."""
    return [event.payload for case in under_test.script.cases for step in case.steps for event in step.events()]
