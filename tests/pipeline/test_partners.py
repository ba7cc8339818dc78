"""The exchange with partners by itself: two operators, two lakes, the sites of two nodes, and a partner that cheats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import trio
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from msg_node.settings.tables.exchange import ExchangePartner, ExchangeSettings
from msg_node.settings.tables.listeners import SiteSettings
from msg_node.site.partner_inbox import PartnerInbox
from msg_node.site.site import Site
from pipeline.jobs import partners
from pipeline.jobs.partners import Exchanging
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.tables import Lake
from pipeline.partners.extract_file import Header, write_extract
from pipeline.partners.settings import Exchange, Partner, UsageReports
from pipeline.schemas import PEER_EXTRACT, PEER_RETURN, RECON_CASE, TRAFFIC_HOURLY, USAGE_NAMED
from pipeline.serving.exchanging import report_usage
from protofly.signatures import SigningKey
from tests.pipeline.rows import DAY_US
from tests.pipeline.test_exchange import ALTERED, DAY, KEYS, LOST, A, B, lakes

pytestmark = [pytest.mark.spark, pytest.mark.endurance, pytest.mark.timeout(900)]

LATER = datetime(2026, 3, 4, 1, tzinfo=UTC).timestamp()
PEERS = {A: B, B: A}


@contextmanager
def site_of(domain: str, folder: Path) -> Iterator[str]:
    """The site of a node that takes files of the other domain; its URL."""
    key = KEYS[PEERS[domain]].record().pub
    settings = ExchangeSettings(partner=(ExchangePartner(domain=PEERS[domain], keys=(key,)),))
    started: Queue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = Queue()

    async def serve() -> None:
        site = Site(SiteSettings(port=0, insecure_plaintext=True))
        site.inbox = PartnerInbox(domain, settings, folder)
        async with trio.open_nursery() as nursery:
            await nursery.start(site.run)
            started.put((site.url, trio.lowlevel.current_trio_token(), nursery.cancel_scope))

    thread = Thread(target=trio.run, args=(serve,))
    thread.start()
    url, token, scope = started.get(timeout=60)
    try:
        yield url
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join()


class Operator:
    """One of the two: its lake, and what its settings say."""

    def __init__(self, domain: str, lake: Lake, folder: Path, **partner: Any) -> None:
        self.domain = domain
        self.lake = lake
        self.folder = folder
        peer = PEERS[domain]
        other = SigningKey.from_seed("other", b"x" * 32).record().pub
        usual: dict[str, Any] = {"url": "http://127.0.0.1:1", "keys": (other, KEYS[peer].record().pub)}
        self.what = Exchanging(
            settings=Exchange(domain=domain, key="", folder=str(folder / "exchange"), inbox=str(folder / "in")),
            partners=[Partner(domain=peer, **(usual | partner))],
            key=KEYS[domain],
            clock=lambda: LATER,
        )
        traffic = {"our_domain": domain, "src_domain": A, "dst_domain": B, "role": "out", "dt": DAY}
        lake.commit(pa.Table.from_pylist([traffic], to_arrow_schema(TRAFFIC_HOURLY.schema)), TRAFFIC_HOURLY)

    def round(self, url: str = "") -> JobResult:
        """One round, with the partner's site at a URL."""
        if url:
            [partner] = self.what.partners
            self.what = replace(self.what, partners=[msgspec.structs.replace(partner, url=url)])
        return partners.run(self.lake, self.what)

    def waiting(self) -> list[str]:
        """Names of files that wait for the partner."""
        return sorted(path.name for path in (self.folder / "exchange/out" / PEERS[self.domain]).glob("2*"))

    def cases(self) -> Counter[str]:
        """Cases by class."""
        return Counter(row["case_class"] for row in self.lake.read_small(RECON_CASE, ("case_class",)).to_pylist())

    def returns(self) -> list[dict[str, Any]]:
        """Everything that was returned, by either."""
        return self.lake.read_small(PEER_RETURN).to_pylist() if self.lake.has(PEER_RETURN) else []


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path) -> dict[str, Operator]:
    found = lakes(spark, tmp_path)
    return {domain: Operator(domain, found[domain], tmp_path / f"of-{domain}") for domain in (A, B)}


def test_two_operators_reconcile_a_day_by_rounds_and_return_what_they_do_not_accept(both: dict[str, Operator]) -> None:
    a, b = both[A], both[B]
    first = a.round()  # nobody is there yet
    assert (first.exit_code, a.waiting()) == (ExitCode.INCOMPLETE, [f"{DAY}.totals"])
    with site_of(A, a.folder / "in") as at_a, site_of(B, b.folder / "in") as at_b:
        done: dict[str, list[str]] = {A: [], B: []}
        for _ in range(2):
            for one, url in ((a, at_b), (b, at_a)):
                result = one.round(url)
                done[one.domain] += result.details["partners"][PEERS[one.domain]]["reconciled"]
        last = [a.round(at_b).rows, b.round(at_a).rows]
    assert done == {A: [DAY], B: [DAY]}
    assert a.cases() == b.cases() == Counter(lost=1, orphan=1, altered=1)
    assert (a.waiting(), b.waiting()) == ([], [])
    assert last == [{"peer_return": 3}, {}], "only the partner's return is new; the rest is not done again"
    for one in (a, b):
        peer = PEERS[one.domain]
        by = {(row["domain"], int.from_bytes(row["msg_id"][-4:], "big"), row["reason"]) for row in one.returns()}
        assert (one.domain, ALTERED, "altered") in by
        assert (peer, ALTERED, "altered") in by, "what the partner returned is here, too"
    sent = [row for row in a.returns() if row["domain"] == B and row["reason"] == "lost"]
    assert [(int.from_bytes(row["msg_id"][-4:], "big"), row["role"]) for row in sent] == [(LOST, "out")]


def test_files_that_cannot_be_taken_are_returned_with_the_reason_and_bounded(both: dict[str, Operator]) -> None:
    a = both[A]
    inbox = a.folder / "in" / B
    inbox.mkdir(parents=True)
    for name in (f"{DAY}.totals", f"{DAY}.details", "2020-01-01.totals", "other", "usage-1.report"):
        (inbox / name).write_bytes(b"nonsense")
    with site_of(B, both[B].folder / "in") as at_b:
        codes = [a.round(at_b).exit_code for _ in range(4)]
    assert codes == [ExitCode.INCOMPLETE] * 3 + [ExitCode.FINE], "after a refusal the rest waits for the next round"
    assert [path.name for path in inbox.iterdir()] == ["refused"]
    assert {(row["file"], row["reason"]) for row in a.returns()} == {
        (f"{DAY}.totals", "not-an-extract"),
        (f"{DAY}.details", "not-an-extract"),
    }
    assert not a.lake.has(PEER_EXTRACT) or {row["domain"] for row in a.lake.read_small(PEER_EXTRACT).to_pylist()} == {A}
    b = both[B]
    refused = b.round()
    assert any("has refused" in line for line in refused.warnings)
    returned = {(row["domain"], row["file"]) for row in b.returns()}
    assert returned == {(A, f"{DAY}.totals"), (A, f"{DAY}.details")}


def test_a_partner_whose_files_take_long_has_the_rest_taken_in_later_rounds(
    both: dict[str, Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partners, "TAKE_SECONDS", 0.0)
    inbox = both[A].folder / "in" / B
    inbox.mkdir(parents=True)
    days = both[A].what.days[:3]
    header = Header(
        step="totals", domain=B, peer=A, day="", created_us=1, books_version=1, complete_from_us=0, complete_until_us=0,
        holes=[], proof="", rows=0, raw_bytes=0, body_bytes=0, body_sha256="0" * 64, key_id="",
    )  # fmt: skip
    for day in days:
        write_extract(inbox / f"{day}.totals", msgspec.structs.replace(header, day=day), [], KEYS[B])
    left = []
    for _ in days:
        both[A].round()
        left.append(sum(path.is_file() for path in inbox.iterdir()))
    assert left == [2, 1, 0]
    taken = both[A].lake.read_small(PEER_EXTRACT).to_pylist()
    assert sorted(row["day"] for row in taken if row["domain"] == B) == days


def test_high_users_are_reported_once_in_a_period_and_found_by_their_operator(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = lakes(spark, tmp_path)
    a = Operator(A, found[A], tmp_path / "a", usage=UsageReports(hours=48, messages=5))
    b = Operator(B, found[B], tmp_path / "b", extracts=False)
    # The records are of that day, so the hours before now are, too.
    at_noon = replace(a.what, clock=lambda: LATER - DAY_US / 2e6)
    first, second = report_usage(a.lake, at_noon), report_usage(a.lake, at_noon)
    assert (first.findings, second.findings) == (1, 0)
    with site_of(B, b.folder / "in") as at_b:
        a.round(at_b)
    result = b.round()
    assert result.findings == 1
    [named] = b.lake.read_small(USAGE_NAMED).to_pylist()
    assert (named["domain"], named["peer"], named["messages"] >= 5) == (A, B, True)
    assert named["src_key"]
