from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from msg_node.admin.policy_deployment import Policies, PolicyDeployment, change_sha256, policies_of
from msg_node.settings.tables.policy import PolicySettings
from msg_node.storage.policy_store import PolicyStore
from policy.core.gate import Gate
from policy.core.quotas import Counted
from policy.files import read_policies
from protofly.errors import SettingsError
from protofly.records import PolicyEvent, Record

CLOSED = 'id = "closed"\n[[rules]]\nid = "nobody"\neffect = "deny"\ncondition = { size = { moreThan = 5 } }\n'
OPEN = 'id = "open"\n[[rules]]\nid = "all"\neffect = "permit"\n[[rules]]\nid = "more"\neffect = "permit"\n'


class Rig:
    def __init__(self, folder: Path, text: str) -> None:
        self.file = folder / "border.toml"
        self.file.write_text(text)
        self.store = PolicyStore(folder)
        self.records: list[Record] = []
        policies = self.read()
        self.gate = Gate(policies.compiled)
        self.policies = PolicyDeployment(self.gate, policies, self.records.append)

    def read(self) -> Policies:
        return policies_of(PolicySettings(files=(self.file,)), "a.example", self.store, self.store.active())

    @property
    def last(self) -> PolicyEvent:
        event = self.records[-1]
        assert isinstance(event, PolicyEvent)
        return event


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, CLOSED)


def test_a_start_is_written_down_with_what_is_in_force(rig: Rig) -> None:
    rig.policies.record_start()
    event = rig.last
    assert (event.event, event.cause, event.before, event.after) == (
        "deployed",
        "start",
        None,
        rig.gate.policies.revision,
    )
    assert (event.rules, event.reads, event.files, event.mode) == (1, ("size",), (str(rig.file),), "enforce")
    assert event.actor
    assert event.diff_sha256 == hashlib.sha256(b"\n" + rig.gate.policies.canonical).hexdigest()


def test_a_reload_names_both_revisions_and_the_change_between_them(rig: Rig) -> None:
    before = rig.gate.policies
    rig.file.write_text(OPEN)
    rig.policies.deploy(rig.read())
    after, event = rig.gate.policies, rig.last
    assert after.revision != before.revision
    assert (event.event, event.cause, event.before, event.after) == (
        "deployed",
        "reload",
        before.revision,
        after.revision,
    )
    assert (event.rules, event.diff_sha256) == (2, change_sha256(before, after))
    assert change_sha256(before, after) != change_sha256(after, before)


@pytest.mark.parametrize("text", ["", "id = 7\n[[rules]]", OPEN.replace("permit", "allow it all")])
def test_files_that_are_wrong_change_nothing_and_are_written_down_as_refused(rig: Rig, text: str) -> None:
    before = rig.gate.policies
    rig.file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_policies([rig.file])
    rig.policies.refused(caught.value)
    event = rig.last
    assert rig.gate.policies is before
    assert (event.event, event.before, event.after, event.code) == ("refused", before.revision, None, "settings")
    assert event.detail
    assert "border.toml" in event.detail


def test_a_quota_that_is_used_up_is_written_down_with_its_end_and_what_was_counted(rig: Rig) -> None:
    rig.policies.used_up("b.example out day", 0, Counted(since=0.0, until=86_400.0, messages=1000, bytes=52_000))
    assert (rig.last.event, rig.last.cause, rig.last.actor) == ("used-up", "quota", "the node")
    assert rig.last.detail == "b.example out day until 1970-01-02T00:00:00Z: 1,000 messages, 52,000 bytes"
    rig.policies.used_up("limit:x 0a day", 7, Counted(until=86_400.0))
    assert str(rig.last.detail).endswith("; and 7 others")
