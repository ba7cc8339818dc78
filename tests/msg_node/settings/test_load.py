from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msg_node.settings.load import data_dir_of, load_settings, settings_as_json
from msg_node.settings.model import Settings
from msg_node.settings.reference import configuration_reference
from protofly.errors import SettingsError
from protofly.toml_lines import locate_keys

REPOSITORY = Path(__file__).resolve().parents[3]
SMALLEST = """
[node]
domain = "a.example"
data_dir = "data"
[listen]
insecure_plaintext = true
"""


def load(folder: Path, text: str) -> Settings:
    path = folder / "node.toml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return load_settings(path)


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(folder, text)
    return caught.value.detail.replace(str(folder), "")


def test_the_smallest_file_gives_safe_defaults(tmp_path: Path) -> None:
    loaded = load(tmp_path, SMALLEST)
    assert loaded.node.data_dir == tmp_path / "data"
    assert loaded.listen.host == "127.0.0.1"
    assert loaded.peer == ()
    assert loaded.spool_dir == tmp_path / "data" / "records"
    assert loaded.node_id == "mn-1.a.example"
    assert loaded.site_url == "https://a.example"
    assert loaded.own_domains == ("a.example",)


@pytest.mark.parametrize("origin", ["app.a.example", "https://app.a.example/", "https://App.a.example", ""])
def test_an_origin_is_written_as_browsers_write_it(tmp_path: Path, origin: str) -> None:
    assert "is not an origin" in complaint(tmp_path, f'{SMALLEST}origins = ["{origin}"]\n')
    good = ["*", "https://app.a.example", "http://[::1]:3000"]
    assert list(load(tmp_path, f"{SMALLEST}origins = {good}\n").listen.origins) == good


def test_an_unknown_key_is_an_error_with_file_line_and_suggestion(tmp_path: Path) -> None:
    assert complaint(tmp_path, SMALLEST + "prot = 1\n") == (
        "/node.toml:7: listen.prot: unknown setting; did you mean `port`?"
    )


def test_a_key_in_the_wrong_table_is_reported_with_its_place(tmp_path: Path) -> None:
    assert complaint(tmp_path, SMALLEST + "grace_seconds = 1\n").endswith(
        "listen.grace_seconds: unknown setting; it belongs into [sessions]"
    )


def test_a_block_at_the_wrong_level_is_no_silent_permit(tmp_path: Path) -> None:
    text = complaint(tmp_path, 'default = "deny"\n' + SMALLEST)
    assert "default: unknown setting; it belongs into [peer]" in text


def test_all_unknown_keys_are_reported_at_once(tmp_path: Path) -> None:
    text = complaint(tmp_path, SMALLEST + 'hots = "x"\n[nod]\nx = 1\n')
    assert len(text.splitlines()) == 2


def test_entries_of_lists_are_named_by_their_own_line(tmp_path: Path) -> None:
    text = complaint(
        tmp_path,
        SMALLEST
        + """
[[peer]]
domain = "b.example"
[[peer]]
domain = "c.example"
trusst = "web"
""",
    )
    assert text == "/node.toml:12: peer[2].trusst: unknown setting; did you mean `trust`?"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[limits]\nmax_hops = 0", "limits.max_hops: Expected a whole number >= 1"),
        ("[limits]\nmax_hops = 'x'", "limits.max_hops: Expected a whole number, got a text"),
        ("[records]\ndurability = 'sometimes'", "records.durability: Invalid enum value 'sometimes'"),
        ("[records]\nsync_seconds = 0", "records.sync_seconds: Expected a number > 0"),
        ("[records]\nspool_dir = 3", "records.spool_dir: "),
        ("[site]\nport = 70000\ninsecure_plaintext = true", "site.port: Expected a whole number <= 65535"),
        ("[site]", "site: needs `certificate` and `key`"),
        ("[site]\ncertificate = 'x'", "site: `certificate` and `key` come together"),
        ("[site]\ncertificate='x'\nkey='y'\ninsecure_plaintext=true", "site: `insecure_plaintext` contradicts"),
        ("[site]\ninsecure_plaintext=true\npublic_url='ftp://x'", "site.public_url: not an https:// URL"),
        ("[publish]\nkeys_dir='k'\nsite_dir='s'\nendpoint_url='wss://a.example/link'", "publish: nothing can be"),
        ("[discovery]\nnameservers = ['dns.example:53']", "discovery.nameservers: 'dns.example:53' is not"),
        ("[discovery]\nnameservers = ['127.0.0.1']", "discovery.nameservers: '127.0.0.1' is not"),
        ("[[peer]]\ndomain = 'localhost'", "peer[1].domain: 'localhost' is not a domain name"),
        ("[[peer]]\ndomain = 'a.example'", "peer[1].domain: a.example is our own domain"),
        ("[[peer]]\ndomain = 'b.example'\n[[peer]]\ndomain = 'b.example'", "peer[2].domain: a second entry"),
        ("[[peer]]\ndomain = 'b.example'\ntrust = 'pinned'", "peer[1].trust: `pinned` needs one domain"),
        ("[[peer]]\ndomain = 'b.example'\nfingerprint = 'short'", "peer[1].fingerprint: 43 characters"),
        ("[[peer]]\ndomain = '*.b.example'\nallow_addresses = ['10.0.0.0/8']", "peer[1].allow_addresses: only for"),
        ("[[peer]]\ndomain = 'b.example'\nallow_addresses = ['10.0.0.1/8']", "peer[1].allow_addresses: 10.0.0.1/8"),
        ("[[peer]]\ndomain = 'b.example'\nconnect = 'x:1'", "peer[1].connect: goes with `well_known_url`"),
        ("[[sessions.credential]]\nruntime='x'\ntoken_sha256='hash'", "sessions.credential[1].token_sha256: "),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, line: str, expected: str) -> None:
    text = complaint(tmp_path, SMALLEST + line + "\n")
    assert expected in text
    assert text.startswith("/node.toml:"), "every complaint has its line"


def test_wildcard_peers_are_allowed(tmp_path: Path) -> None:
    assert load(tmp_path, SMALLEST + "[[peer]]\ndomain = '*.b.example'\ndefault = 'deny'\n").peer[0].default == "deny"


def test_broken_toml_names_the_line(tmp_path: Path) -> None:
    assert "node.toml: " in complaint(tmp_path, "[node\n")
    assert "line 1" in complaint(tmp_path, "[node\n")


def test_deep_nesting_is_a_settings_error(tmp_path: Path) -> None:
    complaint(tmp_path, "x = " + "[" * 5000 + "]" * 5000)


def test_a_missing_file_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "absent.toml")


def test_conf_d_adds_tables_and_appends_entries(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "10-peer.toml").write_text('[[peer]]\ndomain = "c.example"\n[limits]\nmax_hops = 3\n')
    loaded = load(tmp_path, SMALLEST + "[[peer]]\ndomain = 'b.example'\n")
    assert [peer.domain for peer in loaded.peer] == ["b.example", "c.example"]
    assert loaded.limits.max_hops == 3


def test_conf_d_complaints_name_their_own_file(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "10-peer.toml").write_text('[[peer]]\ndomain = "c.example"\ntrust = "some"\n')
    text = complaint(tmp_path, SMALLEST + "[[peer]]\ndomain = 'b.example'\n")
    assert text.startswith("/conf.d/10-peer.toml:3: peer[2].trust")


def test_a_key_given_twice_names_both_places(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "10.toml").write_text('[node]\ndomain = "c.example"\n')
    assert complaint(tmp_path, SMALLEST) == "/node.toml:3: node.domain: given again in /conf.d/10.toml"


def test_absolute_paths_stay(tmp_path: Path) -> None:
    assert load(tmp_path, SMALLEST + "[policy]\nfiles = ['/etc/x.toml', 'y.toml']\n").policy.files == (
        Path("/etc/x.toml"),
        tmp_path / "y.toml",
    )


def test_settings_can_be_shown_as_json(tmp_path: Path) -> None:
    assert '"domain": "a.example"' in settings_as_json(load(tmp_path, SMALLEST))


def test_lines_are_found_past_multi_line_values() -> None:
    text = 'x = """\n[fake]\ny = 1\n"""\n[t]\na = [\n  "]", # [\n  "b",\n]\nc.d = 1\n[[e.f]]\n[[e.f]]\ng = 2\n'
    found = locate_keys(text)
    assert found[("t",)] == 5
    assert found[("t", "a")] == 6
    assert found[("t", "c", "d")] == 10
    assert found[("e", "f", 1, "g")] == 13
    assert ("fake",) not in found


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(max_size=300) | st.text("[]='\"\n#.ab1 ", max_size=80))
def test_any_text_gives_settings_or_a_settings_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text, encoding="utf-8", newline="")
    with pytest.raises(SettingsError):
        load_settings(path)


def test_the_reference_page_is_current() -> None:
    page = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == configuration_reference(), "run: trapezoid config reference --output docs/configuration.md"


def test_the_reference_page_explains_every_setting() -> None:
    rows = [row for row in configuration_reference().splitlines() if row.startswith("| `")]
    assert len(rows) > 60
    assert all(row.split("|")[4].strip() for row in rows)


ALIASED = """
[[peer]]
domain = "b.example"
aliases = ["{}"]
[[peer]]
domain = "c.example"
"""


def test_an_alias_of_a_peer_is_a_name_about_which_nothing_else_is_said(tmp_path: Path) -> None:
    good = load(tmp_path, SMALLEST + ALIASED.format("b-lab.example"))
    assert good.peer[0].aliases == ("b-lab.example",)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.example", "a.example is our own domain"),
        ("b.example", "has an entry of its own"),
        ("c.example", "has an entry of its own"),
        ("B-lab.example", "is not a domain name"),
        ("*.b-lab.example", "is not a domain name"),
        ("localhost", "is not a domain name"),
        ("barred.example", "policy.deny bars barred.example"),
    ],
)
def test_a_name_that_cannot_be_an_alias_is_an_error(tmp_path: Path, name: str, words: str) -> None:
    settings = SMALLEST + '[policy]\ndeny = ["barred.example"]\n' + ALIASED.format(name)
    assert words in complaint(tmp_path, settings)


def test_an_alias_belongs_to_one_peer_that_is_named_in_full(tmp_path: Path) -> None:
    twice = ALIASED.format("b-lab.example") + 'aliases = ["b-lab.example"]\n'
    assert "listed for another peer" in complaint(tmp_path, SMALLEST + twice)
    wild = '[[peer]]\ndomain = "*.b.example"\naliases = ["b-lab.example"]\n'
    assert "only for a domain that is named in full" in complaint(tmp_path, SMALLEST + wild)


def test_the_data_folder_is_known_while_other_settings_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(SMALLEST, encoding="utf-8")
    assert data_dir_of(path) == (tmp_path / "data", "")
    path.write_text(f'{SMALLEST}[log]\nlevle = "info"\n', encoding="utf-8")
    folder, problem = data_dir_of(path)
    assert folder == tmp_path / "data"
    assert "levle" in problem


@pytest.mark.parametrize("text", ["", "[node", "[node]\ndata_dir = 7\n", 'node = "x"\n'])
def test_settings_that_do_not_say_where_the_data_are_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError):
        data_dir_of(path)
