"""Bills between two operators: one bills, the other holds it against its records, returns it, and gets a note."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from pipeline.cli.billing import bill_text
from pipeline.cli.program import app
from pipeline.jobs import settle, their_bill
from pipeline.jobs.result import ExitCode
from pipeline.lake.tables import Change, Lake
from pipeline.partners.bill_return_file import BILL_RETURN_FORMAT, BillObjection, BillReturn
from pipeline.schemas import CONCESSION, PEER_RETURN, SILVER_MDR
from protofly.errors import SettingsError
from protofly.signatures import SigningKey
from tests.pipeline.rows import DAY_US, HOUR_US, MONDAY_US, commit_ledger, silver, silver_row

pytestmark = pytest.mark.spark

A, B = "a.example", "b.example"
KEYS = {name: SigningKey.from_seed("live", name[0].encode() * 32) for name in (A, B)}
FIRST_US = MONDAY_US - DAY_US
OURS = """
[[tariff]]
id = "with-a"
peer = "a.example"
valid_from = 2026-01-01
currency = "EUR"
rate = [{ role = "out", counted = "delivered", price = "0.50" }, { role = "in", counted = "messages", price = "0.1" }]
"""
"""What a.example has agreed on, from the side of b.example."""
THEIRS = """
[[tariff]]
id = "b-2026"
peer = "b.example"
valid_from = 2026-01-01
currency = "EUR"
rate = [{ role = "in", counted = "delivered", price = "0.50" }, { role = "out", counted = "messages", price = "0.10" }]
"""


def recorded(domain: str, sent: int) -> list[dict[str, Any]]:
    """What one of both recorded in March: so many messages from b to a, and two from a to b."""
    own: dict[str, Any] = {"node": f"runtime://{domain}/mn-1", "our_domain": domain}
    own["peer_domain"] = B if domain == A else A
    to_a, to_b = ("in", "out") if domain == A else ("out", "in")
    rows = [silver_row(role=to_a, ts_us=FIRST_US + number, **own) for number in range(sent)]
    way = {"src_domain": A, "dst_domain": B}
    return rows + [silver_row(role=to_b, ts_us=FIRST_US + 9 * DAY_US + number, **way, **own) for number in range(2)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Lake]:
    """That of both, each with its own node: a.example has counted four messages of b.example, which counts three.

    The commands run in the Spark of all tests, and leave it running.
    """
    lake = Lake(tmp_path_factory.mktemp("both") / "lake", spark)
    lake.commit(silver(spark, [*recorded(A, 4), *recorded(B, 3)]), SILVER_MDR)
    segment = {"kind": "mdr", "boot": 1, "segno": 1, "sha256": "hash", "prev_sha256": "", "lost_records": 0}
    times = {"opened_us": FIRST_US - DAY_US, "closed_us": FIRST_US + 32 * DAY_US + HOUR_US, "verdict": "accepted"}
    commit_ledger(lake, [{"node": f"runtime://{domain}/mn-1"} | segment | times for domain in (A, B)])
    settle.run(lake)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark, "stop", lambda: None)
        patch.setattr("pipeline.spark.session.start_session", lambda *_, **__: spark)
        yield lake


class Desk:
    """Of one of both, with its key and its tariffs, and the commands that it runs."""

    def __init__(self, folder: Path, lake: Lake, domain: str, tariffs: str) -> None:
        self.lake = lake
        self.domain = domain
        self.peer = B if domain == A else A
        self.tariffs = folder / f"{domain}.toml"
        self.tariffs.write_text(tariffs)
        self.key = folder / f"{domain}.pem"
        self.key.write_bytes(KEYS[domain].to_pem())
        self.key.chmod(0o600)
        self.returned = folder / f"{domain}.return"

    def run(self, *words: object) -> Result:
        return CliRunner().invoke(app, [*map(str, words), "--domain", self.domain, "--peer", self.peer])

    def check(self, *options: object) -> Result:
        return self.run("bill-of-theirs", *options, "--peer-key", KEYS[self.peer].record().pub)

    def ours(self, allowed: str = "0") -> list[object]:
        side = ["--lake", self.lake.folder, "--tariffs", self.tariffs, "--allowed-percent", allowed]
        return [*side, "--return", self.returned, "--key", self.key]

    def bill(self, out: Path, *options: str) -> Result:
        of = ["--lake", self.lake.folder, "--month", "2026-03", "--tariffs", self.tariffs]
        return self.run("invoice", *of, "--out", out, "--key", self.key, "--json", *options)

    def answer(self, command: str, file: Path, *options: object) -> Result:
        of = ["--lake", self.lake.folder, "--peer-key", KEYS[self.peer].record().pub]
        return self.run(command, file, *of, "--json", *options)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, lake: Lake) -> Desk:
    """Who receives bills: b.example."""
    return Desk(tmp_path_factory.mktemp("desk"), lake, B, OURS)


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory, lake: Lake) -> Desk:
    """Who makes them."""
    return Desk(tmp_path_factory.mktemp("author"), lake, A, THEIRS)


@pytest.fixture(scope="module")
def march(author: Desk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bill of a.example for March."""
    path = tmp_path_factory.mktemp("bills") / "march.bill"
    done = author.bill(path)
    assert done.exit_code == ExitCode.FINE, done.output
    return path


def details(done: Result) -> dict[str, Any]:
    [job] = json.loads(done.stdout)["jobs"]
    found: dict[str, Any] = job["details"]
    return found


def issued(done: Result) -> list[tuple[str, str, int]]:
    assert done.exit_code == ExitCode.FINE, done.output
    return [(one["kind"], one["currency"], one["amount"]) for one in details(done)["documents"]]


def test_a_returned_count_is_conceded_credited_once_and_accepted(
    author: Desk, march: Path, desk: Desk, tmp_path: Path
) -> None:
    bills = [march, *(tmp_path / f"march-{number}.bill" for number in (2, 3))]
    number = "a.example-b.example-2026-03-1"

    done = desk.check(march, *desk.ours())

    assert done.exit_code == ExitCode.FINDINGS, done.output
    assert f"{number}: quantity: delivered of what we sent, 0.5 EUR for 1; billed 4, we count 3" in done.stdout
    back = BILL_RETURN_FORMAT.read(desk.returned, peer_key=KEYS[B].record(), domain=A, peer=B)
    assert [(one.number, one.reason, one.quantity, one.ours) for one in back.objections] == [(number, "quantity", 4, 3)]

    taken = [author.answer("bill-returned", desk.returned) for _ in range(2)]

    assert [one.exit_code for one in taken] == [ExitCode.FINDINGS] * 2
    [row] = [one for one in author.lake.read_small(PEER_RETURN).to_pylist() if one["file"] == number]
    assert (row["domain"], row["peer"], row["file"], row["reason"]) == (B, A, number, "quantity")
    assert row["detail"].endswith(": 4 billed, 3 by the records of b.example")

    conceded = author.answer("bill-concede", desk.returned, "--why", "theirs is right")

    assert conceded.exit_code == ExitCode.FINE, conceded.output
    [row] = author.lake.read_small(CONCESSION).to_pylist()
    assert (row["billed"], row["less"], row["price"], row["tariff"]) == (4, 1, "0.50", "b-2026")
    assert (row["why"], "@" in row["who"]) == ("theirs is right", True)
    assert issued(author.bill(bills[1])) == [("credit-note", "EUR", -50)]
    assert issued(author.bill(bills[1])) == []
    again = author.answer("bill-concede", desk.returned, "--why", "once more")
    assert (again.exit_code, "conceded-before" in again.output) == (ExitCode.FAILURE, True)
    assert len(author.lake.read_small(CONCESSION)) == 1

    alone = desk.check(bills[1], *desk.ours())
    assert alone.exit_code == ExitCode.INCOMPLETE
    assert f"{number} is corrected and is not here" in alone.output
    both = desk.check(*bills[:2], *desk.ours())
    assert both.exit_code == ExitCode.FINE, both.output
    assert "agrees with our records" in both.stderr

    # The message that was conceded turns out to be none: it was credited already.
    kept = author.lake.read(SILVER_MDR).where(f"not (ts_us = {FIRST_US} and our_domain = '{A}')").toArrow()
    author.lake.commit(kept, SILVER_MDR, Change("overwrite"))
    settle.run(author.lake, restate=True)
    assert issued(author.bill(bills[2])) == []
    author.tariffs.write_text(THEIRS.replace("0.50", "0.40"))
    assert issued(author.bill(bills[2], "--reprice")) == [("credit-note", "EUR", -30)]
    desk.tariffs.write_text(OURS.replace("0.50", "0.40"))
    repriced = desk.check(*bills, *desk.ours())
    desk.tariffs.write_text(OURS)
    assert repriced.exit_code == ExitCode.FINE, repriced.output


def test_a_difference_that_was_agreed_on_is_no_reason_and_a_reason_in_words_is(march: Path, desk: Desk) -> None:
    bill = march
    assert desk.check(bill, *desk.ours(allowed="34")).exit_code == ExitCode.FINE
    assert desk.check(bill, *desk.ours(allowed="33")).exit_code == ExitCode.FINDINGS
    done = desk.check(bill, *desk.ours(allowed="34"), "--why", "the contract ended", "--json")
    assert done.exit_code == ExitCode.FINDINGS
    [job] = json.loads(done.stdout)["jobs"]
    assert {one["reason"] for one in job["details"]["objections"]} == {"disputed"}
    assert len(job["details"]["objections"]) == len(job["details"]["documents"]) == 2


def test_a_bill_that_was_changed_on_its_way_is_returned_as_a_file(
    author: Desk, march: Path, desk: Desk, tmp_path: Path
) -> None:
    bill = tmp_path / "march.bill"
    bill.write_bytes(march.read_bytes().replace(b'"quantity":4', b'"quantity":3'))
    done = desk.check(bill, *desk.ours())
    assert (done.exit_code, "bad-signature" in done.output) == (ExitCode.FAILURE, True)
    back = BILL_RETURN_FORMAT.read(desk.returned, peer_key=KEYS[B].record(), domain=A, peer=B)
    assert [(one.number, one.reason) for one in back.objections] == [("", "bad-signature")]
    taken = their_bill.take_return(author.lake, back)
    assert taken.outcome == "b.example does not accept a file"


def test_a_return_of_a_document_that_was_never_issued_is_refused(author: Desk) -> None:
    strange = BillObjection(number="x-1", reason="quantity", detail="")
    what = BillReturn(domain=B, peer=A, made_us=1, sha256=("0" * 64,), objections=(strange,))
    with pytest.raises(SettingsError, match=r"unknown-number: we have issued no x-1 for b\.example"):
        their_bill.take_return(author.lake, what)
    numbers = author.lake.read_small(PEER_RETURN).column("file").to_pylist() if author.lake.has(PEER_RETURN) else []
    assert "x-1" not in numbers


def test_objections_are_shown_without_what_would_steer_a_terminal() -> None:
    one = {"number": "1", "reason": "disputed", "detail": "\x1b[2J", "quantity": None, "ours": 1}
    assert bill_text({"documents": [], "objections": [one]}) == "1: disputed: ·[2J, we count 1\n"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--return", "x"], "--key signs the return"),
        (["--why", "because"], "name its file with --return"),
        (["--lake", "x"], "name both --lake and --tariffs"),
        (["--allowed-percent", "x"], "no number from 0 to 100"),
        (["--allowed-percent", "101"], "no number from 0 to 100"),
    ],
)
def test_a_wrong_call_ends_with_2(tmp_path: Path, options: list[str], shown: str) -> None:
    names = ["--domain", B, "--peer", A, "--peer-key", KEYS[A].record().pub]
    done = CliRunner().invoke(app, ["bill-of-theirs", str(tmp_path / "bill"), *names, *options])
    assert (done.exit_code, shown in done.output) == (ExitCode.FAILURE, True), done.output


def test_bills_of_two_months_are_not_checked_together() -> None:
    with pytest.raises(SettingsError, match="bills of 2026-03 and 2026-04"):
        their_bill.month_of([{"month": f"2026-0{month}", "zone": "UTC"} for month in (3, 4)])
