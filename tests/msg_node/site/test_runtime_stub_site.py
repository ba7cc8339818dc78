"""The stub for runtimes in the catalogue: default for all that run no WebAssembly, signed, kept until replaced."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from msg_node.site.site import Site
from protofly.errors import SettingsError
from protofly.signatures import decode_envelope
from stubkit.keys import make_keys, save_keys
from tests.msg_node.site.test_site import DOMAIN, NOW, serving, settings_for
from trapezoid.publish_options import SigningSite, default_module
from trapezoid.publish_request import PublishRequest
from trapezoid.publishing import PublishReport, publish

STUB = Path(__file__).parents[3] / "examples" / "runtime_stub" / "trapezoid-runtime-stub.js"
URL = "wss://mn.a.example:8443/ws"
KEYS = make_keys()
FOR_NODES = {"constraints": {"wasm": True, "wss": True}}
FOR_BROWSERS = {"constraints": {"browser": True, "node": False, "wss": True}}


def published(folder: Path, **request: Any) -> PublishReport:
    (folder / "data").mkdir(exist_ok=True)
    if not (folder / "keys").exists():
        save_keys(KEYS, folder / "keys")
    site = SigningSite(domain=DOMAIN, keys=KEYS, path=folder / "site", now=NOW)
    return publish(site, PublishRequest(module=default_module(), url=f"http://{DOMAIN}", **request))


async def found(client: httpx.AsyncClient, type_: str, name: str, wanted: object = None) -> dict[str, Any]:
    path = f"/.well-known/{type_}/{name}"
    answer = await (client.get(path) if wanted is None else client.post(path, json=wanted))
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


async def test_default_is_the_runtime_stub_for_runtimes_and_the_module_for_nodes(tmp_path: Path) -> None:
    report = published(tmp_path, runtime_stub=STUB, runtime_url=URL)
    assert report.runtime_stub == f"trapezoid-runtime 1.0.0, {URL}"
    async with serving(Site.from_settings(settings_for(tmp_path))) as client:
        for wanted in (None, FOR_BROWSERS):
            descriptor = await found(client, "protocolstub", "default", wanted)
            assert (descriptor["objectName"], descriptor["language"]) == ("trapezoid-runtime", "javascript")
            assert descriptor["configuration"] == {"url": URL}
        package = await found(client, "sourcepackage", descriptor["sourcePackageURL"].rpartition("/")[2])
        assert package["sourceCode"] == STUB.read_text(encoding="utf-8")
        assert (await found(client, "sourcepackage", "default")) == package
        for_nodes = await found(client, "protocolstub", "default", FOR_NODES)
        assert (for_nodes["language"], for_nodes["constraints"]) == ("WASM", {"wasm": True, "wss": True})
    envelope = decode_envelope(package["signature"].encode())
    assert envelope.signers({key.key_id: key.record() for key in KEYS.pkg}, allowed=[key.key_id for key in KEYS.pkg])
    assert json.loads(envelope.payload)["sha256"] == hashlib.sha256(STUB.read_bytes()).hexdigest()


async def test_without_a_runtime_stub_the_default_is_the_module_for_everybody(tmp_path: Path) -> None:
    assert published(tmp_path).runtime_stub == "none"
    async with serving(Site.from_settings(settings_for(tmp_path))) as client:
        assert (await found(client, "protocolstub", "default"))["language"] == "WASM"


def test_published_runtime_stub_and_its_url_stay_when_others_change(tmp_path: Path) -> None:
    published(tmp_path, runtime_stub=STUB, runtime_url=URL)
    assert published(tmp_path).runtime_stub.endswith(URL)
    newer = tmp_path / "newer.js"
    newer.write_text("// @version 1.2\nfunction activate() {}")
    assert published(tmp_path, runtime_stub=newer).runtime_stub == f"trapezoid-runtime 1.2, {URL}"


@pytest.mark.parametrize(
    ("content", "url", "said"),
    [
        (b"function activate() {}", None, "needs --runtime-url"),
        (b"function activate() {}", "https://x", "needs --runtime-url"),
        (b"function start() {}", URL, "defines no `activate`"),
        (b"\xff", URL, "not UTF-8"),
        (b"x" * ((1 << 20) + 1), URL, "more than 1,048,576 bytes"),
        (None, URL, "No such file"),
    ],
)
def test_what_is_no_stub_for_runtimes_is_not_published(
    content: bytes | None, url: str | None, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "stub.js"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=said):
        published(tmp_path, runtime_stub=file, runtime_url=url)
    assert not (tmp_path / "site" / "publication.json").exists()


def test_url_without_a_stub_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="belongs to --runtime-stub"):
        published(tmp_path, runtime_url=URL)
