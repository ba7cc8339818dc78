"""`trapezoid check` looks at the files for servers that the settings name, and asks none of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from msg_node.settings.load import load_settings
from trapezoid.checking import check_node
from trapezoid.findings import Finding

SMALLEST = """
[node]
domain = "a.example"
data_dir = "data"
[listen]
port = 0
insecure_plaintext = true
"""


def finding(folder: Path, table: str, text: str) -> Finding:
    path = folder / "node.toml"
    path.write_text(f'{SMALLEST}[{table}]\nurl = "https://nobody.invalid"\n{text}', encoding="utf-8")
    (found,) = [one for one in check_node(load_settings(path)) if one.part == table]
    return found


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    ours = trustme.CA().issue_cert("mn.a.example")
    ours.cert_chain_pems[0].write_to_path(str(tmp_path / "mn.pem"))
    ours.private_key_pem.write_to_path(str(tmp_path / "mn.key"))
    (tmp_path / "mn.key").chmod(0o600)
    return tmp_path


@pytest.mark.parametrize("table", ["registry", "qos", "catalogue.own"])
def test_a_server_without_our_certificate_is_named(tmp_path: Path, table: str) -> None:
    found = finding(tmp_path, table, "")
    assert found == Finding(table, is_good=True, text="https://nobody.invalid, without a client certificate")


def test_the_key_for_push_services_is_read(tmp_path: Path) -> None:
    settings = 'key = "push.pem"\nsubject = "mailto:x"\n[[push.service]]\nurl = "https://nobody.invalid"\n'
    path = tmp_path / "node.toml"
    path.write_text(f"{SMALLEST}[push]\n{settings}", encoding="utf-8")

    def found() -> Finding:
        return next(one for one in check_node(load_settings(path)) if one.part == "push")

    assert not found().is_good
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    (tmp_path / "push.pem").write_bytes(pem)
    (tmp_path / "push.pem").chmod(0o644)
    assert "chmod 600" in found().text
    (tmp_path / "push.pem").chmod(0o600)
    assert found().is_good
    assert "https://nobody.invalid" in found().text


def test_a_certificate_is_read_and_its_end_is_reported(certificates: Path) -> None:
    found = finding(certificates, "registry", 'certificate = "mn.pem"\nkey = "mn.key"\n')
    assert found.is_good
    assert f"certificate {certificates / 'mn.pem'} until" in found.text


def test_a_key_that_others_can_read_is_a_problem(certificates: Path) -> None:
    (certificates / "mn.key").chmod(0o644)
    found = finding(certificates, "registry", 'certificate = "mn.pem"\nkey = "mn.key"\n')
    assert not found.is_good
    assert "chmod 600" in found.text


def test_a_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    found = finding(tmp_path, "registry", 'ca_file = "nothing.pem"\n')
    assert not found.is_good
    assert (found.code, found.file) == ("missing", str(tmp_path / "nothing.pem"))


def test_keys_that_sign_session_tokens_are_looked_for_where_users_have_passwords_only(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(f'{SMALLEST}[identity.tokens]\nkeys_dir = "keys"\n[identity.passwords]\n', encoding="utf-8")
    found = next(one for one in check_node(load_settings(path)) if one.part == "identity")
    assert (found.is_good, found.code) == (False, "key-missing")
