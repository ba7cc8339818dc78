"""Job `bill`: a partner's bill held against our own records; what is returned to it, and what it returns to us."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.bill_check import Objection, OurSide, objections, unchecked, uncorrected
from pipeline.core.business_time import BusinessDays
from pipeline.core.tariffs import Tariff
from pipeline.core.utc_days import day_of
from pipeline.jobs.business import exchanged, open_line
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake import durable
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.tables import Lake
from pipeline.partners.bill_file import read_bill
from pipeline.partners.bill_return_file import BILL_RETURN_FORMAT, OBJECTIONS_MAX, BillObjection, BillReturn
from pipeline.partners.statements import partner_of, plain_statement
from pipeline.schemas import INVOICE, PEER_RETURN
from protofly.errors import SettingsError
from protofly.signatures import KeyRecord, SigningKey

APP: Final = "bill"
_REFUSED: Final = re.compile(r": (bad-signature|malformed|wrong-domain): (.*)", re.DOTALL)
"""Verdicts on a file that its author should hear of."""
_DETAIL_CHARS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """Between whom, and by what: `tariffs` are from our side, `allowed` as `OurSide` has it."""

    domain: str
    peer: str
    peer_key: KeyRecord
    tariffs: Sequence[Tariff]
    allowed: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Returned:
    """Hashes of files, and what is wrong with them."""

    sha256: tuple[str, ...]
    objections: tuple[BillObjection, ...]


def read_documents(files: Sequence[Path], agreed: Agreed) -> list[dict[str, Any]]:
    """The documents of a partner's bills, those that are in several once. Raises SettingsError as `read_bill` does."""
    found: dict[str, dict[str, Any]] = {}
    for path in files:
        bill = read_bill(path, peer_key=agreed.peer_key, domain=agreed.domain, peer=agreed.peer)
        for one in bill.documents:
            document: dict[str, Any] = msgspec.to_builtins(one)
            found[str(document)] = document
    return list(found.values())


def month_of(documents: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The month that all documents are of, and the name of its zone. Raises SettingsError: there are several."""
    found = sorted({(one["month"], one["zone"]) for one in documents})
    if len(found) > 1:
        raise SettingsError(
            f"these are bills of {found[0][0]} and {found[-1][0]}: check the files of one month together"
        )
    return found[0]


def check(lake: LakeFiles, documents: Sequence[Mapping[str, Any]], days: BusinessDays, agreed: Agreed) -> JobResult:
    """Hold all that a partner has billed for a month against our records.

    `details` has `objections`, as `BillObjection` has them.

    Args:
        lake: Reads statements and hours.
        documents: As `BillDocument` has them, of one month.
        days: Of that month.
        agreed: Between whom, and by what.

    Returns:
        Ends with FINDINGS when there is something to object to, with INCOMPLETE when our own days are not signed off,
        or an invoice that is corrected is not among the documents; then nothing was compared.

    Raises:
        SettingsError: A day without a tariff.
        LakeError: As the lake does.
    """
    result = JobResult(APP, details={"objections": []})
    found = exchanged(lake, days, agreed.domain)
    missing = uncorrected(documents)
    if missing:
        result.warnings.append(f"{missing[0]} is corrected and is not here: name its file, too")
    if found.open_days:
        result.warnings.append(f"our own days are not signed off yet: {open_line(found)}")
    result.warnings += found.changed
    if result.warnings:
        result.exit_code = ExitCode.INCOMPLETE
        result.outcome = "not compared"
        return result
    ours = [plain_statement(row) for row in found.days.to_pylist() if partner_of(row) == agreed.peer]
    side = OurSide(agreed.domain, agreed.peer, ours, agreed.tariffs, agreed.allowed)
    result.outcome = "agrees with our records"
    object_to(result, objections(documents, side))
    if count := unchecked(documents):
        result.warnings.append(f"{count:,} lines count bytes on the partner's own bus, which nobody else can count")
    return result


def object_to(result: JobResult, found: Sequence[Objection]) -> None:
    """Enter objections into a result."""
    entered = [one._replace(detail=one.detail[:_DETAIL_CHARS])._asdict() for one in found]
    result.details["objections"] = [*result.details.get("objections", ()), *entered]
    result.findings = len(result.details["objections"])
    if result.findings:
        result.outcome = "not accepted"
        result.exit_code = max(result.exit_code, ExitCode.FINDINGS)


def dispute(result: JobResult, why: str) -> None:
    """Object to all documents for a reason in words."""
    object_to(result, [Objection(one["number"], "disputed", why) for one in result.details["documents"]])


def returned(files: Sequence[Path], result: JobResult) -> Returned:
    """Make the content of a return from the result of a check. Raises OSError."""
    said = tuple(msgspec.convert(one, BillObjection) for one in result.details["objections"][:OBJECTIONS_MAX])
    return Returned(tuple(map(_hash, files)), said)


def refused_file(files: Sequence[Path], exc: SettingsError) -> Returned | None:
    """Make the content of a return for a file that was refused as a whole; None if the fault is not its author's.

    Raises:
        OSError: It cannot be read.
    """
    for path in files:
        found = _REFUSED.fullmatch(exc.detail.removeprefix(str(path)))
        if exc.detail.startswith(f"{path}: ") and found is not None:
            return Returned(
                (_hash(path),), (BillObjection(number="", reason=found[1], detail=found[2][:_DETAIL_CHARS]),)
            )
    return None


def write_return(what: Returned, out: Path, agreed: Agreed, *, key: SigningKey) -> None:
    """Write what is returned to the partner, replacing an older file as a whole. Raises OSError."""
    made_us = time.time_ns() // 1000
    file = BillReturn(
        domain=agreed.domain, peer=agreed.peer, made_us=made_us, sha256=what.sha256, objections=what.objections
    )
    durable.replace(out, BILL_RETURN_FORMAT.encode(file, key))


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def take_return(lake: Lake, what: BillReturn) -> JobResult:
    """Note what a partner has returned of our bills, and say which documents are meant.

    `details` has `objections`.

    Args:
        lake: Reads `invoice`; writes `peer_return`.
        what: As the partner has signed it.

    Returns:
        Ends with FINDINGS, since somebody has to answer.

    Raises:
        SettingsError: It is about a document that we have not issued.
        LakeError: As the lake does.
    """
    result = JobResult(APP, details={"objections": []})
    named = {one.number for one in what.objections if one.number}
    invoices = lake.read_small(INVOICE, ("number", "our_domain", "peer_domain"))
    issued = {
        row["number"]
        for row in invoices.to_pylist()
        if (row["our_domain"], row["peer_domain"]) == (what.peer, what.domain)
    }
    if strange := sorted(named - issued):
        raise SettingsError(
            f"unknown-number: we have issued no {strange[0]} for {what.domain}; ask for the right number"
        )
    object_to(result, [Objection(**msgspec.to_builtins(one)) for one in what.objections])
    result.outcome = f"{what.domain} does not accept {', '.join(sorted(named)) or 'a file'}"
    known = lake.read_small(PEER_RETURN, ("domain", "peer", "made_us"))
    if {"domain": what.domain, "peer": what.peer, "made_us": what.made_us} in known.to_pylist():
        return result
    now_us = time.time_ns() // 1000
    rows = [_row(what, one, now_us) for one in what.objections]
    done = lake.commit(pa.Table.from_pylist(rows, to_arrow_schema(PEER_RETURN.schema)), PEER_RETURN)
    result.wrote(done.table, done.rows, done.version)
    return result


def _row(what: BillReturn, one: BillObjection, now_us: int) -> dict[str, Any]:
    counts = "" if one.quantity is None else f": {one.quantity:,} billed"
    counts += "" if one.ours is None else f", {one.ours:,} by the records of {what.domain}"
    return {
        "domain": what.domain,
        "peer": what.peer,
        "entered_us": now_us,
        "file": one.number or "a bill",
        "sha256": what.sha256[0],
        "reason": one.reason,
        "detail": f"{one.detail}{counts}",
        "made_us": what.made_us,
        "dt": day_of(now_us),  # the partner's clock may say anything
    }
