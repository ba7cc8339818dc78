"""Settings about proofs: what is refused with which words, what the pages say, and what policies see of an open."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from msg_node.kernel.changes import Journal
from msg_node.kernel.proof import Offered
from msg_node.kernel.restrictions import Restricted, Restriction, Restrictions
from msg_node.kernel.runtime_address import covers, is_pattern
from msg_node.settings.load import load_settings
from msg_node.settings.sessions import build_credentials
from msg_node.wiring import meaning
from policy.core.gate import Gate
from policy.core.model import Mode
from policy.files import read_policies
from protofly import codec
from protofly.errors import Code, PeerError, SettingsError
from tests.support.policies import unrecorded
from tests.support.token_issuer import AUDIENCE, ISSUER, TokenIssuer

ANA = "runtime://alpha.example/rt-ana"
NOBODY = Restrictions(Journal())
NOW = 1_795_219_200.0
LOGIN = TokenIssuer()
PAGE = Path(__file__).parents[3] / "docs" / "sessions.md"
HEAD = '[node]\ndomain = "alpha.example"\ndata_dir = "data"\n'
LISTEN = "[listen]\ninsecure_plaintext = true\n"
JWKS = f'[[sessions.issuer]]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\njwks = "keys.json"\n'


def written(folder: Path, text: str, *, listen: str = LISTEN) -> Path:
    (folder / "node.toml").write_text(HEAD + listen + text)
    return folder / "node.toml"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[sessions]\nanonymous_runtimes = ["rt-*"]', "anonymous_runtimes[1]: not a runtime address"),
        ('[sessions]\nanonymous_runtimes = ["runtime://alpha.example*"]', "not a runtime address"),
        ('[sessions]\nanonymous_runtimes = ["hyperty://alpha.example/*"]', "not a runtime address"),
        ("[sessions]\nlease_seconds = 1", "lease_seconds"),
        (f'[[sessions.credential]]\nruntime = "x"\ntoken_sha256 = "{"0" * 64}"', "not a runtime address"),
        (JWKS + 'public_keys = ["x"]', "either `jwks` or `public_keys`"),
        (JWKS.replace('jwks = "keys.json"\n', ""), "or an `[[identity.provider]]` of this name"),
        (JWKS + JWKS, f"a second entry for {ISSUER}"),
        (JWKS.replace(ISSUER, "a b"), "a name without spaces"),
        (JWKS + 'algorithms = ["HS256"]', "algorithms"),
        (JWKS + 'algorithms = ["none"]', "algorithms"),
        (JWKS + 'runtimes = ["alpha"]', "not a runtime address"),
        (JWKS + "skew_seconds = 601", "skew_seconds"),
        (JWKS + 'runtime_claim = ""', "runtime_claim"),
        ('[[sessions.certificate]]\nruntime = "*"\nsubject = "CN=x"', "client certificates are not asked for"),
        ('[[sessions.certificate]]\nruntime = "*"', "either `sha256` or `subject`"),
        ('[[sessions.certificate]]\nruntime = "*"\nsha256 = "12"', "sha256"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(written(tmp_path, text))
    assert problem in caught.value.detail
    assert "node.toml:" in caught.value.detail


@pytest.mark.parametrize(
    ("listen", "problem"),
    [
        (LISTEN + 'client_ca = "ca.pem"\n', "client certificates need TLS"),
        (LISTEN + 'client_certificate = "required"\n', "`required` goes with `client_ca`"),
    ],
)
def test_client_certificates_need_tls_and_an_authority(tmp_path: Path, listen: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(problem)):
        load_settings(written(tmp_path, "", listen=listen))


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "No such file"), ("{}", "not a JWK set"), ('{"keys": [{"kty": "oct", "k": "AA"}]}', "shared secret")],
)
def test_key_files_that_cannot_be_used_are_named(tmp_path: Path, content: str | None, problem: str) -> None:
    if content is not None:
        (tmp_path / "keys.json").write_text(content)
    with pytest.raises(SettingsError, match=problem) as caught:
        build_credentials(load_settings(written(tmp_path, JWKS)))
    assert ISSUER in caught.value.detail
    assert "keys.json" in caught.value.detail


def test_settings_with_a_key_file_accept_a_token_of_that_issuer(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps(LOGIN.jwks))
    gate = build_credentials(load_settings(written(tmp_path, "[sessions]\nanonymous = false\n" + JWKS)))
    assert gate.check(Offered(LOGIN.token(ANA, now=NOW)), ANA, now=NOW).credential == f"jwt {ISSUER} ana"
    foreign = "runtime://beta.example/rt-bo"
    with pytest.raises(PeerError, match="not for this runtime"):
        gate.check(Offered(LOGIN.token(foreign, now=NOW)), foreign, now=NOW)


def test_settings_with_a_public_key_accept_a_token_of_that_issuer(tmp_path: Path) -> None:
    pem = LOGIN.key.public_key.public_bytes(  # type: ignore[union-attr]
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    text = JWKS.replace('jwks = "keys.json"', f'public_keys = ["""{pem.decode()}"""]')
    gate = build_credentials(load_settings(written(tmp_path, text)))
    assert gate.check(Offered(LOGIN.token(ANA, now=NOW)), ANA, now=NOW).is_in_full


@pytest.mark.parametrize(
    ("pattern", "is_good"),
    [
        ("*", True),
        (ANA, True),
        ("hyperty-runtime://alpha.example/*", True),
        ("runtime:/alice", True),
        ("runtime://alpha.example*", False),
        ("runtime://*", False),
        ("runtime://*/x", False),
        ("runtime*", False),
        (f"{ANA}/sm", False),
        ("hyperty://alpha.example/*", False),
        ("", False),
    ],
)
def test_a_pattern_says_its_whole_domain(pattern: str, is_good: bool) -> None:
    assert is_pattern(pattern) is is_good
    assert not covers(pattern, "runtime://alpha.example.evil/rt-ana") or pattern == "*"


def toml_of(page: str) -> list[str]:
    return re.findall(r"```toml\n(.*?)```", page, re.DOTALL)


def test_settings_on_the_page_can_be_loaded(tmp_path: Path) -> None:
    blocks = [block for block in toml_of(PAGE.read_text(encoding="utf-8")) if "[[rules]]" not in block]
    assert len(blocks) == 5
    listen = next(block for block in blocks if "[listen]" in block)
    text = "".join(block for block in blocks if block is not listen)
    text = text.replace("…64 hex digits…", "0" * 64)
    text = text.replace("AB:CD:…", ":".join(["ab"] * 32))
    settings = load_settings(written(tmp_path, text, listen=listen))
    assert (settings.sessions.issuer[0].audience, settings.listen.client_ca) == (
        "runtimes.a.example",
        tmp_path.absolute() / "devices-ca.pem",
    )


def test_the_rule_on_the_page_denies_opens_without_roles(tmp_path: Path) -> None:
    (rule,) = [block for block in toml_of(PAGE.read_text(encoding="utf-8")) if "[[rules]]" in block]
    (tmp_path / "staff.toml").write_text('id = "staff"\ntarget = { hook = { in = ["local"] } }\n' + rule)
    gate = Gate(read_policies((tmp_path / "staff.toml",), mode=Mode.ENFORCE), {})
    raw = {"id": 1, "from": ANA, "to": "mn:/session"}
    for verb in ("open", "re-open"):
        (message,) = codec.decode(json.dumps({**raw, "type": verb}).encode())
        meaning.permit_session(unrecorded(gate), "alpha.example", NOBODY, message, frozenset({"staff"}))
        with pytest.raises(PeerError, match="staff-only") as caught:
            meaning.permit_session(unrecorded(gate), "alpha.example", NOBODY, message, frozenset())
        assert caught.value.code is Code.POLICY


def test_without_policies_every_open_is_permitted() -> None:
    (message,) = codec.decode(json.dumps({"id": 1, "type": "open", "from": ANA, "to": "mn:/session"}).encode())
    meaning.permit_session(
        unrecorded(Gate(read_policies((), mode=Mode.ENFORCE), {})), "alpha.example", NOBODY, message, frozenset()
    )


def test_a_barred_runtime_opens_no_session_and_brings_none_back() -> None:
    restrictions, gate = Restrictions(Journal()), Gate(read_policies((), mode=Mode.ENFORCE), {})
    restrictions.set(Restriction(what=Restricted.RUNTIME, subject=ANA, reason="spam", by="root", since=1.0))
    for sender in (ANA, f"{ANA}/token"):
        raw = {"id": 1, "type": "open", "from": sender, "to": "mn:/session"}
        (message,) = codec.decode(json.dumps(raw).encode())
        with pytest.raises(PeerError, match="spam") as caught:
            meaning.permit_session(unrecorded(gate), "alpha.example", restrictions, message, frozenset({"operator"}))
        assert caught.value.code is Code.RUNTIME_BARRED
