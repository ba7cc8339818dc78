"""Bundles of policies for operators: what there is, adding, activation, roll-back; and questions to other policies.

Each change is planned in another thread, since policies are compiled and their tests run for it: an invalid bundle is
refused with file and line, and nothing has changed. What is in force changes between two messages, and is on the disk
before. The rules of a flow end with it, since the gate begins a new era.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

import msgspec
import trio

from msg_node.admin.administered import Administered
from msg_node.admin.core.operations import Value
from msg_node.admin.core.pages import Page, Row, page_of
from msg_node.admin.core.plan import Plan
from msg_node.admin.core.recent_decisions import ChangedDecision, Trial, try_policies
from msg_node.admin.partner_views import evaluate_at
from msg_node.admin.policy_deployment import Cause, Policies, count_rules, policies_of
from msg_node.storage.policy_store import (
    FILES_OF_SETTINGS,
    Activation,
    ActivePolicies,
    Bundle,
    BundleFacts,
    compile_files,
)
from policy.core.model import Mode
from policy.core.recorded_facts import ADDRESS_FACTS, unrecorded
from policy.core.signed_bundle import check_signature
from policy.files import digest_of_files
from protofly.errors import Code, PeerError, SettingsError
from protofly.records import MessageRecord

Arguments = Mapping[str, Value]
CHANGED_SHOWN: Final = 20
_ONE_AT_A_TIME: Final = trio.CapacityLimiter(1)
"""Compiling takes seconds for the largest bundles: many questions are not to take all threads of the node."""
_Result = TypeVar("_Result")


# What there is.


async def bundles(node: Administered, arguments: Arguments) -> Page:
    """All bundles and the files of the settings, the newest first."""
    return page_of(await _in_thread(_rows, node), arguments)


def _rows(node: Administered) -> list[Row]:
    active = node.policies.in_force.active
    rows = [_row(one, active) for one in node.policy_store.bundles()]
    settings: dict[str, object] = {
        "bundle": FILES_OF_SETTINGS,
        "state": _state(active, ""),
        "revision": "",
        "rules": None,
        "added": None,
        "by": "",
        "note": ", ".join(map(str, node.settings().policy.files)) or "no files",
    }
    if not active.bundle:
        compiled = node.policies.in_force.compiled
        settings |= {"revision": compiled.revision, "rules": count_rules(compiled)}
    return [*rows, settings]


def _row(facts: BundleFacts, active: ActivePolicies) -> Row:
    return {
        "bundle": facts.digest,
        "state": _state(active, facts.digest),
        "revision": facts.revision,
        "rules": facts.rules,
        "added": _utc(facts.at),
        "by": facts.by,
        "note": facts.note,
    }


def _state(active: ActivePolicies, digest: str) -> str:
    if active.bundle == digest:
        return "in force"
    return "roll-back" if active.before == digest else ""


async def bundle(node: Administered, arguments: Arguments) -> dict[str, object]:
    """One bundle with its files.

    Raises:
        PeerError: NO_SUCH_BUNDLE.
    """
    found = await _in_thread(node.policy_store.find, str(arguments["bundle"]))
    return {**_row(found.facts, node.policies.in_force.active), "files": found.files}


async def active(node: Administered, _arguments: Arguments) -> dict[str, object]:
    """The bundle in force, and the one before it."""
    activations = node.policies.in_force.active.activations
    history = [
        {"bundle": one.bundle or FILES_OF_SETTINGS, "by": one.by, "at": _utc(one.at) if one.at else ""}
        for one in activations
    ]
    facts = node.policies.facts()
    return {**facts, "since": history[-1]["at"] if history else "", "history": history[::-1]}


async def evaluate(node: Administered, arguments: Arguments) -> dict[str, object]:
    """Say if a message would pass a gate, now or with the policies of a bundle.

    Raises:
        PeerError: BAD_BODY, BAD_HEADER, NAME_INVALID: it is no message; NO_SUCH_BUNDLE.
    """
    if "bundle" not in arguments:
        return evaluate_at(node, node.gate, arguments)
    policies = await _in_thread(_policies_named, node, str(arguments["bundle"]))
    return evaluate_at(node, node.gate_with(policies.compiled), arguments)


# Changes.


async def add(node: Administered, arguments: Arguments, by: str, credential: str) -> Plan:
    """Keep a bundle; it is not in force by that. One that is there already gets the newer note.

    Raises:
        PeerError: POLICY_UNSIGNED, before anything in the files is read; POLICY_INVALID, TOO_LARGE.
    """
    files = msgspec.json.decode(str(arguments["files"]), type=dict[str, str])
    signature, settings = str(arguments.get("signature", "")), node.settings()
    if settings.policy.keys:
        domain, digest = settings.node.domain, digest_of_files(files)
        check_signature(signature.encode(), keys=settings.policy.keys, domain=domain, digest=digest)
    groups = await _in_thread(node.policy_store.groups)
    compiled = await _in_thread(compile_files, files, Mode.ENFORCE, groups)
    try:
        node.gate_with(compiled)
    except SettingsError as exc:
        raise PeerError(Code.POLICY_INVALID, exc.detail) from exc
    facts = BundleFacts(
        digest=digest_of_files(files),
        revision=compiled.revision,
        rules=count_rules(compiled),
        by=by,
        at=time.time(),
        note=str(arguments.get("note", "")),
        credential=node.pseudonym(credential),
    )
    after = {"bundle": facts.digest, "revision": facts.revision, "rules": facts.rules, "files": list(files)}
    return Plan(
        None, after, _nothing, partial(node.policy_store.add, Bundle(facts=facts, files=files, signature=signature))
    )


async def activate(node: Administered, arguments: Arguments, by: str, credential: str) -> Plan:
    """Put a bundle in force, or the files of the settings.

    Raises:
        PeerError: NO_SUCH_BUNDLE; IN_USE: it is in force; SECOND_PERSON; POLICY_INVALID; POLICY_UNSIGNED.
        SettingsError: The files of the settings cannot be used.
    """
    digest = await _in_thread(_digest_named, node, str(arguments["bundle"]))
    now = node.policies.in_force.active
    if digest == now.bundle:
        raise PeerError(Code.IN_USE, f"{node.policies.in_force.place} is in force already")
    if digest and node.settings().policy.two_persons:
        added = (await _in_thread(node.policy_store.read, digest)).facts
        if added.credential in ("", node.pseudonym(credential)):
            text = "`policy.two_persons` is set: a bundle is activated with another credential than it was added with"
            raise PeerError(Code.SECOND_PERSON, text)
    newest = Activation(bundle=digest, by=by, at=time.time())
    return await _switch(node, now.with_newest(newest), "activation", by)


async def roll_back(node: Administered, _arguments: Arguments, by: str) -> Plan:
    """Restore the policies that were in force before. Raises as `activate`."""
    now = node.policies.in_force.active
    if now.before is None:
        raise PeerError(Code.NO_SUCH_BUNDLE, "no other policies were in force before these")
    return await _switch(node, now.rolled_back(), "roll-back", by)


async def _switch(node: Administered, active: ActivePolicies, cause: Cause, by: str) -> Plan:
    """Plan to put other policies in force, and try them on the last decisions."""
    settings, store, in_force = node.settings(), node.policy_store, node.policies.in_force
    policies = await _in_thread(policies_of, settings.policy, settings.node.domain, store, active)
    missing = unrecorded(in_force.compiled.facts_read, is_hashed=node.settings().records.hash_addresses) - ADDRESS_FACTS
    trial = await _in_thread(_trial, node, policies, missing)
    after = {
        **_place(policies),
        "decisions_tried": trial.judged,
        "decisions_not_tried": trial.unknown,
        "decisions_that_change": len(trial.changed),
        "changes": [_changed_row(one) for one in trial.changed[:CHANGED_SHOWN]],
    }
    apply = partial(node.policies.deploy, policies, cause, by)
    return Plan(_place(in_force), after, apply, partial(store.set_active, active))


def _trial(node: Administered, policies: Policies, missing: frozenset[str]) -> Trial:
    now = node.gate_with(node.policies.in_force.compiled)
    return try_policies(node.gate_with(policies.compiled), list(node.traffic.decisions), missing, in_force=now)


def _place(policies: Policies) -> dict[str, object]:
    return {"bundle": policies.active.bundle or FILES_OF_SETTINGS, "revision": policies.compiled.revision}


def _changed_row(change: ChangedDecision) -> Row:
    record, verdict = change.record, change.verdict
    return {
        "time": _utc(record.ts_us / 1e6),
        "gate": record.role if isinstance(record, MessageRecord) else record.hook,
        "from": record.src_key,
        "to": record.dst_key,
        "type": record.msg_type,
        "would": "pass" if verdict.permitted else "be denied",
        "rule": verdict.rule_id or verdict.step.value,
    }


async def remove(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Forget a bundle.

    Raises:
        PeerError: NO_SUCH_BUNDLE; IN_USE: it is in force, or was before.
    """
    facts = (await _in_thread(node.policy_store.find, str(arguments["bundle"]))).facts
    active = node.policies.in_force.active
    if facts.digest in {one.bundle for one in active.activations}:
        raise PeerError(Code.IN_USE, "this bundle is in force, or roll-backs lead to it")
    return Plan(_row(facts, active), None, _nothing, partial(node.policy_store.remove, facts.digest))


async def reload(node: Administered, _arguments: Arguments, _by: str) -> Plan:
    """Take changed settings over. Raises SettingsError."""
    return await node.plan_reload()


async def _in_thread(call: Callable[..., _Result], *arguments: object) -> _Result:
    return await trio.to_thread.run_sync(call, *arguments, limiter=_ONE_AT_A_TIME)


def _nothing() -> None:
    """Leave the policies in force."""


def _digest_named(node: Administered, name: str) -> str:
    return "" if name == FILES_OF_SETTINGS else node.policy_store.find(name).facts.digest


def _policies_named(node: Administered, name: str) -> Policies:
    named = ActivePolicies((Activation(bundle=_digest_named(node, name), by="", at=0.0),))
    settings = node.settings()
    return policies_of(settings.policy, settings.node.domain, node.policy_store, named)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


QUESTIONS: Final[Mapping[str, Callable[[Administered, Arguments], Awaitable[object]]]] = {
    "policy active": active,
    "policy bundles": bundles,
    "policy bundle": bundle,
    "evaluate": evaluate,
}
"""What is answered after reading from the disk, by the name of its operation."""

PLANNERS: Final[Mapping[str, Callable[[Administered, Arguments, str], Awaitable[Plan]]]] = {
    "policy roll-back": roll_back,
    "policy remove": remove,
    "reload": reload,
}
"""What is planned in another thread, by the name of its operation; one at a time."""

PLANNERS_BY_CREDENTIAL: Final[Mapping[str, Callable[[Administered, Arguments, str, str], Awaitable[Plan]]]] = {
    "policy add": add,
    "policy activate": activate,
}
"""The same for what depends on the credential of who asks."""
