"""Bills between two operators: one bills, the other holds it against its records, returns it, and gets a note."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from pipeline.cli.billing import bill_text
from pipeline.cli.program import app
from pipeline.jobs import invoice, settle, their_bill
from pipeline.jobs.result import ExitCode
from pipeline.lake.tables import Change, Lake
from pipeline.partners.bill_return_file import BillObjection, BillReturn, read_bill_return
from pipeline.schemas import PEER_RETURN, SILVER_MDR
from protofly.errors import SettingsError
from protofly.signatures import SigningKey
from tests.pipeline.rows import DAY_US, HOUR_US, MONDAY_US, commit_ledger, silver, silver_row
from tests.pipeline.test_invoice import TARIFF, of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

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
"""What `TARIFF` says, from the side of b.example."""


def lake_of(domain: str, folder: Path, spark: SparkSession, sent: int) -> Lake:
    """What one of both recorded in March: so many messages from b to a, and two from a to b."""
    lake = Lake(folder, spark)
    node = f"runtime://{domain}/mn-1"
    own: dict[str, Any] = {"node": node, "our_domain": domain, "peer_domain": B if domain == A else A}
    to_a, to_b = ("in", "out") if domain == A else ("out", "in")
    rows = [silver_row(role=to_a, ts_us=FIRST_US + number, **own) for number in range(sent)]
    way = {"src_domain": A, "dst_domain": B}
    rows += [silver_row(role=to_b, ts_us=FIRST_US + 9 * DAY_US + number, **way, **own) for number in range(2)]
    lake.commit(silver(spark, rows), SILVER_MDR)
    segment = {
        "node": node,
        "kind": "mdr",
        "boot": 1,
        "segno": 1,
        "sha256": "hash",
        "prev_sha256": "",
        "lost_records": 0,
    }
    times = {"opened_us": FIRST_US - DAY_US, "closed_us": FIRST_US + 32 * DAY_US + HOUR_US, "verdict": "accepted"}
    commit_ledger(lake, [segment | times])
    settle.run(lake)
    return lake


class Desk:
    """Who receives bills: b.example, whose lake has three messages to a.example."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tariffs = folder / "tariffs.toml"
        self.tariffs.write_text(OURS)
        self.key = folder / "live.pem"
        self.key.write_bytes(KEYS[B].to_pem())
        self.key.chmod(0o600)
        self.returned = folder / "march.return"

    def check(self, *options: str) -> Result:
        names = ["--domain", B, "--peer", A, "--peer-key", KEYS[A].record().pub]
        return CliRunner().invoke(app, ["bill-of-theirs", *options, *names])

    def ours(self, allowed: str = "0") -> list[str]:
        side = ["--lake", str(self.folder / "b"), "--tariffs", str(self.tariffs), "--allowed-percent", allowed]
        return [*side, "--return", str(self.returned), "--key", str(self.key)]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Desk:
    folder = tmp_path_factory.mktemp("desk")
    lake_of(B, folder / "b", spark, 3)
    return Desk(folder)


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    """That of a.example, which has counted a fourth message."""
    return lake_of(A, tmp_path_factory.mktemp("author"), spark, 4)


@pytest.fixture(scope="module")
def march(author: Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bill of a.example for March."""
    path = tmp_path_factory.mktemp("bills") / "march.bill"
    invoice.run(author, of(), [TARIFF], out=path, key=KEYS[A])
    return path


def test_a_bill_is_returned_for_what_is_wrong_and_accepted_with_the_note_that_mends_it(
    author: Lake, march: Path, desk: Desk, tmp_path: Path
) -> None:
    bills = [march, tmp_path / "march-2.bill"]
    number = "a.example-b.example-2026-03-1"

    done = desk.check(str(bills[0]), *desk.ours())

    assert done.exit_code == ExitCode.FINDINGS, done.output
    assert f"{number}: quantity: delivered of what we sent, 0.5 EUR for 1; billed 4, we count 3" in done.stdout
    back = read_bill_return(desk.returned, peer_key=KEYS[B].record(), domain=A, peer=B)
    assert [(one.number, one.reason, one.quantity, one.ours) for one in back.objections] == [(number, "quantity", 4, 3)]

    taken = [their_bill.take_return(author, back) for _ in range(2)]

    assert [(one.exit_code, one.findings, one.rows) for one in taken] == [
        (ExitCode.FINDINGS, 1, {"peer_return": 1}),
        (ExitCode.FINDINGS, 1, {}),
    ]
    [row] = [one for one in author.read_small(PEER_RETURN).to_pylist() if one["file"] == number]
    assert (row["domain"], row["peer"], row["file"], row["reason"]) == (B, A, number, "quantity")
    assert row["detail"].endswith(": 4 billed, 3 by the records of b.example")

    kept = author.read(SILVER_MDR).where(f"ts_us <> {FIRST_US}").toArrow()
    author.commit(kept, SILVER_MDR, Change("overwrite"))
    settle.run(author, restate=True)
    note = invoice.run(author, of(), [TARIFF], out=bills[1], key=KEYS[A])
    assert [(one["kind"], one["amount"]) for one in note.details["documents"]] == [("credit-note", -50)]

    alone = desk.check(str(bills[1]), *desk.ours())
    assert alone.exit_code == ExitCode.INCOMPLETE
    assert f"{number} is corrected and is not here" in alone.output
    both = desk.check(*map(str, bills), *desk.ours())
    assert both.exit_code == ExitCode.FINE, both.output
    assert "agrees with our records" in both.stderr


def test_a_difference_that_was_agreed_on_is_no_reason_and_a_reason_in_words_is(march: Path, desk: Desk) -> None:
    bill = march
    assert desk.check(str(bill), *desk.ours(allowed="34")).exit_code == ExitCode.FINE
    assert desk.check(str(bill), *desk.ours(allowed="33")).exit_code == ExitCode.FINDINGS
    done = desk.check(str(bill), *desk.ours(allowed="34"), "--why", "the contract ended", "--json")
    assert done.exit_code == ExitCode.FINDINGS
    [job] = json.loads(done.stdout)["jobs"]
    assert {one["reason"] for one in job["details"]["objections"]} == {"disputed"}
    assert len(job["details"]["objections"]) == len(job["details"]["documents"]) == 2


def test_a_bill_that_was_changed_on_its_way_is_returned_as_a_file(
    author: Lake, march: Path, desk: Desk, tmp_path: Path
) -> None:
    bill = tmp_path / "march.bill"
    bill.write_bytes(march.read_bytes().replace(b'"quantity":4', b'"quantity":3'))
    done = desk.check(str(bill), *desk.ours())
    assert (done.exit_code, "bad-signature" in done.output) == (ExitCode.FAILURE, True)
    back = read_bill_return(desk.returned, peer_key=KEYS[B].record(), domain=A, peer=B)
    assert [(one.number, one.reason) for one in back.objections] == [("", "bad-signature")]
    taken = their_bill.take_return(author, back)
    assert taken.outcome == "b.example does not accept a file"


def test_a_return_of_a_document_that_was_never_issued_is_refused(author: Lake) -> None:
    strange = BillObjection(number="x-1", reason="quantity", detail="")
    what = BillReturn(domain=B, peer=A, made_us=1, sha256=("0" * 64,), objections=(strange,))
    with pytest.raises(SettingsError, match=r"unknown-number: we have issued no x-1 for b\.example"):
        their_bill.take_return(author, what)
    numbers = author.read_small(PEER_RETURN).column("file").to_pylist() if author.has(PEER_RETURN) else []
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
