"""Job `invoice`: a month with a partner, by tariffs; and what to correct when statements were restated since.

Nothing that was issued changes. What a month costs by the newest statements and by what was conceded, less all that was
issued for it, is the next document: an invoice, then credit notes and debit notes. So it may run as often as one likes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.bills import document_line
from pipeline.core.business_time import BusinessDays, month_days
from pipeline.core.concessions import after_concessions
from pipeline.core.tariffs import Charge, Item, Tariff, charges
from pipeline.jobs.business import Exchanged, exchanged, open_line
from pipeline.jobs.concede import conceded
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake import durable
from pipeline.lake.table_log import ConflictError
from pipeline.lake.tables import Change, Commit, Lake
from pipeline.partners.bill_file import BILL_FORMAT, Bill, BillDocument
from pipeline.partners.statements import partner_of
from pipeline.schemas import INVOICE
from protofly.errors import SettingsError
from protofly.signatures import SigningKey

APP: Final = "invoice"
_ITEM: Final = Item._fields


@dataclass(frozen=True, slots=True)
class Billed:
    """Month and partner of an invoice; `zone` is the name of the days' zone."""

    our_domain: str
    peer: str
    month: str
    days: BusinessDays
    zone: str

    @property
    def txn(self) -> str:
        """The name under which its documents are counted."""
        return f"{APP}/{self.our_domain}/{self.peer}/{self.month}"


def billed(our_domain: str, peer: str, month: str, days_zone: tuple[str, Any]) -> Billed:
    """A month with a partner. Raises SettingsError.

    Args:
        our_domain: Who settles.
        peer: With whom.
        month: `YYYY-MM`.
        days_zone: The zone's name, and the zone.
    """
    name, zone = days_zone
    return Billed(our_domain, peer, month, BusinessDays(*month_days(month), zone), name)


def run(
    lake: Lake,
    of: Billed,
    tariffs: Sequence[Tariff],
    *,
    out: Path | None = None,
    key: SigningKey | None = None,
    reprices: bool = False,
) -> JobResult:
    """Issue what is to be issued for a month, if its statements are signed off.

    `details` has `documents`, issued now, and `issued`, all that were issued for the month before.

    Args:
        lake: Reads statements, hours and concessions; writes `invoice`.
        of: Which month.
        tariffs: As `read_tariffs` gives them.
        out: A JSON file for the new documents, replaced as a whole; without any, those that were issued last are in it,
            so that an issue that was cut off before it wrote its file is completed.
        key: Signs that file, which then is one of `pipeline.partners.bill_file`.
        reprices: Bill a month again by a tariff that says something else than when it was billed.

    Returns:
        Ends with FINDINGS when records have changed since they were signed off, with INCOMPLETE when days of the month
        are drafts or not settled; then nothing is issued.

    Raises:
        SettingsError: A day without a tariff, a tariff that has changed, or another zone than before.
        ConflictError: The same month was billed at the same moment.
        LakeError: As the lake does.
        OSError: The file cannot be written.
    """
    result = JobResult(APP)
    before = _issued(lake, of)
    _check_zone(before, of)
    before = [row for row in before if row["month"] == of.month]
    result.details = {"documents": [], "issued": _documents(before)}
    found = exchanged(lake, of.days, of.our_domain)
    result.outcome = "nothing issued"
    if not _is_signed_off(found, of, result):
        return result
    days = [row for row in found.days.to_pylist() if partner_of(row) == of.peer]
    hashes = {one.id: one.sha256 for one in tariffs}
    common = {"statements": list(found.versions.items()), "issued_us": time.time_ns() // 1000}
    due = after_concessions(charges(days, tariffs, of.peer), conceded(lake, of.our_domain, of.peer, of.month))
    rows = [row | common for row in _rows(of, due, before, hashes)]
    if rows and not reprices:
        _check_tariffs(before, hashes, of)
    if rows:
        commit = _commit(lake, of, rows, len(result.details["issued"]))
        result.wrote(commit.table, commit.rows, commit.version)
    documents = _documents(rows)
    result.details["documents"] = documents
    if documents:
        result.outcome = "; ".join(map(document_line, documents))
    newest = documents or _issued_last(result.details["issued"])
    if newest and out is not None:
        durable.replace(out, _content(of, newest, key))
        result.details["out"] = str(out.absolute())
    return result


def _is_signed_off(found: Exchanged, of: Billed, result: JobResult) -> bool:
    """True if the month can be billed; if not, the result says why."""
    if found.changed:
        result.warnings += found.changed
        result.findings = len(found.changed)
        result.exit_code = ExitCode.FINDINGS
    elif found.open_days:
        result.warnings.append(f"{of.month} in {of.zone} is not signed off yet: {open_line(found)}")
        result.exit_code = ExitCode.INCOMPLETE
    return not found.changed and not found.open_days


def _content(of: Billed, documents: Sequence[Mapping[str, Any]], key: SigningKey | None) -> bytes:
    if key is None:
        return msgspec.json.encode(documents, order="sorted") + b"\n"
    made = msgspec.convert(documents, tuple[BillDocument, ...])
    # The same documents give the same bytes, also when they are written again.
    made_us = documents[0]["issued_us"]
    return BILL_FORMAT.encode(Bill(domain=of.our_domain, peer=of.peer, made_us=made_us, documents=made), key)


def _issued_last(documents: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of the newest issue, which is one commit."""
    newest_us = max((one["issued_us"] for one in documents), default=0)
    return [one for one in documents if one["issued_us"] == newest_us]


def _issued(lake: Lake, of: Billed) -> list[dict[str, Any]]:
    """Lines of all that was ever issued between the two."""
    rows = lake.read_small(INVOICE)
    is_ours = pc.and_(pc.equal(rows.column("our_domain"), of.our_domain), pc.equal(rows.column("peer_domain"), of.peer))
    found: list[dict[str, Any]] = rows.filter(is_ours).to_pylist()
    return sorted(found, key=lambda row: (row["issued_us"], row["number"], row["item"]))


def _check_zone(issued: Iterable[Mapping[str, Any]], of: Billed) -> None:
    others = sorted({row["zone"] for row in issued} - {of.zone})
    if others:
        raise SettingsError(
            f"months with {of.peer} were billed in {others[0]}: in {of.zone} hours would be "
            f"billed twice, or never; give --zone {others[0]}"
        )


def _check_tariffs(before: Sequence[Mapping[str, Any]], hashes: Mapping[str, str], of: Billed) -> None:
    """Refuse to correct a month by tariffs that say something else than when it was billed last.

    What was credited in full does not count: no price of it is in force any more. Raises SettingsError.
    """
    standing = {item.tariff for item, charge in _said(before).items() if charge != Charge()}
    newest = {row["tariff"]: row["tariff_sha256"] for row in before}
    changed = sorted(name for name in standing if hashes.get(name) != newest[name])
    if changed:
        raise SettingsError(
            f"{of.month} was billed by tariff {changed[0]}, which is another one now: give new prices a name and days "
            "of their own, or bill the month again with --reprice"
        )


def _item(row: Mapping[str, Any]) -> Item:
    return Item(*(row[name] for name in _ITEM))


def _said(before: Iterable[Mapping[str, Any]]) -> Mapping[Item, Charge]:
    """All that was issued, added up by item."""
    said = defaultdict[Item, Charge](Charge)
    for row in before:
        item = _item(row)
        said[item] = Charge(said[item].quantity + row["quantity"], said[item].amount + row["amount"])
    return said


def _commit(lake: Lake, of: Billed, rows: Sequence[Mapping[str, Any]], before: int) -> Commit:
    """Enter lines of new documents, behind so many that are there."""
    count = before + len({row["number"] for row in rows})
    done = lake.commit(
        pa.Table.from_pylist(list(rows), to_arrow_schema(INVOICE.schema)), INVOICE, Change(txn=(of.txn, count))
    )
    if done.is_repeated:
        raise ConflictError(f"{of.month} with {of.peer} was billed by another command at the same moment: repeat it")
    return done


def _rows(
    of: Billed, now: Mapping[Item, Charge], before: Sequence[Mapping[str, Any]], hashes: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Lines of the documents that are due, without what is the same in all of them."""
    said = _said(before)
    old_hashes = {row["tariff"]: row["tariff_sha256"] for row in before}
    due = defaultdict[tuple[str, str], list[tuple[Item, Charge]]](list)
    for item in sorted(now.keys() | said.keys()):
        more = now.get(item, Charge()).less(said.get(item, Charge()))
        if more != Charge():
            due[item.currency, item.role].append((item, more))
    rows: list[dict[str, Any]] = []
    for (currency, role), lines in due.items():
        issuer, payer = (of.our_domain, of.peer) if role == "in" else (of.peer, of.our_domain)
        numbers = list(dict.fromkeys(row["number"] for row in before if row["issuer"] == issuer))
        mine = [row["number"] for row in before if (row["issuer"], row["currency"]) == (issuer, currency)]
        count = len(numbers) + len({row["number"] for row in rows if row["issuer"] == issuer}) + 1
        kind = "invoice" if not mine else "credit-note" if sum(more.amount for _, more in lines) < 0 else "debit-note"
        rows += [
            {
                "number": f"{issuer}-{payer}-{of.month}-{count}",
                "item": number,
                "kind": kind,
                "corrects": mine[0] if mine else "",
                "our_domain": of.our_domain,
                "peer_domain": of.peer,
                "issuer": issuer,
                "payer": payer,
                "month": of.month,
                "zone": of.zone,
                "tariff_sha256": hashes.get(item.tariff) or old_hashes[item.tariff],
                "quantity": more.quantity,
                "amount": more.amount,
                **item._asdict(),
            }
            for number, (item, more) in enumerate(lines, start=1)
        ]
    return rows


def _documents(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Lines by document, in their order, with their sum."""
    heads = ("number", "kind", "corrects", "issuer", "payer", "month", "zone", "currency", "issued_us")
    documents: dict[str, dict[str, Any]] = {}
    for row in rows:
        document = documents.setdefault(
            row["number"], {name: row[name] for name in heads} | {"statements": dict(row["statements"]), "lines": []}
        )
        document["lines"].append({name: row[name] for name in (*_ITEM, "tariff_sha256", "quantity", "amount")})
    return [one | {"amount": sum(line["amount"] for line in one["lines"])} for one in documents.values()]
