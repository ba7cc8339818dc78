"""`trapezoid peer show`: what a partner publishes about its stubs, held against what is stored of its keys."""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trustme
from typer.testing import CliRunner

from catalogue_client.core.state import StubMark, TrustState
from catalogue_client.trust_store import TrustStore
from interop.name_server import NameServer
from protofly.documents import Permissions, TrustLevel, document_sha256
from stubkit.certification import NUMBERS, Certification, RequirementVerdict, encoded, report_path
from stubkit.keys import KeyRing, load_keys, make_keys
from stubs_cache.store import load_secret
from tests.support.rest_server import Asked, RestServer, Said, rest_server
from trapezoid.commands import app

ECHO = Path(__file__).parents[2] / "examples" / "stubs" / "echo" / "echo.wasm"
PLACE = "/.well-known/rethink-mn"


def command(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """What b.example publishes: the stub `echo`."""
    keys, site = str(tmp_path / "keys"), tmp_path / "site"
    command("keys", "init", "b.example", "--keys", keys)
    command("publish", "b.example", str(ECHO), "--no-auth", "--no-check", "--keys", keys, "--site", str(site))
    return site


def certified(site: Path, keys: KeyRing | None, *, sha256: str = "") -> None:
    """Put a report into the site, signed by these keys."""
    report = report_about(sha256 or next((site / "module").iterdir()).stem)
    place = site / "certification" / "echo.json"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(encoded(report, keys.pkg if keys else ()))


def report_about(sha256: str) -> Certification:
    return Certification(
        spec="rmn-stub-certification/1",
        stub="echo",
        version="1.0.0",
        sha256=sha256,
        kit="1",
        engine="e",
        made="2026-11-23T00:00:00+00:00",
        verdicts=[
            RequirementVerdict(number=number, title="Is", result="passed", detail="x") for number in sorted(NUMBERS)
        ],
    )


@pytest.fixture
async def server(site: Path, tmp_path: Path) -> AsyncIterator[RestServer]:
    def answer(asked: Asked) -> Said:
        kind, _, name = asked.target.removeprefix(f"{PLACE}/").partition("/")
        file = site / kind / f"{name}.json"
        return Said(200, file.read_bytes()) if file.is_file() else Said(404, b"no")

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "b.example").configure_cert(context)
    async with rest_server(answer, context=context) as running:
        (tmp_path / "node.toml").write_text(
            '[node]\ndomain = "a.example"\ndata_dir = "data"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
            '[discovery]\nca_file = "ca.pem"\n[[peer]]\ndomain = "b.example"\nallow_addresses = ["127.0.0.0/8"]\n'
            f'well_known_url = "https://127.0.0.1:{running.port}{PLACE}"\n'
        )
        await remember(tmp_path, site)
        yield running


async def remember(folder: Path, site: Path, *stubs: str) -> None:
    """a.example has accepted the documents of b.example before."""
    (folder / "data").mkdir(exist_ok=True)
    mark = StubMark(
        serial=1,
        manifest_sha256=document_sha256((site / "manifest" / "echo.json").read_bytes()),
        permissions=Permissions(),
    )
    state = TrustState(
        domain="b.example",
        level=TrustLevel.WEB,
        root=(site / "root" / "1.json").read_bytes(),
        root_version=1,
        fingerprints=["x" * 43],
        stubs=dict.fromkeys(stubs or ["echo"], mark),
    )
    with TrustStore(folder / "data" / "trust.sqlite", secret=load_secret(folder / "data" / "secret")) as store:
        await store.save(state)


async def lines(folder: Path) -> list[str]:
    words = ("peer", "show", "b.example", "--config", str(folder / "node.toml"), "--json")
    return list(map(str, json.loads(await trio.to_thread.run_sync(command, *words))["stubs"]))


async def shown(folder: Path) -> str:
    [line] = await lines(folder)
    return line


async def test_certification_is_shown_with_who_signed_it(server: RestServer, site: Path, tmp_path: Path) -> None:
    assert "no certification is published" in await shown(tmp_path)
    certified(site, load_keys(tmp_path / "keys"))
    assert "it says of itself: certified: 18 passed, signed by the domain" in await shown(tmp_path)
    certified(site, make_keys())
    assert "it says of itself: certified: 18 passed, NOT SIGNED by keys of the domain" in await shown(tmp_path)
    certified(site, None)
    assert "NOT SIGNED" in await shown(tmp_path)


async def test_report_about_another_module_is_not_shown_as_this_ones(
    server: RestServer, site: Path, tmp_path: Path
) -> None:
    certified(site, load_keys(tmp_path / "keys"), sha256="00" * 32)
    assert "the published certification is about another module" in await shown(tmp_path)


async def test_report_that_cannot_be_read_costs_only_its_own_line(
    server: RestServer, site: Path, tmp_path: Path
) -> None:
    await remember(tmp_path, site, "another", "echo")
    certified(site, None)
    (site / "certification" / "echo.json").write_bytes(b"[" * 50_000)
    another, echo = await lines(tmp_path)
    assert another.startswith("another: not asked: http-status")
    assert echo.startswith("echo: not asked: document-malformed")


async def test_a_site_that_only_the_records_of_its_domain_name_is_asked(
    server: RestServer, site: Path, tmp_path: Path
) -> None:
    certified(site, load_keys(tmp_path / "keys"))
    records = {
        "b.example": ["A 127.0.0.1"],
        "_rethink-mn.b.example": [f"SVCB 1 b.example. port={server.port}"],
    }
    text = (tmp_path / "node.toml").read_text().partition("well_known_url")[0]
    async with trio.open_nursery() as nursery:
        port = await nursery.start(NameServer(records).run)
        named = text.replace("[discovery]\n", f'[discovery]\nnameservers = ["127.0.0.1:{port}"]\n')
        (tmp_path / "node.toml").write_text(named)
        assert "signed by the domain" in await shown(tmp_path)
        nursery.cancel_scope.cancel()


def beside(folder: Path, content: bytes | None) -> str:
    """What is said of a module that the operator chose, with this beside it."""
    (folder / "stub.wasm").write_bytes(ECHO.read_bytes())
    if content is not None:
        report_path(folder / "stub.wasm").write_bytes(content)
    (folder / "node.toml").write_text(
        '[node]\ndomain = "a.example"\ndata_dir = "data"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
        '[[peer]]\ndomain = "b.example"\nstub = "stub.wasm"\nendpoint = "wss://127.0.0.1:1"\nclass = "plain"\n'
    )
    words = ("peer", "show", "b.example", "--config", str(folder / "node.toml"), "--json")
    [line] = json.loads(command(*words))["stubs"]
    return str(line)


def test_report_beside_a_chosen_module_counts_for_that_module_only(tmp_path: Path) -> None:
    assert "no certification at" in beside(tmp_path, None)
    report = report_about(hashlib.sha256(ECHO.read_bytes()).hexdigest())
    assert "says of it: certified: 18 passed, signature not checked" in beside(tmp_path, encoded(report))
    said = beside(tmp_path, encoded(report_about("00" * 32)))
    assert "is about another module" in said
    assert "certified:" not in said
    assert "not read: document-malformed" in beside(tmp_path, b"{}")


def test_publish_takes_a_report_about_an_older_module_away(tmp_path: Path, site: Path) -> None:
    certified(site, None, sha256="00" * 32)
    words = ["publish", "b.example", str(ECHO), "--no-check", "--keys", str(tmp_path / "keys"), "--site", str(site)]
    assert json.loads(command(*words, "--json"))["certification"] == "none"
    assert not (site / "certification" / "echo.json").exists()
    assert report_path(ECHO).name == "echo.certification.json"
