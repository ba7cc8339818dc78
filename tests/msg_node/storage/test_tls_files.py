"""Files of the settings that cannot be used: every error names the setting, the file and what is wrong with it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from msg_node.storage.tls_files import believe, show
from protofly.errors import SettingsError


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    issued = trustme.CA().issue_cert("a.example")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    return certificate, key


def refusal_of_show(certificate: Path, key: Path | None) -> str:
    with pytest.raises(SettingsError) as caught:
        show(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key, "listen")
    return caught.value.detail


def test_missing_files_are_named_with_their_settings(pair: tuple[Path, Path], tmp_path: Path) -> None:
    certificate, key = pair
    nowhere = tmp_path / "nowhere.pem"
    assert refusal_of_show(nowhere, key) == f"listen.certificate: {nowhere}: No such file or directory"
    assert refusal_of_show(certificate, nowhere) == f"listen.key: {nowhere}: No such file or directory"
    assert refusal_of_show(tmp_path, key) == f"listen.certificate: {tmp_path}: Is a directory"
    with pytest.raises(SettingsError, match=f"^settings: discovery.ca_file: {nowhere}: No such file or directory$"):
        believe(ssl.create_default_context(), nowhere, "discovery.ca_file")


def test_files_that_do_not_fit_are_both_named(pair: tuple[Path, Path], tmp_path: Path) -> None:
    certificate, key = pair
    other = tmp_path / "other.pem"
    trustme.CA().issue_cert("a.example").private_key_pem.write_to_path(other)
    assert f"{certificate} and {other} do not fit together" in refusal_of_show(certificate, other)
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    other.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    assert f"{certificate} and {other} do not fit together" in refusal_of_show(certificate, other)


@pytest.mark.parametrize(
    "content", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"]
)
def test_authorities_that_are_none_are_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        believe(ssl.create_default_context(), file, "mqtt.ca_file")
    assert caught.value.detail == f"mqtt.ca_file: {file}: holds no certificate in PEM form"
