"""A JavaScript stub in this process: the interpreter of the kit with a script, seen by events and actions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from protofly import limits
from sandbox.core.exchange import FLAG_TEXT, Action, Event, GuestAction, GuestEvent
from sandbox.core.script_package import script_content
from stubkit.interpreter import INTERPRETER
from tests.examples_stubs.guest import Guest
from tests.examples_stubs.link_peer import start_event

SCRIPTS: Final = Path(__file__).parents[1] / "peers" / "protostubs"
STUB: Final = "runtime://a.example/mn-1/protostub/b7c1"
RELAY: Final = """
export default function activate(url, bus, config) {
  let line;
  const report = (value) => bus.postMessage({type: 'update', from: url, to: url + '/status', body: {value}});
  bus.addListener('*', (message) => { line.send(JSON.stringify(message)); });
  return {instance: {connect() {
    line = new WebSocket(config.url);
    line.onopen = () => report('live');
    line.onmessage = (event) => bus.postMessage(JSON.parse(event.data));
    line.onclose = () => report('disconnected');
  }}};
}"""
"""Passes everything on, both ways."""


class JavaScript(Guest):
    """An instance of the interpreter that has been given a script."""

    def __init__(
        self, text: str, *, about: dict[str, object] | None = None, configuration: dict[str, object] | None = None
    ) -> None:
        super().__init__(INTERPRETER)
        self.initialize()
        whole = {"file": "stub.js", "isModule": "export default" in text, **(about or {})}
        script = GuestEvent(Event.SCRIPT, 0, script_content(whole, text.encode()))
        start = start_event(endpoints=["mn"], stub_url=STUB, configuration=configuration or {})
        whole_call = len(start.payload) + len(script.payload) < limits.INPUT_BYTES - 100
        self.first = self.call(start, script) if whole_call else self.call(start) + self.call(script)

    def opened(self, channel: int = 1) -> list[GuestAction]:
        return self.call(GuestEvent(Event.OPENED, channel, b""))

    def hear(self, text: str | bytes, channel: int = 1) -> list[GuestAction]:
        raw = text if isinstance(text, bytes) else text.encode()
        return self.call(GuestEvent(Event.DATA, channel, raw, FLAG_TEXT))

    def say(self, number: int, text: str) -> list[GuestAction]:
        return self.call(GuestEvent(Event.MESSAGE, number, text.encode()))

    def after(self, milliseconds: int) -> list[GuestAction]:
        self.now_ms += milliseconds
        return self.call(GuestEvent(Event.TIMER, 1, b""))


def texts(actions: list[GuestAction], op: Action) -> list[str]:
    """What the actions of one kind say."""
    return [action.payload.decode() for action in actions if action.op == op]


def statuses(actions: list[GuestAction]) -> list[str]:
    return texts(actions, Action.STATUS)
