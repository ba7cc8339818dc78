"""Messages in quarantine, as operators list, read, release and remove them.

What is released goes the way that it was on, past the same gates: to let a message pass that a rule denies, change the
rule, or set a gate for a time. A message that killed a stub is given to the stub of today.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
import trio

from msg_node.admin.administered import Administered
from msg_node.admin.core.operations import Value
from msg_node.admin.core.pages import Page, Row, page_of
from msg_node.admin.core.plan import Plan
from msg_node.records.quarantined import Kept, find_all, find_kept, kept_messages, remove_kept
from policy.core.model import Facts, Hook
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.message import Message

Arguments = Mapping[str, Value]
_HOOKS: Final[Mapping[str, Hook]] = {"out": "out", "in": "in", "local": "local"}


async def messages(node: Administered, arguments: Arguments) -> Page:
    """List the quarantined messages, without bodies: folder by folder, the oldest first."""
    data_dir = node.settings().node.data_dir
    return page_of(await trio.to_thread.run_sync(lambda: [_row(one) for one in kept_messages(data_dir)]), arguments)


async def show(node: Administered, arguments: Arguments) -> dict[str, object]:
    """One message with its body, where that is kept. Raises PeerError NOT_REGISTERED."""
    kept = await _found(node, arguments)
    return {**_row(kept), "has_body": bool(kept.message), "entry": msgspec.json.encode(kept.entry).decode()}


async def release(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Send a message on its way again; it is kept until it was taken.

    Raises:
        PeerError: NOT_REGISTERED; ALREADY_FINAL: it passed when it was copied; BAD_BODY: only its header is kept; what
            the gate says today.
    """
    kept = await _found(node, arguments)
    if kept.is_copy and kept.entry.get("permitted") is True:
        raise PeerError(Code.ALREADY_FINAL, "this message has passed; only a copy of it is kept")
    message = _message_in(kept)
    hook = _HOOKS.get(str(kept.entry.get("hook", "out")), "out")
    domain = str(kept.entry.get("link_domain" if kept.is_copy else "domain", ""))
    _check_gate(node, message, hook, domain)
    after = {"message": kept.name, "gate": hook, "outcome": "sent"}

    def apply() -> None:
        code = _send(node, message, hook, domain)
        if code is not None:
            after["outcome"] = code.word

    def finish() -> None:
        if after["outcome"] == "sent":
            remove_kept([kept])

    return Plan({"message": kept.name, "rule": kept.header("rule")}, after, apply, finish=finish)


async def delete(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Remove a message, or with `/*` all of a folder. Raises PeerError NOT_REGISTERED."""
    data_dir, name = node.settings().node.data_dir, str(arguments["message"])
    found = await trio.to_thread.run_sync(find_all, data_dir, name)
    return Plan(
        {"messages": len(found), "bytes": sum(one.size for one in found)}, None, _nothing, partial(remove_kept, found)
    )


def _message_in(kept: Kept) -> Message:
    """The message itself. Raises PeerError BAD_BODY."""
    try:
        found = codec.decode(msgspec.json.encode(kept.message)) if kept.message else []
    except codec.BrokenMessageError:
        found = []
    if len(found) != 1:
        raise PeerError(Code.BAD_BODY, "only the header of this message is kept: its sender has to send it again")
    return found[0]


def _check_gate(node: Administered, message: Message, hook: Hook, domain: str) -> None:
    """Ask the gate beforehand. Raises PeerError with its code, and the rule that decided."""
    size, now = len(message.raw), time.time()
    facts = Facts(hook, message, domain_of(message.from_), domain_of(message.to), domain, size, 0, now)
    verdict = node.gate.foresee(msgspec.structs.replace(facts, recipients=node.recipients))
    if not verdict.permitted:
        by = f" by {verdict.rule_id}" if verdict.rule_id else ""
        raise PeerError(verdict.code or Code.POLICY, f"the gate `{hook}` denies it{by}: change that first")


def _send(node: Administered, message: Message, hook: Hook, domain: str) -> Code | None:
    """Send a message on; returns why it was not taken."""
    if hook == "in":
        return node.bus.from_links.take(domain, [message])[0]
    if hook == "local":
        return None if node.bus.from_links.own.give(message) else Code.NO_ROUTE
    refusal = node.bus.send_queues.links.send(domain, message)
    node.bus.send_queues.wake()
    return None if refusal is None else refusal.code


async def _found(node: Administered, arguments: Arguments) -> Kept:
    return await trio.to_thread.run_sync(find_kept, node.settings().node.data_dir, str(arguments["message"]))


def _row(kept: Kept) -> Row:
    entry: dict[str, Any] = kept.entry
    ts_us = entry.get("ts_us")
    is_moment = isinstance(ts_us, int) and 0 <= ts_us < 1 << 53
    return {
        "message": kept.name,
        "why": (kept.header("rule") or "a rule") if kept.is_copy else "it killed a stub",
        "time": _utc(ts_us / 1e6) if is_moment and ts_us is not None else "",
        "from": kept.header("from"),
        "to": kept.header("to"),
        "type": kept.header("type"),
        "passed": entry.get("permitted") is True,
        "size_bytes": kept.size,
    }


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _nothing() -> None:
    """Files are all that changes."""


QUESTIONS: Final[Mapping[str, Callable[[Administered, Arguments], Awaitable[object]]]] = {
    "quarantine": messages,
    "quarantine show": show,
}
"""What is answered after reading from the disk, by the name of its operation."""

PLANNERS: Final[Mapping[str, Callable[[Administered, Arguments, str], Awaitable[Plan]]]] = {
    "quarantine release": release,
    "quarantine delete": delete,
}
"""What is planned after reading from the disk, by the name of its operation."""
