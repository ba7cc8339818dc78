from __future__ import annotations

import hashlib
import json
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from protofly.documents import decode_envelope, decode_root
from trapezoid.commands import app

REPOSITORY = Path(__file__).resolve().parents[2]
LINK = REPOSITORY / "examples" / "stubs" / "trapezoid_link" / "link.wasm"
BORDER = REPOSITORY / "examples" / "policies" / "border.toml"
DENIED = '{"id":1,"type":"create","from":"hyperty://a.example/x","to":"hyperty://spam.example/y","body":{}}'


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def facts(*arguments: object) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    assert run("keys", "init", "a.example", "--keys", folder).exit_code == 0
    return folder


@pytest.fixture
def node(tmp_path: Path, keys: Path) -> Path:
    assert run("publish", "a.example", "--keys", keys, "--site", tmp_path / "site").exit_code == 0
    path = tmp_path / "node.toml"
    path.write_text(
        f"""
[node]
domain = "a.example"
data_dir = "data"
[listen]
port = 0
insecure_plaintext = true
[site]
port = 0
insecure_plaintext = true
[publish]
keys_dir = "keys"
site_dir = "site"
endpoint_url = "wss://mn.a.example/link"
[policy]
files = ["{BORDER}"]
[[peer]]
domain = "b.example"
"""
    )
    return path


def test_keys_are_made_readable_by_their_owner_only_and_never_overwritten(keys: Path) -> None:
    paths = list(keys.glob("*.pem"))
    assert (keys / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert {path.name.partition("-")[0] for path in paths} == {"root", "live", "pkg", "node"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    before = {path: path.read_bytes() for path in paths}
    again = run("keys", "init", "a.example", "--keys", keys)
    assert again.exit_code == 2
    assert "already contains keys" in again.stderr
    assert {path: path.read_bytes() for path in keys.glob("*.pem")} == before


def test_a_key_more_of_a_role_is_named_by_the_next_root_beside_the_old_one(keys: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    facts("publish", "a.example", "--keys", keys, "--site", site)
    added = facts("keys", "add", "live", "--keys", keys)
    assert Path(added["file"]).name == f"{added['id']}.pem"
    assert facts("publish", "a.example", "--keys", keys, "--site", site)["root_version"] == 2
    root = decode_root(decode_envelope((site / "root" / "2.json").read_bytes()).payload, domain="a.example")
    assert set(root.roles.live.keys) == {path.stem for path in keys.glob("live-*.pem")}
    assert len(root.roles.live.keys) == 2


def test_no_key_is_added_to_a_folder_without_keys(tmp_path: Path) -> None:
    done = run("keys", "add", "live", "--keys", tmp_path / "kyes")
    assert done.exit_code == 2
    assert "no keys here" in done.stderr
    assert not (tmp_path / "kyes").exists()


def test_private_keys_that_others_may_read_are_refused(keys: Path, tmp_path: Path) -> None:
    next(keys.glob("pkg-*.pem")).chmod(0o644)
    done = run("publish", "a.example", "--keys", keys, "--site", tmp_path / "site")
    assert done.exit_code == 2
    assert "chmod 600" in done.stderr
    assert not (tmp_path / "site").exists()


def test_nothing_shown_about_keys_is_private(keys: Path) -> None:
    shown = run("keys", "show", "--keys", keys, "--json").stdout
    assert [key["role"] for key in json.loads(shown)] == ["root", "live", "pkg", "node"]
    for path in keys.glob("*.pem"):
        body = path.read_text().partition("-----BEGIN PRIVATE KEY-----\n")[2].splitlines()[0]
        assert len(body) > 40
        assert body not in shown


def test_the_fingerprint_is_the_same_from_keys_and_from_what_is_published(keys: Path, tmp_path: Path) -> None:
    report = facts("publish", "a.example", "--keys", keys, "--site", tmp_path / "site")
    from_keys = facts("keys", "fingerprint", "--keys", keys)["fingerprint"]
    assert from_keys == report["fingerprint"]
    assert facts("keys", "fingerprint", "--site", tmp_path / "site")["fingerprint"] == from_keys
    assert run("keys", "fingerprint", "--keys", keys).stdout == from_keys + "\n"


def test_publishing_twice_changes_nothing(keys: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    first = facts("publish", "a.example", "--keys", keys, "--site", site)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in site.rglob("*") if path.is_file()}
    second = facts("publish", "a.example", "--keys", keys, "--site", site, LINK)
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in site.rglob("*") if path.is_file()}
    assert (first["is_new_root"], first["is_new_manifest"]) == (True, True)
    assert (second["is_new_root"], second["is_new_manifest"]) == (False, False)
    assert after == before


def test_keys_of_another_domain_publish_nothing(keys: Path, tmp_path: Path, node: Path) -> None:
    refused = run("publish", "b.example", "--keys", keys, "--site", tmp_path / "b-site")
    assert refused.exit_code == 2
    assert "is a key of a.example, not of b.example" in refused.stderr
    assert not (tmp_path / "b-site").exists()
    copied = tmp_path / "copied"  # the mark goes with the file
    shutil.copytree(keys, copied)
    assert run("publish", "b.example", "--keys", copied, "--site", tmp_path / "b-site").exit_code == 2
    facts("keys", "add", "live", "--keys", keys)
    for path in keys.glob("live-*.pem"):
        assert path.read_text().startswith("Domain: a.example\n")
    shutil.rmtree(keys)
    run("keys", "init", "b.example", "--keys", keys)
    done = run("check", "--config", node)
    assert (done.exit_code, "is a key of b.example" in done.stdout) == (1, True)


def test_a_folder_of_keys_into_which_others_may_write_is_refused(keys: Path, tmp_path: Path, node: Path) -> None:
    for mode in (0o777, 0o770, 0o1777):
        keys.chmod(mode)
        done = run("publish", "a.example", "--keys", keys, "--site", tmp_path / "site")
        assert (done.exit_code, f"chmod 700 {keys}" in done.stderr) == (2, True)
        done = run("check", "--config", node)
        assert (done.exit_code, f"chmod 700 {keys}" in done.stdout) == (1, True)


def test_keys_from_before_they_said_whose_they_are_still_publish(keys: Path, tmp_path: Path) -> None:
    for path in keys.glob("*.pem"):
        path.write_bytes(path.read_bytes().removeprefix(b"Domain: a.example\n"))
    assert facts("publish", "b.example", "--keys", keys, "--site", tmp_path / "site")["root_version"] == 1


def test_ranges_make_an_interworking_stub_and_other_ranges_a_new_manifest(tmp_path: Path) -> None:
    site, keys = tmp_path / "site", tmp_path / "legacy-keys"
    run("keys", "init", "sip.legacy.example", "--keys", keys)
    publish = ("publish", "sip.legacy.example", LINK, "--keys", keys, "--site", site, "--range", "sip://legacy.example")
    first, again = facts(*publish), facts(*publish)
    assert (again["serial"], again["is_new_manifest"]) == (first["serial"], False)
    descriptor = json.loads((site / "protocolstub" / f"{first['stub']}.json").read_bytes())
    assert descriptor["interworking"] is True
    assert facts(*publish, "--range", "tel:+49*")["serial"] == 2
    refused = run(*publish, "--range", "hyperty://a.example")
    assert (refused.exit_code, "no legacy's" in refused.stderr) == (2, True)


def test_another_module_gets_the_next_serial_and_the_old_one_stays_fetchable(keys: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    first = facts("publish", "a.example", "--keys", keys, "--site", site)
    other = tmp_path / "other.wasm"
    other.write_bytes(LINK.read_bytes() + b"\x00\x02\x01x")  # one more custom section
    second = facts("publish", "a.example", "--keys", keys, "--site", site, other)
    assert (first["serial"], second["serial"]) == (1, 2)
    assert second["root_version"] == 1
    assert (site / "module" / f"{first['module_sha256']}.wasm").exists()
    refused = run("publish", "a.example", "--keys", keys, "--site", site, LINK, "--serial", 2)
    assert refused.exit_code == 2
    assert "not above" in refused.stderr


def test_a_changed_key_set_makes_a_new_root_signed_by_the_old_one(keys: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    facts("publish", "a.example", "--keys", keys, "--site", site)
    report = facts("publish", "a.example", "--keys", keys, "--site", site, "--alias", "lab.a.example")
    assert (report["root_version"], report["is_new_root"]) == (2, True)
    assert (site / "root" / "1.json").exists()
    stranger = tmp_path / "stranger"
    run("keys", "init", "a.example", "--keys", stranger)
    refused = run("publish", "a.example", "--keys", stranger, "--site", site)
    assert refused.exit_code == 2
    assert "old root keys" in refused.stderr


def test_a_pkg_key_that_goes_takes_its_signature_along(keys: Path, tmp_path: Path, node: Path) -> None:
    site = tmp_path / "site"
    [old] = keys.glob("pkg-*.pem")
    facts("keys", "add", "pkg", "--keys", keys)
    assert not facts("publish", "a.example", "--keys", keys, "--site", site)[
        "is_new_manifest"
    ]  # the old one still counts
    before = (site / "manifest" / "trapezoid-link.json").read_bytes()
    old.unlink()
    report = facts("publish", "a.example", "--keys", keys, "--site", site)
    assert (report["root_version"], report["serial"], report["is_new_manifest"]) == (3, 2, True)
    assert run("check", "--config", node).exit_code == 0
    (site / "manifest" / "trapezoid-link.json").write_bytes(before)
    done = run("check", "--config", node)
    assert done.exit_code == 1
    assert "problem  publish: the manifest of trapezoid-link is not signed by a pkg key" in done.stdout


def test_a_manifest_that_the_root_would_not_let_count_is_not_published(keys: Path, tmp_path: Path, node: Path) -> None:
    site = tmp_path / "site"
    for path in (*keys.glob("root-*.pem"), *keys.glob("pkg-*.pem")):
        path.unlink()
    facts("keys", "add", "pkg", "--keys", keys)
    before = (site / "manifest" / "trapezoid-link.json").read_bytes()
    done = run("publish", "a.example", "--keys", keys, "--site", site, "--serial", 9)
    assert done.exit_code == 2
    assert "publish where the root keys are" in done.stderr
    assert (site / "manifest" / "trapezoid-link.json").read_bytes() == before


def test_publishing_needs_no_root_key_once_the_root_is_there(keys: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    facts("publish", "a.example", "--keys", keys, "--site", site)
    next(keys.glob("root-*.pem")).unlink()
    assert facts("publish", "a.example", "--keys", keys, "--site", site)["root_version"] == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["publish", "localhost", "--keys", "{keys}", "--site", "{tmp}/s"], "name-invalid"),
        (["publish", "a.example", "{keys}", "--keys", "{keys}", "--site", "{tmp}/s"], "settings"),
        (["publish", "a.example", "{tmp}/text", "--keys", "{keys}", "--site", "{tmp}/s"], "module-malformed"),
        (["publish", "a.example", "--keys", "{tmp}/none", "--site", "{tmp}/s"], "settings"),
        (["check", "--config", "{tmp}/none.toml"], "settings"),
        (["policy", "test", "{tmp}/none.toml"], "settings"),
        (["policy", "test"], "settings"),
        (["keys", "fingerprint"], "settings"),
        (["stub", "build", "{tmp}/none.c"], "settings"),
    ],
)
def test_what_cannot_be_done_has_a_code_and_exit_status_2(
    keys: Path, tmp_path: Path, arguments: list[str], word: str
) -> None:
    (tmp_path / "text").write_text("not a module")
    done = run(*(argument.format(keys=keys, tmp=tmp_path) for argument in arguments), "--json")
    assert done.exit_code == 2, done.output
    assert json.loads(done.stdout)["error"]["code"] == word
    assert f"[{word}]" in done.stderr


def test_check_finds_a_good_node_good(node: Path) -> None:
    report = facts("check", "--config", node)
    assert report["ok"]
    assert {check["part"] for check in report["checks"]} >= {
        "listen",
        "site",
        "publish",
        "sessions",
        "policy",
        "sandbox",
    }


def test_check_reads_the_keys_of_issuers(node: Path) -> None:
    issuer = '[[sessions.issuer]]\nissuer = "login"\naudience = "a"\njwks = "login.json"\n'
    node.write_text(node.read_text(encoding="utf-8") + issuer, encoding="utf-8")
    done = run("check", "--config", node)
    assert done.exit_code == 1
    assert "login.json: No such file" in done.stdout


def test_check_reports_all_problems_and_exits_with_1(node: Path) -> None:
    next((node.parent / "keys").glob("live-*.pem")).chmod(0o644)
    (node.parent / "data").write_text("a file")
    done = run("check", "--config", node)
    assert done.exit_code == 1
    assert done.stdout.count("problem  ") == 3, done.stdout  # publish, data folder, spool folder
    assert "chmod 600" in done.stdout


def test_check_notices_keys_that_the_root_does_not_name(node: Path, tmp_path: Path) -> None:
    run("keys", "init", "a.example", "--keys", tmp_path / "new")
    next((tmp_path / "new").glob("live-*.pem")).rename(tmp_path / "keys" / "live-000000000000.pem")
    done = run("check", "--config", node)
    assert done.exit_code == 1
    assert "root does not name" in done.stdout


def test_policy_test_loads_and_explains(node: Path) -> None:
    assert facts("policy", "test", BORDER)["tests"] == "passed"
    done = run("policy", "test", "--config", node, "--message", DENIED, "--json")
    assert done.exit_code == 1
    explained = json.loads(done.stdout)
    assert (explained["permitted"], explained["rule"]) == (False, "border/never/closed-domains")
    assert explained["rules"]
    assert 'linkDomain = "spam.example"' in explained["values"]


def test_policy_test_uses_the_peers_of_the_settings(node: Path) -> None:
    permitted = DENIED.replace("spam.example", "b.example")
    done = run("policy", "test", "--config", node, "--message", permitted, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["peer_entry"] == "b.example"


def test_policy_test_and_check_use_the_lists_of_the_settings(node: Path) -> None:
    permitted = DENIED.replace("spam.example", "b.example")
    text = node.read_text()
    node.write_text(text.replace("[policy]", '[policy]\ndeny = ["*.example"]'))
    done = run("policy", "test", "--config", node, "--message", permitted, "--json")
    explained = json.loads(done.stdout)
    assert (done.exit_code, explained["code"], explained["decided_by"]) == (1, "domain-blocked", "list")
    node.write_text(text.replace("[policy]", '[policy]\nallow = ["not a domain"]'))
    report = json.loads(run("check", "--config", node, "--json").stdout)
    assert [check["part"] for check in report["checks"] if not check["is_good"]] == ["policy"]


def test_policy_test_with_a_broken_message_is_an_error() -> None:
    done = run("policy", "test", BORDER, "--message", "{", "--json")
    assert done.exit_code == 2


def test_config_reference_goes_where_it_is_sent(tmp_path: Path) -> None:
    run("config", "reference", "--output", tmp_path / "c.md")
    assert (tmp_path / "c.md").read_text() == run("config", "reference").stdout


def test_config_show_prints_defaults(node: Path) -> None:
    assert json.loads(run("config", "show", "--config", node).stdout)["limits"]["max_hops"] == 8


def test_values_are_never_broken_over_lines(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    module = hashlib.sha256(LINK.read_bytes()).hexdigest()
    shown = run("publish", "a.example", "--keys", keys, "--site", tmp_path / "site").stdout
    assert re.search(rf"^module sha256 +{module}$", shown, re.MULTILINE)
    public = facts("keys", "show", "--keys", keys)[0]["public"]
    assert f"  {public}\n" in run("keys", "show", "--keys", keys).stdout


def test_the_program_shows_its_version() -> None:
    engine = f"wasmtime 50.0.0 (package {version('wasmtime')})"
    assert run("--version").stdout == f"trapezoid {version('trapezoid')}, engine {engine}\n"


def test_stub_check_shows_a_line_for_each_step_and_the_verdict() -> None:
    done = run("stub", "check", LINK)
    assert done.exit_code == 0
    head, *steps = done.stdout.split("\n\n")[1].splitlines()
    assert head.split() == ["step", "events", "actions", "fuel", "share", "CPU", "memory", "state", "complaint"]
    assert steps[0].startswith("start ")
    assert all(line.endswith("  -") for line in steps)
    assert done.stdout.endswith("verdict  good\n")


def test_stub_check_of_no_module_says_why_it_was_not_run(tmp_path: Path) -> None:
    path = tmp_path / "text.wasm"
    path.write_text("no module")
    done = run("stub", "check", path)
    assert done.exit_code == 1
    assert "verdict  " in done.stdout
    assert "module-malformed" in done.stdout


def test_stub_pack_writes_both_files(tmp_path: Path) -> None:
    packed = facts("stub", "pack", LINK, tmp_path, "--authority", "a.example")
    assert json.loads(Path(packed["descriptor"]).read_text())["objectName"] == "trapezoid-link"
    assert Path(packed["source_package"]).exists()


def explanations(command: Any) -> Iterator[tuple[str, str]]:
    """Name and help of a command, of its options and arguments, and of all commands below it."""
    yield command.name, command.help or ""
    for parameter in command.params:
        yield f"{command.name} {parameter.name}", getattr(parameter, "help", "") or ""
    for below in getattr(command, "commands", {}).values():
        yield from explanations(below)


def test_every_command_and_option_has_a_help_that_terminals_show_in_full() -> None:
    every = dict(explanations(typer.main.get_command(app)))
    assert len(every) > 100
    assert [name for name, text in every.items() if not text] == []
    taken_for_colours = re.compile(r"\[[a-z]")
    assert [name for name, text in every.items() if taken_for_colours.search(text)] == []


@pytest.mark.parametrize("command", [[], ["keys"], ["policy"], ["stub"], ["config"], ["publish"], ["demo"]])
def test_every_command_explains_itself(command: list[str]) -> None:
    done = run(*command, "--help")
    assert done.exit_code == 0
    assert "Usage" in done.stdout


def loaded_by(program: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after `program`."""
    code = f"import sys\n{program}\nprint(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=REPOSITORY
    )
    return set(done.stdout.split())


def test_help_loads_nothing_heavy() -> None:
    heavy = {"trio", "httpx", "wasmtime", "cryptography", "starlette", "dns", "zstandard", "sqlite3"}
    assert not loaded_by("import trapezoid.commands") & heavy


def test_a_serving_node_loads_no_command_line_library(node: Path) -> None:
    imports = "from pathlib import Path\nfrom msg_node.settings.load import load_settings"
    program = f"{imports}\nload_settings(Path({str(node)!r}))"
    loaded = loaded_by(f"import trapezoid.cli, trapezoid.serving\n{program}\nimport msg_node.app")
    assert not loaded & {"typer", "rich", "click", "wasmtime", "trustme", "hypothesis"}


def test_peer_approve_says_when_nothing_is_held(node: Path) -> None:
    done = run("peer", "approve", "b.example", "default", "--config", node)
    assert done.exit_code == 2
    assert "not-registered" in done.stderr
