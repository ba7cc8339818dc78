"""Settings of registry, QoS broker and catalogue: what is refused, and what they make."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import trustme

from msg_node.kernel.own_names import OwnNames
from msg_node.kernel.service import Caller, ServiceRequest
from msg_node.node_state import make_state
from msg_node.qos.core.qos_service import QosService
from msg_node.registries.core.registry_relay import RegistryRelay
from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from msg_node.settings.registries import backend_context
from msg_node.settings.weakenings import insecure_switches
from msg_node.wiring.backends import Backends
from protofly import codec
from protofly.documents import SigningKey
from protofly.errors import Code, PeerError, SettingsError

SMALLEST = """
[node]
domain = "a.example"
aliases = ["b.example"]
data_dir = "data"
[listen]
insecure_plaintext = true
"""


STUB = "c.example/.well-known/protocolstub/default"


def load(folder: Path, text: str) -> Settings:
    path = folder / "node.toml"
    path.write_text(SMALLEST + textwrap.dedent(text), encoding="utf-8")
    return load_settings(path)


def made(settings: Settings) -> Backends:
    return Backends(settings, make_state(OwnNames.of(settings.own_domains)), SigningKey.from_seed("test", bytes(32)))


def test_without_a_word_registry_and_broker_are_not_elsewhere_and_catalogues_are_read(tmp_path: Path) -> None:
    services = made(load(tmp_path, "")).services
    reads = services["hyperty-catalogue://*"]
    assert {key for key, service in services.items() if service is reads} == {
        "domain://catalogue.a.example",
        "domain://catalogue.b.example",
        "hyperty-catalogue://*",
    }
    assert not any(isinstance(service, RegistryRelay | QosService) for service in services.values())


def test_where_runtimes_load_no_stubs_of_others_another_service_gives_entries(tmp_path: Path) -> None:
    services = made(load(tmp_path, "[catalogue]\nguest_stubs = false\n")).services
    message = codec.build(id=1, type="read", from_="runtime://a.example/rt", to=f"hyperty-catalogue://{STUB}")
    request = ServiceRequest(message, Caller(1), "", 0.0, bytes(32))
    for key in ("hyperty-catalogue://*", "domain://catalogue.a.example", "domain://catalogue.b.example"):
        with pytest.raises(PeerError) as refused:
            services[key](request)
        assert refused.value.code is Code.POLICY


def test_every_domain_of_ours_gets_the_services_that_are_named(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
        [registry]
        url = "https://registry.a.example:4567/rest"
        [qos]
        url = "https://qos.a.example"
        """,
    )
    services = made(settings).services
    for domain in ("a.example", "b.example"):
        assert isinstance(services[f"domain://registry.{domain}"], RegistryRelay)
        assert isinstance(services[f"domain://qos.{domain}"], QosService)
        assert services[f"domain://qos-broker.{domain}"] is services[f"domain://qos.{domain}"]
    assert insecure_switches(settings) == insecure_switches(load(tmp_path, ""))


@pytest.mark.parametrize("table", ["registry", "qos", "catalogue.own"])
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "url"),
        ('url = "registry.a.example"', "is not https://host"),
        ('url = "ftp://registry.a.example"', "is not https://host"),
        ('url = "https://me:secret@registry.a.example"', "is not https://host"),
        ('url = "https://registry.a.example/?a=b"', "is not https://host"),
        ('url = "https://registry.a.example:99999"', "is not https://host"),
        ('url = "http://registry.a.example"', "insecure_plaintext"),
        ('url = "https://x.example"\ninsecure_plaintext = true', "contradicts"),
        ('url = "https://x.example"\ncertificate = "c.pem"', "come together"),
        ('url = "https://x.example"\nattempt_seconds = 0', "attempt_seconds"),
        ('url = "https://x.example"\nattempts = 7', "attempts"),
    ],
)
def test_what_cannot_be_a_server_is_refused_with_its_place(
    tmp_path: Path, table: str, text: str, complaint: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, f"[{table}]\n{text}\n")
    assert complaint in caught.value.detail
    assert table in caught.value.detail


@pytest.mark.parametrize("table", ["registry", "qos", "catalogue.own"])
def test_a_line_without_tls_is_a_weakening_that_is_reported(tmp_path: Path, table: str) -> None:
    settings = load(tmp_path, f'[{table}]\nurl = "http://127.0.0.1:4567"\ninsecure_plaintext = true\n')
    assert any(word.startswith(f"{table}.insecure_plaintext") for word in insecure_switches(settings))


def test_key_files_are_read_at_the_start_and_a_missing_one_stops_it(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ours = authority.issue_cert("mn.a.example")
    ours.cert_chain_pems[0].write_to_path(str(tmp_path / "mn.pem"))
    ours.private_key_pem.write_to_path(str(tmp_path / "mn.key"))
    text = '[registry]\nurl = "https://x.example"\nca_file = "ca.pem"\ncertificate = "mn.pem"\nkey = "{}"\n'
    settings = load(tmp_path, text.format("mn.key")).registry
    assert settings is not None
    assert backend_context("registry", settings).get_ca_certs()
    with pytest.raises(SettingsError, match=r"registry\.key"):
        made(load(tmp_path, text.format("nothing.key")))
