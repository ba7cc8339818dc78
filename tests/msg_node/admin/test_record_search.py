"""Denials out of the audit records, for operators: which records count, in which form, and one search at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from msg_node.admin.administration import Actor, Administration
from msg_node.admin.core.operations import AdminRequest
from msg_node.admin.core.pages import Page
from msg_node.admin.record_search import SEARCHED_ROWS, RecordQuery, RecordSearch
from protofly.errors import Code, HostError, PeerError
from tests.support.admin_rig import admin_rig
from tests.support.runtime_rig import FOREIGN
from trapezoid.record_search import find_beside

OPS = Actor("ops", "socket", "user 0")
MESSAGE = {"kind": "mdr", "ts_us": 2_000_000, "role": "in", "msg_id": "m1", "msg_type": "read", "src_key": "f"}
DENIED = MESSAGE | {"dst_key": "t", "decision": "deny", "outcome": "denied", "outcome_code": "policy", "rule_id": "s/r"}
LOCAL = {
    "kind": "decision",
    "ts_us": 3_000_000,
    "hook": "local",
    "permitted": False,
    "reason": "policy",
    "msg_id": "m2",
}
RECORDS: list[Mapping[str, Any]] = [
    DENIED,
    MESSAGE | {"outcome": "expired", "outcome_code": "timeout"},  # no gate
    LOCAL | {"hook": "in", "msg_id": "m1"},  # stands beside the record of the message
    LOCAL | {"permitted": True},  # a rule on trial
    LOCAL,
    {"kind": "link", "ts_us": 4_000_000, "event": "refused"},
    {"kind": "session", "ts_us": 4_000_000, "event": "refused"},
]


async def test_records_of_denials_are_shown_as_those_in_memory_the_newest_first(tmp_path: Path) -> None:
    asked: list[tuple[RecordQuery, int]] = []

    async def find(query: RecordQuery, limit: int) -> list[Mapping[str, Any]]:
        asked.append((query, limit))
        return RECORDS

    async with admin_rig(tmp_path) as at:
        administration = Administration(dataclasses.replace(at.node, search=RecordSearch(find)))
        arguments = {"domain": FOREIGN, "gate": "in", "rule": "s/r", "since": "2026-03-01T18:00:00Z", "until": 9e9}
        page = await administration.perform(AdminRequest(operation="denials", arguments=arguments), OPS)
    assert isinstance(page, Page)
    local, denied = page.rows
    assert denied == {
        "time": "1970-01-01T00:00:02.000Z",
        "gate": "in",
        "from": "f",
        "to": "t",
        "type": "read",
        "code": "policy",
        "rule": "s/r",
        "msg_id": "m1",
    }
    assert (local["gate"], local["code"], local["rule"], local["msg_id"]) == ("local", "policy", "", "m2")
    expected = RecordQuery(since=1772388000.0, until=9e9, domain=FOREIGN, gate="in", rule="s/r")
    assert asked == [(expected, SEARCHED_ROWS)]


async def test_records_of_all_kinds_are_shown_the_newest_first_and_each_message_once(tmp_path: Path) -> None:
    asked: list[tuple[RecordQuery, int]] = []
    stub = {"kind": "stub_event", "ts_us": 5_000_000, "event": "live", "domain": FOREIGN}
    delivered = MESSAGE | {"outcome": "delivered", "msg_id": "m3", "why": ""}
    on_trial = LOCAL | {"hook": "in", "msg_id": "m1", "shadow": ["s/new"], "permitted": True, "why": "on trial: s/new"}

    async def find(query: RecordQuery, limit: int) -> list[Mapping[str, Any]]:
        asked.append((query, limit))
        return [DENIED | {"why": "policy: a rule"}, delivered, LOCAL | {"hook": "in", "msg_id": "m1"}, on_trial, stub]

    async with admin_rig(tmp_path) as at:
        administration = Administration(dataclasses.replace(at.node, search=RecordSearch(find)))
        arguments = {"since": 1, "domain": FOREIGN, "from": "f", "to": "t", "id": "m1", "refused": True}
        page = await administration.perform(AdminRequest(operation="records", arguments=arguments), OPS)
        page_of_all = await administration.perform(AdminRequest(operation="records", arguments={"since": 1}), OPS)
    assert isinstance(page, Page)
    assert page == page_of_all
    shown = [(one["kind"], one["from"], one["type"], one["result"], one["place"], one["why"]) for one in page.rows]
    assert shown == [
        ("stub_event", FOREIGN, "", "live", "", ""),
        ("decision", "", "", "permitted", "in", "on trial: s/new"),
        ("mdr", "f", "read", "denied", "in", "policy: a rule"),
        ("mdr", "f", "read", "delivered", "in", ""),
    ]
    assert page.rows[2]["time"] == "1970-01-01T00:00:02.000Z"
    expected = RecordQuery(since=1.0, domain=FOREIGN, sender="f", recipient="t", id="m1", is_refused=True)
    assert asked == [(expected, SEARCHED_ROWS), (RecordQuery(since=1.0, is_refused=False), SEARCHED_ROWS)]


async def test_without_a_search_a_time_is_refused_and_memory_is_filtered(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        with pytest.raises(PeerError, match="records find") as caught:
            await at.administration.perform(AdminRequest(operation="denials", arguments={"since": 1}), OPS)
        assert caught.value.code is Code.NO_SUCH_SERVICE
        request = AdminRequest(operation="denials", arguments={"gate": "local", "rule": "s/r"})
        page = await at.administration.perform(request, OPS)
        assert isinstance(page, Page)
        assert page.rows == []


async def test_one_search_is_made_at_a_time_and_ends_when_it_takes_too_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def find(_query: RecordQuery, _limit: int) -> list[Mapping[str, Any]]:
        await trio.sleep_forever()
        raise AssertionError

    search, codes = RecordSearch(find), list[str]()

    async def ask() -> None:
        with pytest.raises(PeerError) as caught:
            await search.denials(RecordQuery())
        codes.append(caught.value.code.word)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
    await ask()
    assert codes == ["rate", "timeout", "timeout"]
    assert autojump_clock.current_time() >= 120.0


async def test_what_the_command_cannot_answer_is_said_with_its_reason(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text("[node")
    with pytest.raises(HostError, match="without an answer") as caught:
        await find_beside(config, RecordQuery(since=5.0, until=6.0, domain=FOREIGN, gate="in", rule="--x"), 5)
    assert caught.value.code is Code.STORAGE
