"""The document scenarios as files: they are what the program makes of them, and our own verifier agrees with each."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from catalogue_client.client import CatalogueClient
from catalogue_client.core.location import Location
from catalogue_client.core.state import TrustAnchor
from catalogue_client.fetcher import Fetched, Fetcher
from catalogue_client.trust_store import TrustStore
from interop.partner.document_files import FOLDER, contents
from protofly.documents import DocumentBundle
from protofly.errors import Code, PeerError
from sandbox.core.module_check import inspect_module
from tests.interop.lab.document_mistakes import DOCUMENT_MISTAKES, FURTHER_PLACES

INDEX = json.loads((FOLDER / "index.json").read_text())
SECRET = b"a secret of this node, 32 bytes."


class Files(Fetcher):
    """Serves what an edition has, and what those before it had."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    async def fetch(
        self,
        url: str,
        *,
        domain: str,
        max_bytes: int,
        deadline_seconds: float,  # noqa: ARG002 - nothing here takes time
        connect_to: tuple[str, int] | None = None,  # noqa: ARG002
    ) -> Fetched:
        body = self.files.get(url)
        if body is None:
            raise PeerError(Code.HTTP_STATUS, "404", domain=domain)
        if len(body) > max_bytes:
            raise PeerError(Code.DOCUMENT_TOO_LARGE, f"more than {max_bytes} bytes", domain=domain)
        kind = "application/json" if "/.well-known/rethink-mn" in urlsplit(url).path else "application/wasm"
        return Fetched(body=body, max_age_seconds=None, content_type=kind)


class Verifier:
    """Our verifier with a memory of its own."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.served = Files()
        self.store = TrustStore(folder / "trust.sqlite", secret=SECRET)
        self.client = CatalogueClient(
            self.served, self.store, our_domain=INDEX["verifier"], clock=lambda: self.now, draw=lambda: 0.5
        )
        self.known: DocumentBundle | None = None

    async def verify(self, what: str) -> None:
        trust = await self.client.refresh(Location.of(INDEX["domain"]), TrustAnchor.web(), known=self.known)
        if what == "documents":
            return

        stub = await self.client.fetch_stub(trust)  # without a cache: nothing goes on in place of what is refused
        inspect_module(stub.module)
        self.known = trust.bundle([stub])


@pytest.fixture
async def verifier(tmp_path: Path) -> AsyncIterator[Verifier]:
    verifier = Verifier(tmp_path)
    yield verifier
    verifier.store.close()


def test_the_published_files_are_what_the_scenarios_make() -> None:
    made = contents()
    there = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*.json")}
    assert sorted(there) == sorted(made)
    assert [name for name, path in there.items() if path.read_bytes() != made[name]] == []


def test_each_id_is_there_once_and_both_verdicts_are() -> None:
    cases = INDEX["cases"]
    assert len({case["id"] for case in cases}) == len(cases) > 90
    assert all(case["section"] and case["says"] for case in cases)


async def disagreements(verifier: Verifier, case: dict[str, str]) -> list[str]:
    """What a verifier says otherwise than the files."""
    found = []
    editions: list[dict[str, Any]] = json.loads((FOLDER / case["file"]).read_text())["editions"]
    for number, edition in enumerate(editions, 1):
        verifier.now = edition["now"]
        verifier.served.files |= {url: b64decode(text) for url, text in edition["files"].items()}
        verdict = ""
        before = verifier.store.load(INDEX["domain"])
        try:
            await verifier.verify(edition["verify"])
        except PeerError as error:
            verdict = error.code.word
            after = verifier.store.load(INDEX["domain"])
            assert before is None or (after is not None and after.live_serial >= before.live_serial)
        if verdict != edition.get("code", ""):
            found.append(f"edition {number}: {verdict or 'accepted'}")
    return found


@pytest.mark.parametrize("case", INDEX["cases"], ids=lambda case: case["id"])
async def test_our_verifier_agrees(verifier: Verifier, case: dict[str, str]) -> None:
    assert await disagreements(verifier, case) == []


@pytest.mark.parametrize("mistake", DOCUMENT_MISTAKES)
async def test_a_mistake_of_a_verifier_is_found_by_a_file(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    replaced, id_ = DOCUMENT_MISTAKES[mistake]
    for one in (replaced, *FURTHER_PLACES.get(mistake, ())):
        monkeypatch.setattr(one.place, one.name, one.by)
    [case] = [one for one in INDEX["cases"] if one["id"] == id_]
    assert await disagreements(verifier, case)
