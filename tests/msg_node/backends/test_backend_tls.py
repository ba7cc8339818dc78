"""Certificates for a back-end that are renewed while the node runs; over real TLS."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.backend_tls import BackendTls
from msg_node.settings.tables.registries import BackendSettings
from protofly.errors import Code, PeerError, SettingsError
from protofly.limits import CERTIFICATES_LOOKED_AT_SECONDS
from tests.support.rest_server import RestServer, Said, rest_server


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """A server that wants a certificate of its authority, and a client whose files change."""

    def __init__(self, folder: Path, authority: trustme.CA, server: RestServer) -> None:
        self.folder = folder
        self.authority = authority
        self.server = server
        self.clock = Clock()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.install(authority)
        settings = BackendSettings(
            url=server.url, ca_file=folder / "ca.pem", certificate=folder / "mn.pem", key=folder / "mn.key"
        )
        self.tls = BackendTls("registry", settings, clock=self.clock)
        self.http = BackendHttp(server.url, self.tls, max_bytes=1_000)

    def install(self, authority: trustme.CA) -> None:
        """Put a new certificate in place of the old one."""
        issued = authority.issue_cert("mn-1.alpha.example")
        issued.cert_chain_pems[0].write_to_path(str(self.folder / "mn.pem"))
        issued.private_key_pem.write_to_path(str(self.folder / "mn.key"))

    def later(self) -> None:
        self.clock.now += CERTIFICATES_LOOKED_AT_SECONDS

    async def shown(self) -> bytes | None:
        """Ask; what the server was shown."""
        assert (await self.http.ask("GET", "/x", seconds=10)).status == 200
        return self.server.asked[-1].peer_certificate


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    async with rest_server(lambda _: Said(200, b"{}"), context=context) as server:
        yield Scene(folder, authority, server)


async def test_a_new_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        first = await at.shown()
        at.install(at.authority)
        assert await at.shown() == first  # it was looked at a moment ago
        at.later()
        second = await at.shown()
        assert second not in (None, first)
        before = at.tls()
        at.later()
        assert at.tls() is before  # nothing changed: nothing is read


async def test_an_authority_that_is_added_is_believed(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        at.later()
        with pytest.raises(PeerError) as caught:
            await at.shown()
        assert caught.value.code is Code.TLS_FAILED
        at.authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"), append=True)
        at.later()
        assert await at.shown()


@pytest.mark.parametrize("harm", ["garbage", "missing", "another key"])
async def test_files_that_cannot_be_used_change_nothing_and_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    caplog.set_level(logging.INFO, "msg_node")
    async with scene(tmp_path) as at:
        first = await at.shown()
        if harm == "garbage":
            (tmp_path / "mn.pem").write_text("half a certif")
        elif harm == "missing":
            (tmp_path / "mn.key").unlink()
        else:  # a tool that has replaced one file of the two
            at.authority.issue_cert("x").private_key_pem.write_to_path(str(tmp_path / "mn.key"))
        for _ in range(3):
            at.later()
            assert await at.shown() == first
        assert caplog.text.count("certificates stay as they were") == 1
        at.install(at.authority)
        at.later()
        assert await at.shown() != first
        assert caplog.text.count("registry: certificates were renewed") == 1


def test_files_that_cannot_be_used_at_the_start_are_an_error_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        BackendTls("registry", BackendSettings(url="https://x.example", ca_file=tmp_path / "none.pem"))
