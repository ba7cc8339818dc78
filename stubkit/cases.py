"""Scripts of authors: what a stub is given, step by step, and what it has to answer. Pure.

    {"cases": [{"name": "answers a ping", "steps": [
        {"give": {"event": "opened", "channel": 1}, "want": [{"action": "status", "text": "live"}]},
        {"give": [{"event": "data", "channel": 1, "is_text": true, "text": "PING"}],
         "want": [{"action": "send", "channel": 1, "text": "PONG"}]},
        {"wait_ms": 5000, "want": [{"action": "close", "channel": 1}]}]}]}

One step is one call of the stub, or the passing of virtual time, in which its timers fire. Of a wanted action only the
members that are written count; `match` is a regular expression for the whole text, `json` compares values. `want` is
the whole answer in its order, without `log` lines unless some are wanted; with `"more": true` others may stand between.
A step without `want` takes any answer. Each case begins with a fresh instance, which `start` was given already.
Source: docs/writing-a-stub.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from protofly.errors import SettingsError
from protofly.plain_words import without_types
from sandbox.core.exchange import GuestAction, GuestEvent
from stubkit.record_facts import ACTIONS, Facts, action_facts, event_of, payload_of
from stubkit.trace import record_line

SCRIPT_BYTES: Final = 4 << 20


class StubCaseStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of a case. `fuel` and `memory` are the most that it may cost; 0 for no other bound than the budget."""

    give: Facts | list[Facts] = []
    wait_ms: int = 0
    want: list[Facts] | None = None
    more: bool = False
    fuel: int = 0
    memory: int = 0

    def events(self) -> list[GuestEvent]:
        """Build the events that the stub is given.

        Raises:
            SettingsError: See `event_of`.
        """
        return [event_of(one) for one in self._given]

    @property
    def gives_start(self) -> bool:
        """True when `start` is among the events."""
        return any(one.get("event") == "start" for one in self._given)

    @property
    def _given(self) -> list[Facts]:
        return self.give if isinstance(self.give, list) else [self.give]


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One conversation. `start` has members of the event `start` that differ from the usual ones.

    It begins where the case named by `after` ended.
    """

    name: str
    steps: list[StubCaseStep]
    after: str = ""
    start: Facts = {}
    endpoints: tuple[str, ...] = ()


class LiveScript(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Patterns by which generated tests talk with a live stub whose protocol they do not know.

    After `case` the stub is live. `accept` is what its far end says when it has everything up to message `{number}`,
    and `deliver` what it says to send `{message}` as its own number `{number}`; {} for a protocol without. In `hex` the
    number has four bytes, the low one first.
    """

    case: str
    accept: Facts = {}
    deliver: Facts = {}

    def accepting(self, number: int) -> list[GuestEvent]:
        """The far end has everything up to a message."""
        return [event_of(_filled(self.accept, number, ""))] if self.accept else []

    def delivering(self, number: int, message: str) -> list[GuestEvent]:
        """The far end sends a message of its own."""
        return [event_of(_filled(self.deliver, number, message))] if self.deliver else []


def _filled(facts: Facts, number: int, message: str) -> Facts:
    binary = {"{number}": number.to_bytes(4, "little").hex(), "{message}": message.encode().hex()}
    plain = {"{number}": str(number), "{message}": message}

    def fill(name: str, value: Any) -> Any:
        for place, text in (binary if name == "hex" else plain).items():
            value = value.replace(place, text) if isinstance(value, str) else value
        return value

    return {name: fill(name, value) for name, value in facts.items()}


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All cases of a file. `start` and `endpoints` hold for those that have none of their own."""

    cases: list[Case]
    start: Facts = {}
    endpoints: tuple[str, ...] = ("mn",)
    live: LiveScript | None = None

    def case(self, name: str) -> Case:
        """The case of a name.

        Raises:
            SettingsError: There is none.
        """
        for case in self.cases:
            if case.name == name:
                return case
        raise SettingsError(f"there is no case {name!r}; there are {', '.join(repr(one.name) for one in self.cases)}")

    def steps_of(self, case: Case) -> list[StubCaseStep]:
        """Its steps, behind those of the case that it comes after.

        Raises:
            SettingsError: There is no such case, or they go round in circles.
        """
        steps, seen = list(case.steps), {case.name}
        while case.after:
            case = self.case(case.after)
            if case.name in seen:
                raise SettingsError(f"case {case.name!r} comes after itself; change its `after`")
            seen.add(case.name)
            steps = [*case.steps, *steps]
        return steps

    def steps_before(self, case: Case) -> int:
        """The number of steps that come before its own."""
        return len(self.steps_of(case)) - len(case.steps)


def load_script(path: Path) -> Script:
    """Read a script, with every step checked.

    Raises:
        SettingsError: It cannot be read, or a case is wrong; the text names it.
    """
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    if len(raw) > SCRIPT_BYTES:
        raise SettingsError(f"{path}: more than {SCRIPT_BYTES:,} bytes")
    try:
        script = msgspec.json.decode(raw, type=Script)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise SettingsError(f"{path}: {without_types(str(exc))}") from exc
    if not script.cases:
        raise SettingsError(f"{path}: no cases")
    names = [case.name for case in script.cases]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{path}: case {name!r} is there twice")
    try:
        _check_references(script)
    except SettingsError as exc:
        raise SettingsError(f"{path}: {exc.detail}") from exc
    for case in script.cases:
        for number, step in enumerate(case.steps, start=1):
            try:
                _check_step(step)
            except SettingsError as exc:
                raise SettingsError(f"{path}: case {case.name!r}, step {number}: {exc.detail}") from exc
    return script


def _check_references(script: Script) -> None:
    if script.live is not None:
        script.case(script.live.case)
        script.live.accepting(1)
        script.live.delivering(1, "{}")
    for case in script.cases:
        script.steps_of(case)


def _check_step(step: StubCaseStep) -> None:
    if bool(step.events()) == bool(step.wait_ms) or step.wait_ms < 0:
        raise SettingsError("a step has either `give` or `wait_ms`, above 0")
    for wanted in step.want or []:
        if not isinstance(wanted.get("action"), str):
            raise SettingsError("a wanted action has no `action`")
        if wanted["action"] not in ACTIONS:
            raise SettingsError(f"no such action: {wanted['action']!r}; known: {', '.join(ACTIONS)}")
        payload_of({name: value for name, value in wanted.items() if name != "match"})
        try:
            re.compile(wanted.get("match", ""))
        except (re.error, TypeError) as exc:
            raise SettingsError(f"match: {exc}") from exc


def difference(step: StubCaseStep, actions: Sequence[GuestAction]) -> str:
    """Compare an answer with what the step wants; returns the first difference in words, "" if there is none.

    Actions `log` count only if the step wants one. With `more`, actions between the wanted ones are allowed.
    """
    if step.want is None:
        return ""
    wants_log = any(wanted["action"] == "log" for wanted in step.want)
    answer = [facts for facts in map(action_facts, actions) if wants_log or facts["action"] != "log"]
    position = 0
    for wanted in step.want:
        at = position
        while at < len(answer) and not _fits(wanted, answer[at]) and step.more:
            at += 1
        if at >= len(answer):
            return f"wanted {_named(wanted)}; the answer ends"
        if not _fits(wanted, answer[at]):
            return f"wanted {_named(wanted)}; got {record_line(answer[at])}"
        position = at + 1
    if position < len(answer) and not step.more:
        return f"nothing more was wanted; got {record_line(answer[position])}"
    return ""


def _fits(wanted: Facts, facts: Facts) -> bool:
    return all(_member_fits(name, value, facts) for name, value in wanted.items())


def _member_fits(name: str, value: Any, facts: Facts) -> bool:
    text = facts.get("text", "")
    if name == "match":
        return re.fullmatch(value, text, re.DOTALL) is not None
    if name == "json":
        try:
            return bool(msgspec.json.decode(text) == value)
        except msgspec.DecodeError:
            return False
    if name in ("text", "hex"):
        return bool(
            payload_of({name: value}) == payload_of({key: facts[key] for key in ("text", "hex") if key in facts})
        )
    return bool(facts.get(name) == value)


def _named(wanted: Facts) -> str:
    """A wanted action for the report."""
    shown = dict(wanted)
    if "json" in shown:
        shown["text"] = msgspec.json.encode(shown.pop("json")).decode()
    if "match" in shown:
        shown["text"] = f"/{shown.pop('match')}/"
    return record_line(shown)
