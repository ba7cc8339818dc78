"""Strangers who want to fill what rules keep for operators, the place of others in it, or to have notices go round."""

from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.bus.policy_duties import PolicyDuties
from msg_node.kernel.counts import NodeCount
from msg_node.records import quarantine
from msg_node.records.quarantine import COPIES, OTHERS, OWN_BUS, Quarantine, copy_of
from policy.core.gate import Gate, PeerRule
from policy.core.text import PolicyText, load_policies
from tests.support.policies import a_message, some_facts

RULE = 'id = "s"\n[[rules]]\nid = "r"\neffect = "deny"\nobligations = { quarantine = true }\n'
FILES = 5


def gate() -> Gate:
    peers = {"b.example": PeerRule(), "*.c.example": PeerRule()}
    return Gate(load_policies([PolicyText("p.toml", RULE, "toml")]), peers)


def kept(store: Quarantine, domain: str, number: int, *, value: str = "") -> str:
    """Keep the copy of a message of a domain; returns its folder."""
    message = a_message(from_=f"hyperty://{domain}/x", to="hyperty://a.example/y", value=value)
    facts = some_facts(message, hook="in")
    place = store.place(facts)
    assert store.copy(place, {f"{number:06d}.json": copy_of(facts, gate().judge(facts))})
    return place


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quarantine:
    monkeypatch.setattr(quarantine, "QUARANTINE_FILES", FILES)
    monkeypatch.setattr(quarantine, "QUARANTINE_BYTES", 20_000)
    return Quarantine(tmp_path, gate().names)


def names(folder: Path, place: str) -> list[str]:
    return sorted(path.name for path in (folder / COPIES / place).iterdir())


def test_a_domain_fills_its_own_folder_only_and_its_oldest_copies_make_room(store: Quarantine, tmp_path: Path) -> None:
    assert kept(store, "b.example", 0) == "b.example"
    for number in range(40):
        assert kept(store, "evil.example", number) == OTHERS
    assert names(tmp_path, "b.example") == ["000000.json"]
    assert names(tmp_path, OTHERS) == [f"{number:06d}.json" for number in range(40 - FILES, 40)]


def test_large_messages_are_bounded_by_their_bytes(store: Quarantine, tmp_path: Path) -> None:
    for number in range(4):
        kept(store, "b.example", number, value="x" * 8_000)
    assert names(tmp_path, "b.example") == ["000002.json", "000003.json"]
    kept(store, "b.example", 9, value="x" * 30_000)
    assert names(tmp_path, "b.example") == []  # alone it is more than the folder may hold


def test_a_domain_of_many_names_has_one_folder_for_all_of_them(store: Quarantine, tmp_path: Path) -> None:
    for number in range(30):
        assert kept(store, f"x{number}.c.example", number) == OTHERS  # an entry with `*` names none of them alone
    assert [path.name for path in (tmp_path / COPIES).iterdir()] == [OTHERS]


@pytest.mark.parametrize("domain", ["local", "others", "rules", "../b.example", "b.example/..", "B.EXAMPLE", ""])
def test_a_name_that_looks_like_a_folder_gets_into_no_other_one(store: Quarantine, domain: str) -> None:
    facts = some_facts(a_message(), hook="in", link_domain=domain)
    assert store.place(facts) == (OTHERS if domain else OWN_BUS)


def test_a_notice_on_its_way_to_a_listener_abroad_causes_no_other_notice(store: Quarantine) -> None:
    node, ops = "runtime://a.example/mn-1", "hyperty://a.example/ops"
    text = RULE.replace("quarantine = true", f'notify = "{ops}"')
    judge = Gate(load_policies([PolicyText("p.toml", text, "toml")]), {"*": PeerRule()}).judge
    duties = PolicyDuties(node, {"a.example"}, store)
    notice = some_facts(a_message(type_="event", from_=node, to=ops), hook="out", link_domain="b.example")
    for _ in range(3):
        duties.take(notice, judge(notice))
    assert duties.counters == {NodeCount.NOTICES_LEFT_OUT: 3}


@pytest.mark.parametrize(
    "to", ["mn:/session", "domain://idm.a.example", "domain://msg-node.a.example/admin", "nothing"]
)
def test_what_is_for_a_service_is_kept_without_its_tokens_and_passwords(to: str) -> None:
    facts = some_facts(a_message(type_="open", to=to, token="secret"), hook="local", to_domain="a.example")
    text = copy_of(facts, gate().judge(facts))
    assert b"secret" not in text
    assert b'"rule":"s/r"' in text
