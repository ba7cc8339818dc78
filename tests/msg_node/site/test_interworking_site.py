"""What the author of an interworking stub publishes with our commands is what other nodes verify."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from catalogue_client.client import CatalogueClient
from catalogue_client.core.location import Location
from catalogue_client.core.state import TrustAnchor
from catalogue_client.http_fetcher import HttpFetcher
from catalogue_client.trust_store import TrustStore
from msg_node.settings.load import load_settings
from msg_node.site.site import Site
from protofly.errors import SettingsError
from stubkit.keys import load_keys, make_keys, save_keys
from tests.msg_node.site.test_site import LoopbackDialler, serving
from trapezoid.publish_options import SigningSite
from trapezoid.publish_request import PublishRequest
from trapezoid.publishing import publish

STUB = "chat.legacy.example"
CHAT = Path(__file__).parents[3] / "examples" / "stubs" / "legacy_chat" / "legacy_chat.wasm"
SETTINGS = f"""
[node]
domain = "{STUB}"
data_dir = "data"
[listen]
insecure_plaintext = true
[site]
port = 0
insecure_plaintext = true
[publish]
keys_dir = "keys"
site_dir = "site"
endpoint_url = "ws://mn.{STUB}/link"
"""
ENDPOINTS = """
[[publish.endpoint]]
name = "lines"
url = "tls://chat.legacy.example:7000"
[[publish.endpoint]]
name = "api"
url = "https://api.legacy.example"
"""


async def test_stub_of_a_legacy_is_published_with_its_ranges_and_endpoints(tmp_path: Path) -> None:
    save_keys(make_keys(), tmp_path / "keys")
    (tmp_path / "data").mkdir()
    publish(
        SigningSite(domain=STUB, keys=load_keys(tmp_path / "keys"), path=tmp_path / "site", now=time.time()),
        PublishRequest(module=CHAT, url=f"http://{STUB}", endpoints=["lines", "api"], ranges=["chat://legacy.example"]),
    )
    path = tmp_path / "node.toml"
    path.write_text(SETTINGS + ENDPOINTS)
    site = Site.from_settings(load_settings(path))
    async with serving(site):
        plaintext = frozenset({STUB})
        fetcher = HttpFetcher(LoopbackDialler(site), ssl.create_default_context(), insecure_plaintext=plaintext)
        location = Location(domain=STUB, well_known_url=f"http://{STUB}/.well-known/rethink-mn")
        with TrustStore(tmp_path / "trust.sqlite", secret=b"s" * 32) as store:
            client = CatalogueClient(fetcher, store, our_domain="a.example")
            stub = await client.fetch_stub(await client.refresh(location, TrustAnchor.web()))
    assert stub.manifest.interworking
    assert stub.manifest.permissions.ranges == ["chat://legacy.example"]
    assert not stub.manifest.permissions.auth
    assert {name: one.url for name, one in stub.endpoints.items()} == {
        "lines": "tls://chat.legacy.example:7000",
        "api": "https://api.legacy.example",
    }


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ('[[publish.endpoint]]\nname = "mn"\nurl = "tls://x.example:1"\n', "a second endpoint mn"),
        ('[[publish.endpoint]]\nname = "x"\nurl = "ws://x.example"\n', "not encrypted"),
        ('[[publish.endpoint]]\nname = "x"\nurl = "http://x.example"\n', "url"),
        ('[[publish.endpoint]]\nname = "X"\nurl = "tls://x.example:1"\n', "name"),
    ],
)
def test_endpoint_that_no_stub_could_use_is_refused(tmp_path: Path, more: str, complaint: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(SETTINGS + more)
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert complaint in caught.value.detail
