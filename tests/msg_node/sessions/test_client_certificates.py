"""Client certificates over real TLS, with the settings of a node: who gets in with which."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from msg_node.kernel.certificates import read_certificate
from msg_node.settings.load import load_settings
from msg_node.settings.sessions import build_credentials
from msg_node.wiring import meaning
from policy.core.session_class import SessionClass
from tests.support.client_certificates import ClientCertificate, client_certificate
from tests.support.http_runtime import http_runtime, opened_http
from tests.support.runtime_rig import RuntimeRig, code_and_reason, runtime_address, runtime_rig

ANA = runtime_address("ana")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA(organization_name="Alpha", key_type=trustme.KeyType.ECDSA)


@pytest.fixture(scope="module")
def stranger() -> trustme.CA:
    return trustme.CA(organization_name="Stranger", key_type=trustme.KeyType.ECDSA)


@asynccontextmanager
async def secured_rig(folder: Path, authority: trustme.CA, more: str = "") -> AsyncIterator[RuntimeRig]:
    """A node whose settings ask for client certificates of `authority`, and for a proof."""
    server = authority.issue_cert("localhost", key_type=trustme.KeyType.ECDSA)
    server.cert_chain_pems[0].write_to_path(folder / "server.pem")
    server.private_key_pem.write_to_path(folder / "server.key")
    authority.cert_pem.write_to_path(folder / "clients.pem")
    (folder / "node.toml").write_text(
        '[node]\ndomain = "alpha.example"\ndata_dir = "data"\n'
        '[listen]\ncertificate = "server.pem"\nkey = "server.key"\nclient_ca = "clients.pem"\n' + more
    )
    settings = load_settings(folder / "node.toml")
    context = meaning.server_context(settings)
    async with runtime_rig(folder, context=context, credentials=build_credentials(settings)) as rig:
        yield rig


def client_context(authority: trustme.CA, folder: Path, certificate: ClientCertificate | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context if certificate is None else certificate.configure(context, folder)


STRICT = "[sessions]\nanonymous = false\n"


@pytest.mark.parametrize("uri", [ANA, "hyperty-runtime://ALPHA.example/ana"])
async def test_a_certificate_opens_the_runtime_that_it_names_and_no_other(
    tmp_path: Path, authority: trustme.CA, uri: str
) -> None:
    async with secured_rig(tmp_path, authority, STRICT) as rig:
        context = client_context(authority, tmp_path, client_certificate(authority, uri, "https://alpha.example/ana"))
        ana = await rig.runtime(context=context)
        reply = await ana.open("ana")
        assert reply["body"]["code"] == 200
        assert reply["body"]["session"]["expires"] > 80_000
        assert isinstance(ana.wire.stream, trio.SSLStream)
        assert ana.wire.stream.version() == "TLSv1.3"
        eve = await rig.runtime(context=context)
        for name in ("an", "ana2", "Ana", "bo"):
            assert code_and_reason(await eve.open(name)) == (401, "bad-token")
        assert [session.runtime for session in rig.state.sessions] == [ANA]


async def test_without_a_certificate_there_is_no_proof(tmp_path: Path, authority: trustme.CA) -> None:
    async with secured_rig(tmp_path, authority, STRICT) as rig:
        nobody = await rig.runtime(context=client_context(authority, tmp_path))
        assert code_and_reason(await nobody.open("ana")) == (401, "no-credentials")


async def test_over_http_the_certificate_of_the_line_proves_the_runtime_as_well(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with secured_rig(tmp_path, authority, STRICT) as rig:
        context = client_context(authority, tmp_path, client_certificate(authority, ANA))
        ana = await opened_http(rig, context=context)
        assert ana.token
        nobody = await http_runtime(rig, "bob", context=context)
        assert code_and_reason(await nobody.open()) == (401, "bad-token")
        without = await http_runtime(rig, "ana", context=client_context(authority, tmp_path))
        assert code_and_reason(await without.open()) == (401, "no-credentials")


@pytest.mark.parametrize("flaw", ["another authority", "expired", "for servers", "not valid yet"])
async def test_a_certificate_that_tls_does_not_verify_ends_the_connection(
    tmp_path: Path, authority: trustme.CA, stranger: trustme.CA, flaw: str
) -> None:
    certificate = {
        "another authority": lambda: client_certificate(stranger, ANA),
        "expired": lambda: client_certificate(authority, ANA, days=-1),
        "for servers": lambda: client_certificate(authority, ANA, purpose=ExtendedKeyUsageOID.SERVER_AUTH),
        "not valid yet": lambda: client_certificate(authority, ANA, days=5),
    }[flaw]()
    async with secured_rig(tmp_path, authority) as rig:
        with pytest.raises((trio.BrokenResourceError, AssertionError)):
            await rig.runtime(context=client_context(authority, tmp_path, certificate))
        assert len(rig.state.sessions) == 0
        assert rig.listener is not None
        assert rig.listener.counters["failed handshakes"] == 1
        assert rig.listener.counters["runtimes"] == 0


@pytest.mark.parametrize("by", ["sha256", "subject"])
async def test_settings_name_a_certificate_and_give_it_roles(tmp_path: Path, authority: trustme.CA, by: str) -> None:
    certificate = client_certificate(authority, name="lab")
    which = f'sha256 = "{certificate.sha256}"' if by == "sha256" else 'subject = "CN=lab,O=Alpha"'
    entry = f'[[sessions.certificate]]\nruntime = "runtime://alpha.example/lab-*"\n{which}\nroles = ["operator"]\n'
    async with secured_rig(tmp_path, authority, STRICT + entry) as rig:
        context = client_context(authority, tmp_path, certificate)
        lab = await rig.runtime(context=context)
        assert (await lab.open("lab-1"))["body"]["code"] == 200
        assert rig.port_of("lab-1").roles == {"operator"} | SessionClass.OPERATOR.alone
        other = await rig.runtime(context=context)
        assert code_and_reason(await other.open("ana")) == (401, "bad-token")
        renewed = client_certificate(authority, name="lab")
        late = await rig.runtime(context=client_context(authority, tmp_path, renewed))
        expected = (200, "") if by == "subject" else (401, "bad-token")
        assert code_and_reason(await late.open("lab-2")) == expected


async def test_required_means_that_no_token_is_enough(tmp_path: Path, authority: trustme.CA) -> None:
    more = 'client_certificate = "required"\n'
    async with secured_rig(tmp_path, authority, more) as rig:
        nobody = await rig.runtime(context=client_context(authority, tmp_path))
        assert code_and_reason(await nobody.open("ana")) == (401, "no-credentials")
        ana = await rig.runtime(context=client_context(authority, tmp_path, client_certificate(authority, ANA)))
        assert (await ana.open("ana"))["body"]["code"] == 200


async def test_who_comes_back_with_its_certificate_takes_its_session_over(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with secured_rig(tmp_path, authority, STRICT) as rig:
        first = await rig.runtime(context=client_context(authority, tmp_path, client_certificate(authority, ANA)))
        await first.open("ana")
        address = await first.allocated()
        second = await rig.runtime(context=client_context(authority, tmp_path, client_certificate(authority, ANA)))
        assert (await second.open("ana"))["body"]["code"] == 200
        notice = await first.next()
        assert (notice["from"], notice["to"], notice["body"]["value"]) == ("mn:/session", f"{ANA}/status", "taken-over")
        assert await first.close_code() == 4001
        assert rig.state.owners.owner(address) == rig.port_of("ana").sid
        assert rig.bus.runtimes.live_sessions == 1


def test_what_is_no_certificate_is_nothing() -> None:
    assert read_certificate(b"") is None
    assert read_certificate(b"\x30\x03\x02\x01\x01") is None


def test_names_that_are_no_runtimes_are_passed_over(authority: trustme.CA) -> None:
    made = client_certificate(authority, "https://alpha.example/", "runtime:/x", "runtime://alpha.example/<x>", ANA)
    certificate = x509.load_pem_x509_certificate(made.pem)
    read = read_certificate(certificate.public_bytes(Encoding.DER))
    assert read is not None
    assert read.runtimes == {ANA}
    assert read.subject == "CN=ana,O=Alpha"
    assert read.sha256 == made.sha256.replace(":", "").lower()
