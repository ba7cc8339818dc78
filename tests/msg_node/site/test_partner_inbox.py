"""Files that partners hand in at the site: whole, signed, bounded for each partner, and never of anybody else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

from msg_node.settings.exchange import exchange_problems
from msg_node.settings.tables.exchange import ExchangePartner, ExchangeSettings
from msg_node.settings.tables.listeners import SiteSettings
from msg_node.site.partner_inbox import PartnerInbox
from msg_node.site.site import Site
from protofly.partner_files import HEADER, PATH, PartnerFile, header_of
from protofly.signatures import SigningKey
from tests.system.systems import wait_until

KEY, OTHER = SigningKey.from_seed("b", b"b" * 32), SigningKey.from_seed("c", b"c" * 32)
US, PARTNER, THIRD = "a.example", "b.example", "c.example"
NOW = 1_800_000_000.0


def settings_of(**bounds: Any) -> ExchangeSettings:
    partners = (
        ExchangePartner(domain=PARTNER, keys=(KEY.record().pub,)),
        ExchangePartner(domain=THIRD, keys=(OTHER.record().pub,)),
    )
    return ExchangeSettings(partner=partners, **bounds)


class Line:
    """A client of the site, and the folder behind it."""

    def __init__(self, client: httpx.AsyncClient, inbox: PartnerInbox, folder: Path) -> None:
        self.client = client
        self.requests = 0
        self.inbox = inbox
        self.folder = folder

    async def hand(self, name: str, content: bytes, *, key: SigningKey = KEY, **facts: Any) -> tuple[int, str]:
        """Hand a file in; the answer. Each request is of another moment."""
        self.requests += 1
        usual: dict[str, Any] = {"author": PARTNER, "reader": US, "name": name, "sent": NOW + self.requests / 1024}
        usual |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        file = PartnerFile(**(usual | facts))
        headers = {HEADER: header_of(file, key)}
        answer = await self.client.post(f"{PATH}/{file.author}", content=content, headers=headers)
        return answer.status_code, answer.text.partition(":")[0].strip()

    async def hidden(self) -> list[Path]:
        """Files of the partner that are on their way."""
        return await trio.to_thread.run_sync(lambda: list((self.folder / PARTNER).glob(".incoming-*")))

    def files(self, domain: str = PARTNER) -> dict[str, bytes]:
        """Everything that lies in the folder of a partner."""
        return {path.name: path.read_bytes() for path in (self.folder / domain).glob("*")}


def signed(content: bytes) -> dict[str, Any]:
    """What a header says about a content, whatever is sent behind it."""
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@asynccontextmanager
async def site(folder: Path, **bounds: Any) -> AsyncIterator[Line]:
    served = Site(SiteSettings(port=0, insecure_plaintext=True))
    served.inbox = PartnerInbox(US, settings_of(**bounds), folder, clock=lambda: NOW)
    async with trio.open_nursery() as nursery:
        await nursery.start(served.run)
        async with httpx.AsyncClient(base_url=served.url, trust_env=False) as client:
            yield Line(client, served.inbox, folder)
        nursery.cancel_scope.cancel()


async def test_a_file_of_a_partner_lies_in_its_folder_as_it_was_signed(tmp_path: Path) -> None:
    content = os.urandom(300_000)
    async with site(tmp_path) as line:
        assert await line.hand("2026-03-02.totals", content) == (200, "taken")
        assert await line.hand("2026-03-02.totals", content + b"x") == (200, "taken"), "a newer one takes its place"
        assert line.files() == {"2026-03-02.totals": content + b"x"}
        assert line.inbox.status()[0] == {"domain": PARTNER, "taken": 2, "refused": 0}


async def test_nobody_but_partners_hands_anything_in(tmp_path: Path) -> None:
    async with site(tmp_path) as line:
        assert await line.hand("x", b"1", author="d.example") == (404, "no-such-domain")
        assert await line.hand("x", b"1", key=OTHER) == (401, "auth-signature")
        assert await line.hand("x", b"1", reader="d.example") == (401, "auth-audience")
        assert await line.hand("x", b"1", sent=NOW - 3600) == (401, "auth-stale")
        assert (await line.client.post(f"{PATH}/{PARTNER}", content=b"1")).status_code == 401
        assert (await line.client.get(f"{PATH}/{PARTNER}")).status_code == 405
        assert line.files() == {}
        assert line.inbox.status()[0] == {"domain": PARTNER, "taken": 0, "refused": 0}, (
            "what strangers send is not theirs"
        )


async def test_a_request_that_somebody_sends_again_changes_nothing_and_costs_its_author_nothing(tmp_path: Path) -> None:
    async with site(tmp_path, hourly_files=3) as line:
        assert await line.hand("x", b"old", sent=NOW) == (200, "taken")
        assert await line.hand("x", b"new", sent=NOW + 1) == (200, "taken")
        for content in (b"old", b"other", b""):
            assert await line.hand("x", content, sent=NOW, **signed(b"old")) == (401, "auth-replay")
        assert line.files() == {"x": b"new"}
        assert line.inbox.status()[0] == {"domain": PARTNER, "taken": 2, "refused": 0}
        assert await line.hand("x", b"old") == (200, "taken"), "its author may send the same again"
        assert await line.hand("x", b"old") == (429, "rate")


async def test_a_body_that_is_not_the_signed_one_leaves_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as line:
        for facts in ({"size": 2}, {"size": 4}, {"sha256": "0" * 64}):
            assert await line.hand("x", b"abc", **facts) == (400, "bad-body")
        assert line.files() == {}
        assert await line.hand("x", b"abc") == (200, "taken")


async def test_each_partner_has_bounds_of_its_own(tmp_path: Path) -> None:
    async with site(tmp_path, file_bytes=4096, waiting_files=2, waiting_bytes=6000, hourly_files=7) as line:
        assert await line.hand("large", bytes(4097)) == (413, "too-large")
        assert await line.hand("a", bytes(4000)) == (200, "taken")
        assert await line.hand("b", bytes(4000)) == (429, "quota"), "bytes"
        assert await line.hand("b", b"1") == (200, "taken")
        assert await line.hand("c", b"1") == (429, "quota"), "files"
        assert await line.hand("b", b"2") == (200, "taken"), "in place of one that waits"
        (tmp_path / PARTNER / "a").unlink()  # the pipeline has taken it
        assert await line.hand("c", b"1") == (200, "taken")
        assert await line.hand("d", b"1") == (429, "rate")
        assert await line.hand("a", b"1", key=OTHER, author=THIRD) == (200, "taken"), "others do not feel it"


async def test_a_partner_sends_one_file_at_a_time_and_one_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    content = bytes(100_000)
    started = trio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield content[:50_000]
        started.set()
        await trio.sleep_forever()

    async with site(tmp_path) as line, trio.open_nursery() as nursery:

        async def break_off() -> None:
            sha256 = hashlib.sha256(content).hexdigest()
            file = PartnerFile(author=PARTNER, reader=US, name="slow", sent=NOW, size=len(content), sha256=sha256)
            headers = {HEADER: header_of(file, KEY), "content-length": str(len(content))}
            async with httpx.AsyncClient(base_url=line.client.base_url, trust_env=False) as other:
                await other.post(f"{PATH}/{PARTNER}", content=slowly(), headers=headers)

        nursery.start_soon(break_off)
        with trio.fail_after(30):
            await started.wait()
            await wait_until(line.hidden, bool)
            assert await line.hand("x", b"1") == (429, "rate")
            nursery.cancel_scope.cancel()
    assert not any((tmp_path / PARTNER).glob("*"))


def problems() -> Iterator[tuple[ExchangeSettings, str]]:
    one = ExchangePartner(domain=PARTNER, keys=(KEY.record().pub,))
    yield ExchangeSettings(partner=(one, one)), "a second entry"
    yield ExchangeSettings(partner=(ExchangePartner(domain="-b", keys=one.keys),)), "no domain"
    yield ExchangeSettings(partner=(ExchangePartner(domain=THIRD, keys=("A" * 43,)),)), "malformed or weak"


def test_settings_that_mean_nothing_are_named() -> None:
    for settings, words in problems():
        found = [text for _, text in exchange_problems(settings)]
        assert any(words.split()[-1] in text for text in found), words
    assert list(exchange_problems(settings_of())) == []


async def test_other_partners_count_at_once_and_what_one_has_done_lately_goes_on(tmp_path: Path) -> None:
    async with site(tmp_path, hourly_files=1) as line:
        assert await line.hand("a", b"1") == (200, "taken")
        partners = settings_of().partner
        replaced = ExchangePartner(domain=PARTNER, keys=(OTHER.record().pub,))
        line.inbox.follow(ExchangeSettings(partner=(replaced,), hourly_files=1))
        assert await line.hand("b", b"1") == (401, "auth-signature")
        assert await line.hand("b", b"1", key=OTHER) == (429, "rate")
        assert await line.hand("b", b"1", key=OTHER, author=THIRD) == (404, "no-such-domain")
        line.inbox.follow(ExchangeSettings(partner=partners, hourly_files=2))
        assert await line.hand("b", b"1") == (200, "taken")
        assert [one["taken"] for one in line.inbox.status()] == [2, 0]
