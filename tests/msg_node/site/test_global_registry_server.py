"""The laboratory's global registry, over real HTTP and a real file."""

from __future__ import annotations

import contextlib
import hashlib
import ssl
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from msg_node.backends.backend_http import BackendHttp
from msg_node.registries.guid_store import GuidStore
from msg_node.site.global_registry_server import ServerOptions, serve
from protofly.errors import Code, HostError, SettingsError, TransportError
from protofly.guid_record import read_record
from protofly.limits import GUID_RECORD_BYTES
from tests.support.guid_holder import GuidHolder
from tests.support.open_files import is_open

ANA, BO = GuidHolder("ana"), GuidHolder("bo")
NOW = time.time()
TOKEN = "only for the laboratory"


@asynccontextmanager
async def registry(folder: Path, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    options = ServerOptions(folder / "guids.sqlite", port=0, **changes)
    printed: list[dict[str, object]] = []
    ready = trio.Event()

    def on_ready(facts: dict[str, object]) -> None:
        printed.append(facts)
        ready.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, options, version="1", on_ready=on_ready))
        with trio.fail_after(10):
            await ready.wait()
        async with httpx.AsyncClient(base_url=str(printed[0]["url"]), timeout=10) as client:
            yield client
        nursery.cancel_scope.cancel()


def at(guid: str) -> str:
    return f"/guid/{guid}"


def said(answer: httpx.Response) -> tuple[int, str]:
    members = answer.json()
    assert members["Code"] == answer.status_code
    assert "Description" in members
    return members["Code"], members.get("Reason", "")


async def test_a_stored_record_is_read_back_as_it_was_signed_and_survives_a_restart(tmp_path: Path) -> None:
    jwt = ANA.record(updated=NOW, user="user://idp.example/ana", domain="a.example")
    async with registry(tmp_path) as client:
        assert said(await client.get(at(ANA.guid))) == (404, "not-registered")
        assert said(await client.put(at(ANA.guid), content=jwt)) == (200, "")
    assert stat.S_IMODE((tmp_path / "guids.sqlite").stat().st_mode) == 0o600
    async with registry(tmp_path) as client:
        answer = await client.get(at(ANA.guid))
        assert answer.json()["Value"] == jwt
        status = (await client.get("/")).json()
        assert (status["Code"], status["Value"], status["records"], status["connectedNodes"]) == (200, "", 1, [])


@pytest.mark.parametrize(
    ("guid", "jwt", "expected"),
    [
        (BO.guid, ANA.record(updated=NOW), (400, "bad-body")),
        ("short", ANA.record(updated=NOW), (400, "bad-body")),
        (ANA.guid, ANA.record(updated=NOW, guid=BO.guid), (400, "bad-body")),
        (ANA.guid, ANA.record(updated=NOW, publicKey=BO.public_key), (400, "bad-body")),
        (ANA.guid, ANA.record(updated=NOW, defaults=None), (400, "bad-body")),
        (ANA.guid, ANA.record(updated=NOW, schemaVersion=None), (400, "bad-body")),
        (ANA.guid, ANA.record(updated=NOW + 86_400), (400, "bad-body")),
        (ANA.guid, ANA.record(updated=NOW - 91 * 86_400), (400, "bad-body")),
        (ANA.guid, ANA.record(updated=NOW - 91 * 86_400, active=0), (400, "bad-body")),
        (ANA.guid, "", (400, "bad-body")),
        (ANA.guid, "é.é.é", (400, "bad-body")),
        (ANA.guid, "A" * (GUID_RECORD_BYTES + 1), (413, "too-large")),
    ],
    ids=count(),
)
async def test_what_a_record_does_not_prove_is_not_stored(
    tmp_path: Path, guid: str, jwt: str, expected: tuple[int, str]
) -> None:
    async with registry(tmp_path) as client:
        assert said(await client.put(at(guid), content=jwt.encode())) == expected
        assert (await client.get("/")).json()["records"] == 0


async def test_a_body_of_ten_mebibytes_is_cut_and_the_registry_goes_on(tmp_path: Path) -> None:
    async with registry(tmp_path) as client:
        http = BackendHttp(str(client.base_url), ssl.create_default_context(), max_bytes=1 << 20)
        with contextlib.suppress(TransportError):  # it may close before everything is sent
            assert (await http.ask("PUT", at(ANA.guid), seconds=10, body=b"A" * (10 << 20))).status == 413
        assert (await client.get("/")).json()["records"] == 0


async def test_an_older_record_cannot_be_replayed_nor_one_of_the_same_moment_replaced(tmp_path: Path) -> None:
    old, new = ANA.record(updated=NOW - 60), ANA.record(updated=NOW)
    async with registry(tmp_path) as client:
        assert said(await client.put(at(ANA.guid), content=old)) == (200, "")
        assert said(await client.put(at(ANA.guid), content=new)) == (200, "")
        assert said(await client.put(at(ANA.guid), content=old)) == (409, "outdated")
        twin = ANA.record(updated=NOW, user="user://idp.example/other")
        assert said(await client.put(at(ANA.guid), content=twin)) == (409, "outdated")
        assert said(await client.put(at(ANA.guid), content=new)) == (200, "")
        assert (await client.get(at(ANA.guid))).json()["Value"] == new


async def test_a_holder_switches_off_and_on_but_a_revocation_is_for_ever(tmp_path: Path) -> None:
    revoked = ANA.record(updated=NOW, revoked=1)
    async with registry(tmp_path) as client:
        for updated, active in ((NOW - 60, 0), (NOW - 50, 1)):
            jwt = ANA.record(updated=updated, active=active)
            assert said(await client.put(at(ANA.guid), content=jwt)) == (200, "")
        assert said(await client.put(at(ANA.guid), content=revoked)) == (200, "")
        assert said(await client.put(at(ANA.guid), content=ANA.record(updated=NOW + 1))) == (410, "revoked")
        assert (await client.get(at(ANA.guid))).json()["Value"] == revoked


@pytest.mark.parametrize(
    ("token", "expected"),
    [("", (401, "no-credentials")), (TOKEN + "!", (401, "bad-token")), (TOKEN, (200, ""))],
)
async def test_only_the_operator_deletes_and_even_then_nothing_older_comes_back(
    tmp_path: Path, token: str, expected: tuple[int, str]
) -> None:
    jwt = ANA.record(updated=NOW)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    async with registry(tmp_path, deletion_token_sha256=digest) as client:
        await client.put(at(ANA.guid), content=jwt)
        assert said(await client.delete(at(ANA.guid), headers=headers)) == expected
        is_gone = expected[0] == 200
        assert said(await client.get(at(ANA.guid)))[0] == (404 if is_gone else 200)
        assert said(await client.put(at(ANA.guid), content=ANA.record(updated=NOW - 9))) == (409, "outdated")
        assert said(await client.put(at(ANA.guid), content=jwt)) == (200, "")


async def test_without_a_token_in_the_settings_nobody_deletes(tmp_path: Path) -> None:
    async with registry(tmp_path) as client:
        await client.put(at(ANA.guid), content=ANA.record(updated=NOW))
        for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": f"Bearer {TOKEN}"}):
            assert said(await client.delete(at(ANA.guid), headers=headers)) == (401, "no-credentials")
        assert said(await client.get(at(ANA.guid))) == (200, "")


async def test_other_paths_and_methods_are_refused_in_the_same_form(tmp_path: Path) -> None:
    async with registry(tmp_path) as client:
        assert said(await client.get("/guid")) == (400, "bad-body")
        assert said(await client.get("/guid/")) == (400, "bad-body")
        assert said(await client.get("/etc/passwd")) == (404, "")
        assert said(await client.post(at(ANA.guid))) == (405, "")


def test_a_full_store_forgets_the_oldest_and_revocations_last(tmp_path: Path) -> None:
    holders = [GuidHolder(f"holder {number}") for number in range(4)]
    with GuidStore(tmp_path / "guids.sqlite", max_guids=2) as store:
        for number, holder in enumerate(holders):
            jwt = holder.record(updated=NOW, revoked=int(number == 0))
            store.accept(read_record(jwt), jwt, now=NOW + number)
        assert len(store) == 2
        assert [store.load(holder.guid) is not None for holder in holders] == [True, False, False, True]
    with GuidStore(tmp_path / "guids.sqlite") as store:
        assert len(store) == 2


def test_a_file_that_is_no_store_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "guids.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(HostError) as caught:
        GuidStore(tmp_path / "guids.sqlite")
    assert caught.value.code is Code.STORAGE
    assert not is_open(tmp_path / "guids.sqlite")


async def test_an_address_that_is_taken_is_one_plain_error(tmp_path: Path) -> None:
    async with registry(tmp_path) as client:
        options = ServerOptions(tmp_path / "other.sqlite", port=client.base_url.port or 0)
        with pytest.raises(SettingsError, match="Address already in use"):
            await serve(options, version="1", on_ready=lambda _: None)
