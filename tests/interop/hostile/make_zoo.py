"""Assemble the hostile stubs of `interop/hostile/zoo/`: `python -m tests.interop.hostile.make_zoo` writes them."""

from __future__ import annotations

import json
from pathlib import Path

from sandbox.core.exchange import Action, ChannelKind, GuestAction
from tests.support.guest_records import encode_actions
from tests.support.guests import ENDLESS_LOOP, constant, guest, status

FOLDER = Path(__file__).parents[3] / "interop" / "hostile" / "zoo"


def _opening(endpoint: str) -> bytes:
    request = json.dumps({"endpoint": endpoint, "path": ""}).encode()
    return encode_actions([GuestAction(Action.OPEN, 1, request, int(ChannelKind.WEBSOCKET))])


STUBS: dict[str, tuple[bytes, str, str]] = {
    "looping": (guest(ENDLESS_LOOP), "loops for ever at the first event", "stub-out-of-fuel"),
    "trapping": (guest("(unreachable)"), "traps at the first event", "stub-trapped"),
    "recursing": (
        guest("(call $f) (i64.const 0)", extra="(func $f (call $f))"),
        "calls itself until its stack is full",
        "stub-trapped",
    ),
    "pointing": (guest("(i64.const -1)"), "answers with a buffer outside of its memory", "stub-output"),
    "flooding": (
        constant(encode_actions([GuestAction(Action.LOG, 0, b"x")] * 1000)),
        "answers each event with a thousand actions",
        "stub-output",
    ),
    "babbling": (constant(b"\xff" * 64), "answers with bytes that are no actions", "stub-output"),
    "lying": (status(b"live"), "says that it is live without a connection", "stub-failed"),
    "trespassing": (
        constant(_opening("other") * 20),
        "opens endpoints that its manifest does not name",
        "stub-denied",
    ),
    "growing": (
        guest(
            "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (unreachable)",
            initial_pages=40,
        ),
        "takes all the memory that it can get, then traps",
        "stub-trapped",
    ),
}


def main() -> None:
    """Write the modules and their list."""
    FOLDER.mkdir(exist_ok=True)
    for name, (module, _, _) in STUBS.items():
        (FOLDER / f"{name}.wasm").write_bytes(module)
    (FOLDER / "index.json").write_text(index(), encoding="utf-8")


def index() -> str:
    """The list as it is shipped."""
    rows = [{"name": name, "does": does, "code": code} for name, (_, does, code) in STUBS.items()]
    return json.dumps(rows, indent=1) + "\n"


if __name__ == "__main__":
    main()
