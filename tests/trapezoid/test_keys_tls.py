"""Certificates of `trapezoid keys tls`, as TLS and the node judge them."""

from __future__ import annotations

import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from msg_node.kernel import certificates
from msg_node.storage.certificates import check_key_of, check_names, read_certificate
from protofly.errors import PeerError, SettingsError
from trapezoid.commands import app
from trapezoid.tls_authority import Names, issue_client, issue_server, make_authority, server_names

NOW = datetime.now(UTC)
RUNTIME = "runtime://a.example/rt-ana"


def run(*arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(app, ["keys", "tls", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    facts: dict[str, object] = json.loads(done.output)
    return facts


def refusal(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["keys", "tls", *arguments])
    assert done.exit_code != 0
    return " ".join(done.output.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run("init", "a.example", "--tls", str(tmp_path / "tls"), "--name", "alias.example", "--name", "192.0.2.7")
    return tmp_path / "tls"


def is_done(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Both ends in memory; returns the server's. Raises ssl.SSLError where one refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=host)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [near, far]
    for _ in range(10):
        waiting = [end for end in waiting if not is_done(end)]
    assert not waiting
    return far


def contexts(
    folder: Path, certificate: str = "cert.pem", key: str = "key.pem"
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return server, ssl.create_default_context(cafile=str(folder / "ca.pem"))


@pytest.mark.parametrize(
    "host", ["a.example", "mn.a.example", "alias.example", "localhost", "127.0.0.1", "::1", "192.0.2.7"]
)
def test_clients_that_trust_the_authority_take_the_server_by_each_of_its_names(folder: Path, host: str) -> None:
    handshake(*contexts(folder), host)


def test_the_checks_of_the_node_take_certificate_and_key(folder: Path) -> None:
    certificate = read_certificate(folder / "cert.pem")
    check_names(certificate, ["a.example", "mn.a.example"], asked_by="other domains")
    check_key_of(folder / "cert.pem", folder / "key.pem")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*key.pem")} == {0o600}


def test_a_renewed_certificate_has_the_same_names_and_key(folder: Path) -> None:
    before = read_certificate(folder / "cert.pem")
    run("renew", "--tls", str(folder), "--days", "200")
    after = read_certificate(folder / "cert.pem")
    assert (after.names, after.spki_sha256) == (before.names, before.spki_sha256)
    assert after.ends_at > before.ends_at
    handshake(*contexts(folder), "a.example")


def test_the_authority_is_believed_about_no_other_domain(folder: Path) -> None:
    make_authority(folder / "other", Names(("b.example",)), now=NOW)
    for name in ("ca.pem", "ca.key.pem"):  # its key, with the name of an authority for everything
        (folder / "other" / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(SettingsError, match=r"is not for b\.example"):
        issue_server(folder / "other", Names(("b.example",)), days=1, now=NOW)


def test_tls_refuses_what_a_stolen_authority_signs_for_another_domain(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trapezoid.tls_authority._Authority.check_allowed", lambda *_: None)
    issue_server(folder, Names(("b.example",)), days=1, now=NOW)
    with pytest.raises(ssl.SSLError, match="permitted subtree violation"):
        handshake(*contexts(folder), "b.example")


def test_a_runtime_proves_itself_by_its_certificate(folder: Path) -> None:
    facts = run("client", RUNTIME, "--tls", str(folder))
    server, client = contexts(folder)
    server.load_verify_locations(folder / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client.load_cert_chain(str(facts["certificate"]), str(facts["key"]))
    peer = certificates.read_certificate(handshake(server, client, "localhost").getpeercert(binary_form=True) or b"")
    assert peer is not None
    assert peer.runtimes == {RUNTIME}


@pytest.mark.parametrize("runtime", ["runtime://b.example/rt", "runtime://a.example", "hyperty://a.example/x", "rt"])
def test_no_certificate_is_issued_for_what_is_no_runtime_of_the_domain(folder: Path, runtime: str) -> None:
    with pytest.raises(SettingsError):
        issue_client(folder, runtime, file_name="x", days=1, now=NOW)
    assert not (folder / "x.pem").exists()


@pytest.mark.parametrize("name", ["ca", "key", "../evil", "", "a/b", ".hidden"])
def test_files_of_a_client_stay_in_the_folder_and_replace_nothing(folder: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="no name for a file"):
        issue_client(folder, RUNTIME, file_name=name, days=1, now=NOW)


def test_what_exists_is_never_overwritten(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert "exists" in refusal("init", "a.example", "--tls", str(folder))
    run("client", RUNTIME, "--tls", str(folder))
    assert "exists" in refusal("client", RUNTIME, "--tls", str(folder))
    assert {path: path.read_bytes() for path in before} == before


def test_a_request_asks_for_the_names_with_the_key_that_is_there(folder: Path) -> None:
    run("csr", "a.example", "--tls", str(folder), "--name", "www.a.example")
    request = x509.load_pem_x509_csr((folder / "request.csr").read_bytes())
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a.example", "mn.a.example", "www.a.example"]
    certificate = x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())
    assert request.public_key() == certificate.public_key()


def test_a_request_needs_no_authority(tmp_path: Path) -> None:
    run("csr", "a.example", "--tls", str(tmp_path / "new"))
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["key.pem", "request.csr"]


@pytest.mark.parametrize("command", [("renew",), ("client", RUNTIME)])
def test_what_needs_an_authority_says_how_to_make_one(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert "trapezoid keys tls init" in refusal(*command, "--tls", str(tmp_path))


@pytest.mark.parametrize("text", ["", "a b", "*.a.example", "a.example/x"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(PeerError):
        server_names("a.example", [text])


def test_a_certificate_is_valid_for_the_days_that_were_asked_for(tmp_path: Path) -> None:
    names = server_names("a.example", [])
    make_authority(tmp_path, names, now=NOW)
    certificate = x509.load_pem_x509_certificate(issue_server(tmp_path, names, days=7, now=NOW).read_bytes())
    assert abs(certificate.not_valid_after_utc - NOW - timedelta(days=7)) < timedelta(seconds=2)
