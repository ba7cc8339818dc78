"""Differences between settings, and which of them a running node takes over."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from msg_node.admin.core.setting_changes import SettingChange, differences, is_reloadable, reason_for_restart
from msg_node.settings.model import Settings
from msg_node.wiring.reloading import setting_changes

MINIMAL: dict[str, Any] = {"node": {"domain": "a.example", "data_dir": "/data"}}
PEER: dict[str, Any] = {"domain": "b.example", "default": "deny"}


def settings(**tables: Any) -> Settings:
    return msgspec.convert({**MINIMAL, **tables}, Settings, dec_hook=lambda type_, value: type_(value))


def changes(before: Settings, after: Settings) -> list[tuple[str, object, object]]:
    return [(one.name, one.before, one.after) for one in setting_changes(before, after)]


def test_equal_settings_do_not_differ() -> None:
    assert changes(settings(peer=[PEER]), settings(peer=[PEER])) == []


def test_an_entry_is_compared_by_its_domain_wherever_it_stands() -> None:
    other = {"domain": "c.example"}
    before, after = settings(peer=[PEER, other]), settings(peer=[other, {**PEER, "default": "permit"}])
    assert changes(before, after) == [("peer[b.example].default", "deny", "permit")]


def test_a_new_entry_differs_from_one_that_says_nothing() -> None:
    found = changes(settings(), settings(peer=[{**PEER, "p2p": False}]))
    assert found == [
        ("peer[b.example].domain", "", "b.example"),
        ("peer[b.example].default", "permit", "deny"),
        ("peer[b.example].p2p", True, False),
    ]
    assert [(name, after, before) for name, before, after in found] == changes(
        settings(peer=[{**PEER, "p2p": False}]), settings()
    )


@pytest.mark.parametrize(
    "tables",
    [
        {"policy": {"allow": ["b.example"]}},
        {"policy": {"deny": ["*.b.example"], "mode": "report"}},
        {"peer": [{**PEER, "messages_per_second": 5.0, "allow_addresses": ["10.0.0.0/8"]}]},
        {"peer": [{**PEER, "trust": "pinned", "fingerprint": "AB" * 32}]},
        {"log": {"level": "debug"}},
        {
            "sessions": {
                "anonymous": False,
                "credential": [{"token_sha256": "ab" * 32, "runtime": "runtime://a.example/x"}],
            }
        },
        {"listen": {"certificate": "/new.pem", "key": "/new.key"}},
        {"peer": [{**PEER, "stub": "vertx_peer", "endpoint": "wss://b.example/ws", "send_via": False}]},
        {"peer": [{**PEER, "updates": "pinned", "modules": ["ab" * 32]}]},
        {"peer": [{**PEER, "configuration": {"room": "a", "of.a\nkind": {"deep": [1]}}, "grant": {"http": False}}]},
    ],
)
def test_what_a_running_node_takes_over(tables: dict[str, Any]) -> None:
    found = setting_changes(settings(), settings(**tables))
    assert found
    assert all(is_reloadable(one) for one in found), found


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        ({"node": {**MINIMAL["node"], "name": "mn-2"}}, "node.name"),
        ({"listen": {"port": 1}}, "listen.port"),
        ({"policy": {"documents": True}}, "policy.documents"),
        ({"registry": {"url": "https://registry.a.example"}}, "registry"),
        ({"debug": {"flows": "off"}}, "debug.flows"),
        ({"log": {"format": "json"}}, "log.format"),
    ],
)
def test_what_needs_a_restart_is_named(tables: dict[str, Any], name: str) -> None:
    found = setting_changes(settings(), settings(**tables))
    assert [one.name for one in found if not is_reloadable(one)] == [name]


@pytest.mark.parametrize(
    "name",
    [
        "peer[b.example].defaults",
        "xpolicy.deny",
        "policy.denyx",
        "peer[b.example].record_bytesx",
        "peer[b.example].grants",
        "",
    ],
)
def test_names_that_only_look_alike_are_not_taken_over(name: str) -> None:
    assert not is_reloadable(SettingChange(name, None, 1))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"x": 1}, None, [("", {"x": 1}, None)]),
        (None, {"x": 1}, [("", None, {"x": 1})]),
        ({"x": 1}, {"x": 2, "y": 3}, [("x", 1, 2), ("y", None, 3)]),
        ({"peer": None}, {"peer": [{"domain": "b"}]}, [("peer", None, [{"domain": "b"}])]),
        ({"peer": [{"domain": "b"}]}, {"peer": None}, [("peer", [{"domain": "b"}], None)]),
        ({"peer": []}, {"peer": [{"domain": "b"}]}, [("peer[b].domain", "", "b")]),
        ({"peer": ["b"]}, {"peer": ({"domain": "b"},)}, [("peer[b].domain", "", "b")]),
        ({"other": [1]}, {"other": [2]}, [("other", [1], [2])]),
    ],
)
def test_tables_are_compared_by_member_lists_of_entries_by_domain_and_all_else_as_a_whole(
    before: Any, after: Any, found: list[tuple[str, object, object]]
) -> None:
    changed = differences(before, after, {"peer": {"domain": ""}})
    assert [(one.name, one.before, one.after) for one in changed] == found


@pytest.mark.parametrize("nested", [False, True])
def test_digests_of_tokens_are_shown_in_part(nested: bool) -> None:
    digest = {"token_sha256": "0123456789abcdef", "runtime": "r"}
    shown = {"token_sha256": "01234567…", "runtime": "r"}
    [change] = differences([digest] if nested else digest, [{"runtime": "x"}] if nested else None, {}, "credential")
    assert (change.before, change.after) == (([shown], [{"runtime": "x"}]) if nested else (shown, None))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("node.domain", "stored state"),
        ("admin.port", "bound"),
        ("records.folder", "segment"),
        ("connector[x].port", "start only"),
        ("registry", "entries of sessions"),
        ("push", "services"),
        ("policy.documents", "owners"),
        ("storage", "what is stored"),
        ("https.cert_file", "served"),
        ("sandbox.fuel", "stubs"),
        ("sandbox", "start only"),
    ],
)
def test_why_a_setting_waits_for_a_restart_is_said_by_what_was_made_with_it(name: str, word: str) -> None:
    assert word in reason_for_restart(name)


def test_the_path_of_a_webhook_is_not_shown() -> None:
    def hook(url: str) -> Settings:
        return settings(alarms={"webhook": {"url": url}})

    shown = str(changes(settings(), hook("https://chat.example/hooks/SECRET")))
    shown += str(changes(hook("https://chat.example/hooks/SECRET"), hook("https://chat.example?SECRET")))
    assert "https://chat.example/…" in shown
    assert "SECRET" not in shown


def test_only_the_path_of_a_webhook_is_left_out_and_nothing_of_other_addresses() -> None:
    [change] = differences({"url": "https://a.example/x"}, {"url": "https://a.example/y"}, {}, "registry")
    assert (change.before, change.after) == ("https://a.example/x", "https://a.example/y")
    [change] = differences({"url": None}, {"url": "https://a.example/y"}, {}, "alarms.webhook")
    assert (change.before, change.after) == (None, "https://a.example/…")
