"""`trapezoid publish` takes nothing away that was not asked for, and signs nothing that nobody could use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from protofly.documents import Manifest, Root, decode_envelope, decode_manifest, decode_root
from trapezoid.commands import app

STUBS = Path(__file__).parents[2] / "examples" / "stubs"
LINK, ECHO = STUBS / "trapezoid_link" / "link.wasm", STUBS / "echo" / "echo.wasm"
DOMAIN = "a.example"
DAY = 86_400.0


class Shop:
    """A folder of keys and a site."""

    def __init__(self, folder: Path) -> None:
        self.keys, self.site = folder / "keys", folder / "site"
        assert self.run("keys", "init", DOMAIN, "--keys", self.keys).exit_code == 0

    def run(self, *words: object) -> Result:
        return CliRunner().invoke(app, [str(word) for word in words])

    def publish(self, *words: object) -> Result:
        return self.run("publish", DOMAIN, *words, "--keys", self.keys, "--site", self.site)

    def facts(self, *words: object) -> Any:
        done = self.publish(*words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def content(self) -> dict[Path, tuple[bytes, int]]:
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in self.site.rglob("*") if path.is_file()}

    def manifest(self, name: str = "trapezoid-link") -> Manifest:
        raw = (self.site / "manifest" / f"{name}.json").read_bytes()
        return decode_manifest(decode_envelope(raw).payload, domain=DOMAIN)

    def root(self, version: int) -> Root:
        raw = (self.site / "root" / f"{version}.json").read_bytes()
        return decode_root(decode_envelope(raw).payload, domain=DOMAIN)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


OPTIONS = (
    *("--memory-kib", "8192", "--call-ms", "20"),
    *("--for-domain", "b.example", "--for-domain", "c.example"),
    *("--url", "https://mn.a.example:8444/"),
    *("--alias", "lab.a.example", "--alias", "old.a.example"),
    *("--endpoint", "mn", "--endpoint", "lines"),
    *("--description", "speaks to us"),
)
KEPT = ["alias", "call-ms", "description", "endpoint", "for-domain", "memory-kib", "url"]


def test_options_that_are_not_repeated_stay_and_nothing_changes(shop: Shop) -> None:
    first = shop.facts(*OPTIONS)
    before = shop.content()
    again = shop.facts()
    assert (again["is_new_root"], again["is_new_manifest"]) == (False, False)
    assert again["options"] == first["options"]
    assert sorted(again["kept"]) == KEPT
    assert first["kept"] == []
    assert shop.content() == before


def test_an_option_that_is_given_again_replaces_only_itself(shop: Shop) -> None:
    shop.facts(*OPTIONS)
    shop.facts("--url", "https://a.example")
    manifest = shop.manifest()
    assert manifest.module.urls[0].startswith("https://a.example/.well-known/")
    assert manifest.permissions.connect == ["mn", "lines"]
    assert set(shop.root(1).aliases) == {"lab.a.example", "old.a.example"}
    shop.facts("--alias", "new.a.example")
    assert shop.root(2).aliases == ["new.a.example"]
    assert shop.manifest().permissions.connect == ["mn", "lines"]


def test_what_is_reset_goes_back_to_its_default_and_the_rest_stays(shop: Shop) -> None:
    shop.facts(*OPTIONS)
    report = shop.facts("--reset", "alias", "--reset", "endpoint")
    assert (report["options"]["alias"], report["options"]["endpoint"]) == ([], ["mn"])
    assert report["options"]["url"] == "https://mn.a.example:8444"
    report = shop.facts("--reset", "all", "--alias", "lab.a.example")
    assert (report["options"]["url"], report["options"]["alias"]) == ("https://a.example", ["lab.a.example"])
    assert report["options"]["description"] == "connects a messaging node to a.example"
    for words in (("--reset", "colour"), ("--reset", "url", "--url", "https://x.example")):
        assert shop.publish(*words).exit_code == 2


def test_a_module_of_ones_own_is_not_replaced_by_ours(shop: Shop) -> None:
    shop.facts(ECHO, "--no-auth")
    again = shop.facts()
    assert (again["stub"], again["serial"], again["options"]["auth"]) == ("echo", 1, False)
    assert again["options"]["module"] != "built in"
    back = shop.facts("--reset", "module", "--reset", "auth")
    assert (back["stub"], back["options"]["module"], back["options"]["auth"]) == ("trapezoid-link", "built in", True)


def test_ranges_are_kept_and_their_end_brings_proof_back(shop: Shop) -> None:
    shop.facts(LINK, "--range", "sip://legacy.example")
    assert shop.manifest().interworking
    shop.facts()
    assert (shop.manifest().interworking, shop.manifest().serial) == (True, 1)
    shop.facts("--reset", "range")
    assert (shop.manifest().permissions.ranges, shop.manifest().permissions.auth) == ([], True)


def test_each_selector_has_options_of_its_own(shop: Shop) -> None:
    shop.facts(*OPTIONS)
    echo = shop.facts(ECHO, "--no-auth", "--selector", "echo")
    assert (echo["options"]["endpoint"], echo["options"]["url"]) == (["mn"], "https://mn.a.example:8444")
    assert shop.facts("--selector", "echo")["stub"] == "echo"
    assert shop.facts()["options"]["endpoint"] == ["mn", "lines"]


def test_options_of_a_site_from_before_they_were_kept_are_read_from_its_documents(shop: Shop) -> None:
    shop.facts(*OPTIONS)
    index = shop.site / "publication.json"
    old = json.loads(index.read_bytes())
    del old["stubs"]["default"]["is_built_in"]
    index.write_text(json.dumps(old))
    again = shop.facts()
    assert (again["is_new_manifest"], again["options"]["module"]) == (False, "built in")
    assert sorted(again["kept"]) == KEPT


def test_a_module_that_stub_check_refuses_is_not_published(shop: Shop, tmp_path: Path) -> None:
    shop.facts()
    before = shop.content()
    for words, complaint in (
        ((ECHO,), "before the peer is verified"),
        ((LINK, "--endpoint", "elsewhere"), "not published"),
    ):
        done = shop.publish(*words)
        assert (done.exit_code, complaint in done.stderr) == (2, True), done.output
        assert shop.content() == before
    assert shop.facts(ECHO, "--no-check")["stub"] == "echo"


def test_stub_check_and_publish_agree_about_a_stub_without_proof(shop: Shop) -> None:
    assert "note     it reports `live` before" in shop.run("stub", "check", ECHO).stdout
    assert "--no-auth" not in shop.run("stub", "check", LINK).stdout
    assert "--no-auth" in shop.publish(ECHO).stderr
    assert [shop.facts(ECHO, *more)["serial"] for more in (["--no-auth"], ["--no-auth"], [])] == [1, 1, 1]
    assert not shop.manifest("echo").permissions.auth


def test_a_changed_fingerprint_is_said_and_an_equal_one_is_not(shop: Shop) -> None:
    first = shop.facts()
    assert (first["previous_fingerprint"], first["is_new_fingerprint"]) == ("", False)
    shop.run("keys", "add", "live", "--keys", shop.keys)
    same = shop.facts()
    assert (same["is_new_root"], same["is_new_fingerprint"]) == (True, False)
    shop.run("keys", "add", "root", "--keys", shop.keys)
    shown = shop.publish()
    assert "THE FINGERPRINT CHANGED" in shown.stdout
    assert first["fingerprint"] in shown.stdout
    assert not shop.facts()["is_new_fingerprint"]


def test_an_address_in_place_of_the_name_of_an_endpoint_is_refused_and_says_where_it_belongs(shop: Shop) -> None:
    done = shop.publish("--endpoint", "wss://mn.a.example/link")
    assert done.exit_code == 2
    assert "--endpoint wss://mn.a.example/link: expected the name of an endpoint" in done.stderr
    assert "endpoint_url" in done.stderr
    assert not shop.site.exists()


def test_another_threshold_makes_a_new_root_and_is_kept(shop: Shop) -> None:
    shop.run("keys", "add", "root", "--keys", shop.keys)
    shop.facts()
    assert shop.facts("--threshold", "2")["is_new_fingerprint"]
    assert shop.root(2).roles.root.threshold == 2
    assert shop.facts("--alias", "lab.a.example")["root_version"] == 3
    assert shop.root(3).roles.root.threshold == 2


@pytest.mark.parametrize("words", [("--alias", "lab.a.example"), ("--threshold", "2")])
def test_what_needs_the_root_key_is_not_ignored_without_it(shop: Shop, words: tuple[str, ...]) -> None:
    shop.facts()
    next(shop.keys.glob("root-*.pem")).unlink()
    done = shop.publish(*words)
    assert (done.exit_code, "where the root keys are" in done.stderr) == (2, True)
    assert shop.facts()["root_version"] == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--revoke", "abc"), "--revoke abc: expected the SHA-256 of a module, 64 hexadecimal digits"),
        (("--revoke", "g" * 64), "expected the SHA-256 of a module"),
        (tuple(word for number in range(513) for word in ("--revoke", f"{number:064x}")), "a live document holds 512"),
        (("--selector", "default/x"), "--selector default/x: expected at most 64 letters"),
        (("--selector", ""), "--selector : expected"),
    ],
    ids=["short", "no digits", "too many", "slash", "empty"],
)
def test_what_nobody_could_read_again_is_refused_before_anything_is_written(
    shop: Shop, words: tuple[str, ...], complaint: str
) -> None:
    shop.facts()
    before = shop.content()
    done = shop.publish(*words)
    assert (done.exit_code, complaint in done.stderr) == (2, True), done.output
    assert shop.content() == before
    assert shop.facts()["revoked"] == []


def test_a_revoked_module_is_said_and_is_not_published_again(shop: Shop) -> None:
    first = shop.facts(ECHO, "--no-auth")
    digest = first["module_sha256"]
    shown = shop.publish("--revoke", digest.upper())
    assert (shown.exit_code, "THE PUBLISHED MODULE IS REVOKED" in shown.stdout) == (0, True), shown.output
    again = shop.facts()
    assert (again["revoked"], again["is_revoked"]) == ([digest], True)
    refused = shop.publish(ECHO)
    assert (refused.exit_code, "this module is revoked, and no node runs it" in refused.stderr) == (2, True)
    other = shop.facts(LINK, "--auth")
    assert (other["revoked"], other["is_revoked"]) == ([digest], False)


def test_what_a_stub_needs_and_for_whom_it_is_stands_in_its_manifest_until_it_is_reset(shop: Shop) -> None:
    shop.facts(*OPTIONS)
    signed = shop.manifest()
    assert (signed.needs.memory_bytes, signed.needs.call_ms) == (8 << 20, 20)
    assert signed.for_domains == ["b.example", "c.example"]
    shop.facts("--reset", "memory-kib", "--reset", "for-domain")
    signed = shop.manifest()
    assert (signed.needs.memory_bytes, signed.needs.call_ms, signed.for_domains) == (0, 20, ["*"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--memory-kib", "1024"), "begins with 4224 KiB of memory"),
        (("--for-domain", "B"), "not a domain name"),
    ],
)
def test_needs_that_no_host_could_meet_are_refused(shop: Shop, words: tuple[str, ...], complaint: str) -> None:
    done = shop.publish(*words)
    assert (done.exit_code, complaint in done.stderr) == (2, True), done.output
    assert not shop.site.exists()
