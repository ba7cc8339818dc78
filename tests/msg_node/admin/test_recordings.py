"""Recordings as operators start, list and stop them: bounded, audited, and only where the settings have a key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msg_node.settings.tables.recording import RecordingSettings
from msg_node.storage.sealing import add_state_key
from tests.support.admin_rig import admin_rig, ask_admin
from tests.support.runtime_rig import runtime_address

BOB = runtime_address("bob")


@pytest.fixture
def recording(tmp_path: Path) -> RecordingSettings:
    key = tmp_path / "recording.key"
    add_state_key(key)
    return RecordingSettings(key_file=key, folder=tmp_path / "recordings", max_seconds=60.0, max_files=1)


async def test_a_recording_is_started_listed_and_stopped_with_audit_records(
    tmp_path: Path, recording: RecordingSettings
) -> None:
    async with admin_rig(tmp_path, recording=recording) as at:
        ops = await at.operator()
        wish = {"for": "30s", "from": BOB, "to": "beta.example", "name": "r", "reason": "trial"}
        tried = await ask_admin(ops, "recording start", arguments=wish, dryRun=True)
        assert (tried["code"], at.events) == (200, [])
        assert not (tmp_path / "recordings").exists()
        started = await ask_admin(ops, "recording start", arguments=wish)
        assert started["value"]["after"]["bodies"] is False
        [row] = (await ask_admin(ops, "recordings", "read"))["value"]["rows"]
        assert (row["state"], row["messages"], row["ends_after_seconds"]) == ("recording", 0, 30.0)
        again = await ask_admin(ops, "recording start", arguments={**wish, "name": "s"})
        assert (again["code"], again["reason"]) == (400, "bad-body")
        assert (await ask_admin(ops, "recording stop"))["code"] == 200
        [row] = (await ask_admin(ops, "recordings", "read"))["value"]["rows"]
        assert row["state"] == "done"
        assert (await ask_admin(ops, "recording stop"))["reason"] == "not-registered"
        full = await ask_admin(ops, "recording start", arguments={**wish, "name": "s"})
        assert (full["code"], full["reason"]) == (429, "quota")
        assert [(one.operation, one.code) for one in at.events] == [
            ("recording start", None),
            ("recording start", "bad-body"),
            ("recording stop", None),
            ("recording stop", "not-registered"),
            ("recording start", "quota"),
        ]
        recorded = json.loads(at.events[0].arguments)
        assert recorded["reason"] == "trial"
        assert "bob" not in at.events[0].arguments, "whom it is about is hashed"


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"for": "61s"},
        {"for": 0},
        {"for": "30s", "name": "../r"},
        {"for": "30s", "from": "hyperty://a b"},
        {"for": "30s", "from": "b..example"},
        {"for": "30s", "bodies": "yes"},
    ],
)
async def test_a_recording_without_bounds_or_of_nobody_is_refused(
    tmp_path: Path, recording: RecordingSettings, wish: dict[str, object]
) -> None:
    async with admin_rig(tmp_path, recording=recording) as at:
        answer = await ask_admin(await at.operator(), "recording start", arguments=wish)
        assert answer["code"] in (400, 404)
        assert not (tmp_path / "recordings").exists()


async def test_a_node_without_a_key_for_recordings_records_nothing(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        ops = await at.operator()
        answer = await ask_admin(ops, "recording start", arguments={"for": "30s"})
        assert answer["reason"] == "no-such-service"
        assert (await ask_admin(ops, "recordings", "read"))["value"]["rows"] == []


async def test_a_key_that_others_may_read_seals_nothing(tmp_path: Path, recording: RecordingSettings) -> None:
    recording.key_file.chmod(0o644)
    async with admin_rig(tmp_path, recording=recording) as at:
        answer = await ask_admin(await at.operator(), "recording start", arguments={"for": "30s"})
        assert answer["code"] >= 400
        assert list((tmp_path / "recordings").glob("*")) == []
