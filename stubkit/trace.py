"""What one stub was given and what it answered, call by call, as lines for people and objects for programs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from protofly.printable import escaped
from sandbox.core.frames import GuestFault, Reply
from sandbox.stub_process import Calls
from stubkit.record_facts import Facts, action_facts, decode_events, event_facts, readable_actions

ENTRIES_KEPT: Final = 10_000
SHOWN_CHARS: Final = 160
NAME_WIDTH: Final = 13


class Trace:
    """Follows one instance (see `ExchangeRecorder`).

    Args:
        write: Gets each line as it is made.

    Attributes:
        entries: The last calls as objects, oldest first; at most ENTRIES_KEPT.
    """

    def __init__(self, write: Callable[[str], None] = lambda _line: None) -> None:
        self.entries: deque[Facts] = deque(maxlen=ENTRIES_KEPT)
        self._write = write
        self._began_ms: int | None = None
        self._calls: Calls = []

    def handed(self, calls: Calls) -> None:
        """See `ExchangeRecorder`."""
        self._calls = calls

    def answered(self, reply: Reply) -> None:
        """See `ExchangeRecorder`."""
        for index, (_, buffer) in enumerate(self._calls):
            now_ms, events = decode_events(buffer)
            actions = readable_actions(reply.outputs[index]) if index < len(reply.outputs) else []
            self._began_ms = now_ms if self._began_ms is None else self._began_ms
            seconds = (now_ms - self._began_ms) / 1000
            entry: Facts = {
                "seconds": seconds,
                "events": [event_facts(event) for event in events],
                "actions": [action_facts(action) for action in actions],
            }
            self.entries.append(entry)
            for line in trace_lines(entry):
                self._write(line)
        cost = {"fuel": reply.fuel, "cpu_us": reply.cpu_us, "memory_bytes": reply.memory_bytes}
        self.entries[-1] |= cost
        if reply.fault is not GuestFault.NONE:
            self.entries[-1]["fault"] = f"{reply.fault.code.word}: {reply.text}"
        self._write(_cost_line(self.entries[-1]))

    async def faulted(self, fault: str) -> None:
        """See `ExchangeRecorder`: a fault that came with a reply is in its line already."""
        if self.entries and "fault" not in self.entries[-1]:
            self.entries[-1]["fault"] = fault
            self._write(f"{'':11}  FAULT {fault}")


def trace_lines(entry: Facts) -> list[str]:
    """The lines of one call: `→` for what the stub was given, `←` for what it answered."""
    stamp = f"{entry['seconds']:9.3f} s"
    return [
        *[f"{stamp}  → {record_line(facts, name_width=NAME_WIDTH)}" for facts in entry["events"]],
        *[f"{stamp}  ← {record_line(facts, name_width=NAME_WIDTH)}" for facts in entry["actions"]],
    ]


def record_line(facts: Facts, *, name_width: int = 0) -> str:
    """One event or action on one line: its kind, its members, the beginning of its bytes."""
    members = dict(facts)
    name = str(members.pop("event", "") or members.pop("action", ""))
    content = _shown(members.pop("text", None), members.pop("hex", None))
    words = [
        f"{key.removeprefix('is_')} {_value(value)}".rstrip() for key, value in members.items() if value is not False
    ]
    return " ".join([name.ljust(name_width), *words, content]).rstrip()


def _shown(text: str | None, digits: str | None) -> str:
    if text is not None:
        shown = escaped(text[:SHOWN_CHARS])
        return shown if len(text) <= SHOWN_CHARS else f"{shown}… ({len(text):,} characters)"
    if digits is not None:
        shown = digits[:SHOWN_CHARS]
        return f"hex {shown}" if len(digits) <= SHOWN_CHARS else f"hex {shown}… ({len(digits) // 2:,} bytes)"
    return ""


def _value(value: Any) -> str:
    return "" if value is True else str(value)


def _cost_line(entry: Facts) -> str:
    cost = f"fuel {entry['fuel']:,}, {entry['cpu_us']:,} µs, memory {entry['memory_bytes'] >> 10:,} KiB"
    fault = f", FAULT {entry['fault']}" if "fault" in entry else ""
    return f"{'':11}  = {cost}{fault}"
