"""Settings about people: what is refused, and where it is said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from msg_node.backends.issuer_keyring import KeySource
from msg_node.settings.load import load_settings
from msg_node.settings.weakenings import insecure_switches
from protofly.errors import SettingsError
from stubkit.keys import KeyRing, make_key, save_keys
from tests.support.token_issuer import TokenIssuer
from trapezoid.checking import check_node

HEAD = '[node]\ndomain = "alpha.example"\ndata_dir = "data"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
ISSUER = "https://login.alpha.example"
PROVIDER = f'[[identity.provider]]\nissuer = "{ISSUER}"\naudience = ["node"]\n'
TOKENS = '[identity.tokens]\nkeys_dir = "keys"\n'
OWN_ISSUER = '[[sessions.issuer]]\nissuer = "domain://idm.alpha.example"\naudience = "node"\njwks = "keys.json"\n'
REGISTRY = '[global_registry]\nurl = "https://registry.example:5002"\n'


def written(folder: Path, text: str) -> Path:
    (folder / "node.toml").write_text(HEAD + text)
    return folder / "node.toml"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (REGISTRY.replace("https", "http"), "needs https://"),
        (REGISTRY.replace("https", "ftp"), "is not https://"),
        (REGISTRY.replace("registry.example", "me@registry.example"), "is not https://"),
        (REGISTRY.replace(":5002", ":99999"), "is not https://"),
        (REGISTRY + 'verify = "never"', "verify"),
        (REGISTRY + "cache_seconds = -1", "cache_seconds"),
        (REGISTRY + "attempt_seconds = 0", "attempt_seconds"),
        (PROVIDER + PROVIDER, f"a second entry for {ISSUER}"),
        (PROVIDER.replace('["node"]', "[]"), "audience"),
        (PROVIDER.replace(ISSUER, "login"), "is not https://"),
        (PROVIDER.replace(ISSUER, "https://a b"), "without spaces"),
        (PROVIDER.replace("https", "http"), "is not https://"),
        (PROVIDER + 'discovery_url = "http://login.alpha.example/x"', "is not https://"),
        (PROVIDER + 'jwks_url = "https://a.example/jwks"\njwks = "keys.json"', "one of `jwks`"),
        (PROVIDER + 'algorithms = ["HS256"]', "algorithms"),
        (PROVIDER + 'algorithms = ["none"]', "algorithms"),
        (PROVIDER + 'domains = ["localhost"]', "is not a domain"),
        (PROVIDER + 'allow_addresses = ["10.0.0.1/8"]', "has host bits set"),
        (PROVIDER + "skew_seconds = 601", "skew_seconds"),
        ('[identity]\ndemand = ["b.example"]', "nothing ever passes"),
        ('[identity]\ndemand = ["B"]\n' + PROVIDER, "is not a domain"),
        (TOKENS, "nobody can ever log in"),
        ('[identity]\nregistered_users = "proved"', "nobody can prove who they are"),
        (PROVIDER + TOKENS + "seconds = 86401", "seconds"),
        (PROVIDER + TOKENS + "login_seconds = 59", "login_seconds"),
        (PROVIDER + "[identity.tokens]\nseconds = 60", "keys_dir"),
        (PROVIDER + TOKENS + OWN_ISSUER, "the name of this node's own tokens"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(written(tmp_path, text))
    assert problem in caught.value.detail
    assert "node.toml:" in caught.value.detail


def test_weakenings_are_named(tmp_path: Path) -> None:
    text = REGISTRY.replace("https", "http") + "insecure_plaintext = true\n"
    text += PROVIDER.replace("https", "http") + "insecure_plaintext = true\n"
    switches = insecure_switches(load_settings(written(tmp_path, text)))
    assert any(switch.startswith("global_registry.insecure_plaintext") for switch in switches)
    assert any(switch.startswith("identity.provider http://login.alpha.example") for switch in switches)


@pytest.mark.parametrize(
    ("urls", "discovery_url", "jwks_url", "host"),
    [
        ({}, f"{ISSUER}/.well-known/openid-configuration", "", "login.alpha.example"),
        ({"discovery_url": "https://a.example/d"}, "https://a.example/d", "", "a.example"),
        ({"jwks_url": "https://a.example/j"}, "", "https://a.example/j", "a.example"),
    ],
)
def test_keys_are_looked_for_in_the_usual_place_unless_another_is_named(
    urls: dict[str, str], discovery_url: str, jwks_url: str, host: str
) -> None:
    assert KeySource.of(ISSUER + "/", **urls) == KeySource(ISSUER + "/", discovery_url, jwks_url, host)


def test_check_looks_at_the_files_about_people(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, REGISTRY + PROVIDER + 'jwks = "keys.json"\n'))

    def people() -> tuple[bool, str]:
        (found,) = [one for one in check_node(settings) if one.part == "identity"]
        return found.is_good, found.text

    assert people() == (False, f"provider {ISSUER}: {tmp_path / 'keys.json'}: No such file or directory")
    (tmp_path / "keys.json").write_text('{"keys":[{"kty":"oct","k":"AA"}]}')
    assert "shared secret" in people()[1]
    (tmp_path / "keys.json").write_text(json.dumps(TokenIssuer(ISSUER).jwks))
    assert people() == (True, f"GUIDs from https://registry.example:5002, provider {ISSUER}")


def test_check_looks_at_the_keys_that_sign_tokens(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps(TokenIssuer(ISSUER).jwks))
    settings = load_settings(written(tmp_path, PROVIDER + 'jwks = "keys.json"\n' + TOKENS))

    def people() -> tuple[bool, str]:
        (found,) = [one for one in check_node(settings) if one.part == "identity"]
        return found.is_good, found.text

    assert people() == (
        False,
        f"{tmp_path / 'keys'}: no token key here; make keys with `trapezoid keys token`",
    )
    older, newer = make_key("token"), make_key("token")
    for key in (older, newer):
        (path,) = save_keys(KeyRing(token=(key,)), tmp_path / "keys")
    os.utime(tmp_path / "keys" / f"{older.key_id}.pem", (1, 1))
    assert people() == (True, f"provider {ISSUER}, logins, tokens signed by {newer.key_id}")
    path.chmod(0o640)
    assert "is open to others" in people()[1]
