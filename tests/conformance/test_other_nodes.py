"""The suite against nodes that are wrong on purpose: no check that cannot fail, and none that fails a good node."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from interop.conformance.cases import CASES
from interop.conformance.discover import discover
from interop.conformance.model import Dialect, Profile
from interop.conformance.outcome import CaseVerdict, Outcome
from interop.conformance.run import Report, run, select
from interop.conformance.stage import Node
from interop.conformance.wire import parse_target
from protofly.errors import Code, TransportError

from .replicas import DOMAIN, Message, NoMatrixReplica, Replica, Spoil, VertxReplica, as_it_is


@asynccontextmanager
async def node_of(replica: Replica, *, patience_seconds: float = 5.0) -> AsyncIterator[Node]:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(replica.run)
        target, _ = parse_target(f"ws://127.0.0.1:{port}", ssl.create_default_context())
        yield Node(target=target, domain=DOMAIN, patience_seconds=patience_seconds)
        nursery.cancel_scope.cancel()


async def report_on(node: Node, dialect: Dialect, profile: Profile, *words: str) -> Report:
    cases = [case for case in select(CASES, words) if profile in case.profiles and dialect in case.dialects]
    assert cases
    return await run(await discover(node, [dialect], profile), cases, profile)


# The reference profile.


@pytest.mark.parametrize(("replica", "dialect"), [(VertxReplica, Dialect.A), (NoMatrixReplica, Dialect.C)])
async def test_what_reference_nodes_do_satisfies_the_reference_profile(
    replica: type[Replica], dialect: Dialect
) -> None:
    async with node_of(replica()) as node:
        report = await report_on(node, dialect, Profile.REFERENCE)
    assert [outcome.explain() for outcome in report.findings] == []
    assert report.count(CaseVerdict.PASSED) >= 10


async def test_what_reference_nodes_do_does_not_satisfy_the_specification() -> None:
    async with node_of(VertxReplica()) as node:
        report = await report_on(node, Dialect.A, Profile.STRICT, "alloc-two-hyperties", "route-nobody", "sub-no-body")
    verdicts = {outcome.case.id: outcome.verdict for outcome in report.outcomes}
    assert verdicts["alloc-two-hyperties"] is CaseVerdict.FAILED  # no description
    assert report.count(CaseVerdict.PASSED) == 0


# Faults.


async def verdict_on(
    spoil: Spoil, *, case: str = "alloc-two-hyperties", profile: Profile = Profile.REFERENCE
) -> Outcome:
    """What the suite finds in a good node whose replies to allocation and reads are spoiled."""
    replica = VertxReplica()
    async with node_of(replica, patience_seconds=30.0) as node:
        discovery = await discover(node, [Dialect.A], profile)
        if spoil is is_silent:
            discovery = replace(discovery, node=replace(node, patience_seconds=0.5))
        replica.spoil = lambda message: as_it_is(message) if is_opening(message) else spoil(message)
        [outcome] = (await run(discovery, select(CASES, [case]), profile)).outcomes
    return outcome


def is_opening(message: Message) -> bool:
    return bool(message["from"] == "mn:/session")


def says_ok(_: Message) -> list[str | bytes | None]:
    return ["OK"]


def hangs_up(_: Message) -> list[str | bytes | None]:
    return [None]


def is_silent(_: Message) -> list[str | bytes | None]:
    return []


def changed(**members: object) -> Spoil:
    """Header members in place of the right ones."""
    return lambda message: [json.dumps({**message, **members})]


def in_body(**members: object) -> Spoil:
    """Body members in place of the right ones."""
    return lambda message: [json.dumps({**message, "body": {**message["body"], **members}})]


def without(name: str) -> Spoil:
    return lambda message: [json.dumps({key: value for key, value in message.items() if key != name})]


FAULTS: dict[str, tuple[Spoil, str]] = {
    "id-as-text": (lambda message: [json.dumps({**message, "id": str(message["id"])})], "id"),
    "id-as-fraction": (lambda message: [json.dumps({**message, "id": float(message["id"])})], "id"),
    "another-id": (lambda message: [json.dumps({**message, "id": message["id"] + 1})], "id"),
    "no-id": (without("id"), "id"),
    "upper-case-type": (changed(type="RESPONSE"), "type"),
    "from-not-mirrored": (changed(**{"from": f"domain://msg-node.{DOMAIN}"}), "from"),
    "to-not-mirrored": (changed(to="runtime://a.example/other"), "to"),
    "to-as-list": (lambda message: [json.dumps({**message, "to": [message["to"]]})], "to"),
    "another-member": (changed(version=1), "version"),
    "no-body": (without("body"), "body"),
    "null-body": (changed(body=None), "body"),
    "code-as-text": (in_body(code="200"), "body.code"),
    "code-true": (in_body(code=True), "body.code"),
    "another-code": (in_body(code=202), "body.code"),
    "one-address-too-many": (
        lambda message: [json.dumps(message).replace('"allocated": [', '"allocated": ["hyperty://a.example/x", ')],
        "body.value.allocated",
    ),
    "another-scheme": (
        lambda message: [json.dumps(message).replace("hyperty://", "comm://")],
        "body.value.allocated[0]",
    ),
    "not-an-object": (lambda message: [json.dumps([message])], ""),
}


@pytest.mark.parametrize(("spoil", "path"), FAULTS.values(), ids=FAULTS)
async def test_a_wrong_reply_is_a_difference_at_its_place(spoil: Spoil, path: str) -> None:
    outcome = await verdict_on(spoil)
    assert outcome.verdict is CaseVerdict.FAILED
    assert path in [difference.path for difference in outcome.differences]
    assert outcome.step == 2


STRICT_FAULTS: dict[str, tuple[Spoil, str]] = {
    "no-description": (in_body(), "body.description"),
    "another-description": (in_body(description="Fine"), "body.description"),
    "unexpected-member": (in_body(description="OK", extra=1), "body.extra"),
    "desc-says-something-else": (in_body(description="OK", desc="Fine"), "body.desc"),
}


@pytest.mark.parametrize(("spoil", "path"), STRICT_FAULTS.values(), ids=STRICT_FAULTS)
async def test_the_strict_profile_compares_the_whole_body(spoil: Spoil, path: str) -> None:
    replica = VertxReplica()
    good = in_body(description="OK")
    async with node_of(replica) as node:
        discovery = await discover(node, [Dialect.A], Profile.STRICT)
        replica.spoil = lambda message: good(message) if is_opening(message) else spoil(message)
        [outcome] = (await run(discovery, select(CASES, ["alloc-two-hyperties"]), Profile.STRICT)).outcomes
    assert outcome.verdict is CaseVerdict.FAILED
    assert path in [difference.path for difference in outcome.differences]


WIRE_FAULTS: dict[str, tuple[Spoil, str]] = {
    "not-json": (says_ok, "not JSON"),
    "two-objects": (lambda message: [json.dumps(message) * 2], "not JSON"),
    "duplicate-members": (lambda message: [json.dumps(message).replace("{", '{"id": 1, ', 1)], "duplicate member id"),
    "not-a-number": (lambda message: [json.dumps({**message, "id": float("nan")})], "NaN is not JSON"),
    "binary-frame": (lambda message: [json.dumps(message).encode()], "binary frame"),
    "hangs-up": (hangs_up, "closed the connection"),
}


@pytest.mark.parametrize(("spoil", "words"), WIRE_FAULTS.values(), ids=WIRE_FAULTS)
async def test_what_is_no_message_is_a_finding(spoil: Spoil, words: str) -> None:
    outcome = await verdict_on(spoil)
    assert outcome.verdict is CaseVerdict.FAILED
    assert words in outcome.problem


async def test_silence_is_distinguished_from_a_wrong_reply() -> None:
    outcome = await verdict_on(is_silent)
    assert outcome.verdict is CaseVerdict.NO_ANSWER
    assert outcome.is_finding
    assert "heard nothing" in outcome.problem


async def test_an_answer_that_nobody_asked_for_is_a_finding() -> None:
    outcome = await verdict_on(lambda message: [json.dumps(message)] * 2, case="session-opens")
    assert outcome.verdict is CaseVerdict.FAILED
    assert "id" in [difference.path for difference in outcome.differences]


async def test_a_message_that_was_changed_on_its_way_is_a_finding() -> None:
    def swap(message: Message) -> list[str | bytes | None]:
        return (
            [json.dumps({**message, "body": {"value": "other"}})] if message["type"] == "update" else as_it_is(message)
        )

    outcome = await verdict_on(swap, case="sub-resources")
    assert outcome.verdict is CaseVerdict.FAILED
    assert [difference.path for difference in outcome.differences] == ["body.value"]


async def test_a_node_that_does_not_hang_up_after_close_is_a_finding() -> None:
    class Clinging(VertxReplica):
        async def take(self, connection, message):  # type: ignore[no-untyped-def]
            if message["type"] != "close":
                await super().take(connection, message)

    async with node_of(Clinging(), patience_seconds=2.0) as node:
        report = await report_on(node, Dialect.A, Profile.REFERENCE, "session-ends")
    assert [outcome.verdict for outcome in report.outcomes] == [CaseVerdict.NO_ANSWER]


async def test_a_node_that_sends_the_sender_its_own_event_fails_the_strict_case_only() -> None:
    async with node_of(VertxReplica()) as node:
        discovery = await discover(node, [Dialect.A], Profile.REFERENCE)
        [outcome] = (await run(discovery, select(CASES, ["route-no-echo"]), Profile.REFERENCE)).outcomes
    assert outcome.verdict is CaseVerdict.NOT_APPLICABLE
    assert outcome.problem == "not in the profile reference"


# Before the first case.


async def test_a_dialect_that_is_not_offered_is_named_with_the_reason() -> None:
    async with node_of(VertxReplica()) as node:
        discovery = await discover(node, list(Dialect), Profile.REFERENCE)
    assert discovery.offered == (Dialect.A,)
    assert "HTTP 404" in discovery.missing[Dialect.C]


async def test_a_closed_port_is_connect_failed() -> None:
    target, _ = parse_target("ws://127.0.0.1:1", ssl.create_default_context())
    with pytest.raises(TransportError) as caught:
        await discover(Node(target=target, domain=DOMAIN), list(Dialect), Profile.STRICT)
    assert caught.value.code is Code.CONNECT_FAILED


async def test_without_a_domain_the_suite_says_what_is_missing() -> None:
    async with node_of(VertxReplica()) as node:
        nameless = Node(target=node.target, domain="")
        with pytest.raises(TransportError) as caught:
            await discover(nameless, [Dialect.A], Profile.STRICT)
    assert "--domain" in caught.value.detail


async def test_a_node_that_speaks_no_dialect_is_no_node() -> None:
    class Deaf(VertxReplica):
        async def accept(self, request):  # type: ignore[no-untyped-def]
            await request.reject(503)

    async with node_of(Deaf()) as node:
        with pytest.raises(TransportError) as caught:
            await discover(node, list(Dialect), Profile.STRICT)
    assert "HTTP 503" in caught.value.detail
