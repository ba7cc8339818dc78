"""Commands about bills: to make them, to check a partner's, and to return and take back what is not accepted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.option_groups import grouped
from pipeline.cli.options import Domain, Json, Location, SparkOptions, place
from pipeline.cli.runs import errors_reported, one_job
from pipeline.cli.terminal import Terminal
from protofly.errors import SettingsError

if TYPE_CHECKING:
    from pipeline.jobs.result import JobResult
    from pipeline.jobs.their_bill import Agreed
    from pipeline.lake.tables import Lake
    from pipeline.partners.bill_return_file import BillReturn
    from protofly.signatures import SigningKey

PeerKey = Annotated[str, typer.Option(help="Public key of the partner (base64url), received separately from the file.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledMonth:
    """Options that say which month with whom is billed, and by what."""

    peer: Annotated[str, typer.Option(help="Domain of the partner.")]
    month: Annotated[str, typer.Option(help="Month, YYYY-MM.")]
    tariffs: Annotated[Path, typer.Option(metavar="FILE", help="Tariffs: a TOML file.")]
    zone: Annotated[str, typer.Option(help="Zone whose midnights cut the month, such as Europe/Berlin.")] = "UTC"
    domain: Domain = ""


@grouped
def invoice(
    spark: SparkOptions,
    of: BilledMonth,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON file for what is issued.")] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Our private Ed25519 key (PEM), to sign that file.")
    ] = None,
    reprice: Annotated[
        bool, typer.Option("--reprice", help="Bill again by a tariff that says something else now.")
    ] = False,
) -> None:
    """Bill a month whose statements are signed off, or issue the notes that restatements and concessions call for."""
    with errors_reported(as_json=spark.json):
        from pipeline.cli.zones import zone_of
        from pipeline.partners.keys import load_signing_key
        from pipeline.partners.tariff_file import load_tariffs

        if key is not None and out is None:
            raise SettingsError("--key signs the file that --out names")
        signing_key = None if key is None else load_signing_key(key)
        tariffs = load_tariffs(of.tariffs)
        zone = zone_of(of.zone)

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import invoice as job
        from pipeline.jobs.exchange import own_domain

        month = job.billed(own_domain(opened, of.domain), of.peer, of.month, (of.zone, zone))
        return job.run(opened, month, tariffs, out=out, key=signing_key, reprices=reprice)

    one_job("invoice", spark, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """Options that say whose file it is."""

    domain: Annotated[str, typer.Option(help="Our domain.")]
    peer: Annotated[str, typer.Option(help="Domain of the partner.")]
    peer_key: PeerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class OurSide:
    """Options that say what a bill is held against."""

    lake: Annotated[
        Location | None,
        typer.Option(metavar="DIR", help="Our lake: compare the bill with what we have counted.", parser=place),
    ] = None
    tariffs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Tariffs as agreed, from our side: the TOML file of `invoice`.")
    ] = None
    allowed_percent: Annotated[
        str, typer.Option(help="Difference of a count that is no reason to object, in percent of ours.")
    ] = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Options about the return to the partner."""

    return_: Annotated[
        Path | None, typer.Option("--return", metavar="FILE", help="Signed return to write, when there are objections.")
    ] = None
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Our private Ed25519 key (PEM), to sign it.")] = None
    why: Annotated[str, typer.Option(help="Return the bill for this reason, whatever the figures say.")] = ""


@grouped
def bill_of_theirs(
    files: Annotated[
        list[Path], typer.Argument(help="Signed bill of the partner; with a note, the bills before it of that month.")
    ],
    between: Between,
    ours: OurSide,
    answer: Answer,
    json: Json = False,
) -> None:
    """Verify a partner's bill, compare it with our own records (--lake), and return objections. Needs no Spark."""
    terminal = Terminal(as_json=json)
    with errors_reported(as_json=json):
        from pipeline.jobs import their_bill as job

        agreed, key = _agreed(between, ours), _answering_key(answer)
        try:
            documents = job.read_documents(files, agreed)
        except SettingsError as exc:
            if answer.return_ is not None and key is not None and (refused := job.refused_file(files, exc)):
                job.write_return(refused, answer.return_, agreed, key=key)
            raise
        result = terminal.job("bill", lambda: _checked(documents, agreed, ours, answer.why))
        if answer.return_ is not None and key is not None and result.findings:
            job.write_return(job.returned(files, result), answer.return_, agreed, key=key)
    if not json:
        sys.stdout.write(bill_text(result.details))
    terminal.end(**({} if not result.findings or answer.return_ is None else {"return": str(answer.return_)}))


def _agreed(between: Between, ours: OurSide) -> Agreed:
    """Between whom, and by what. Raises SettingsError."""
    from pipeline.jobs.their_bill import Agreed
    from pipeline.partners.keys import public_key
    from pipeline.partners.tariff_file import load_tariffs

    if (ours.lake is None) != (ours.tariffs is None):
        raise SettingsError("to compare a bill with our records name both --lake and --tariffs")
    try:
        percent = Fraction(ours.allowed_percent)
    except (ValueError, ZeroDivisionError):
        percent = Fraction(-1)
    if not 0 <= percent <= 100:
        raise SettingsError(f"--allowed-percent {ours.allowed_percent} is no number from 0 to 100")
    return Agreed(
        domain=between.domain,
        peer=between.peer,
        peer_key=public_key(between.peer_key),
        tariffs=() if ours.tariffs is None else load_tariffs(ours.tariffs),
        allowed=percent / 100,
    )


def _answering_key(answer: Answer) -> SigningKey | None:
    """Our key, if there is something to sign. Raises SettingsError."""
    from pipeline.partners.keys import load_signing_key

    if (answer.return_ is None) != (answer.key is None):
        raise SettingsError("--key signs the return that --return names: give both, or neither")
    if answer.why and answer.key is None:
        raise SettingsError("--why is the reason of a return: name its file with --return, and --key")
    return None if answer.key is None else load_signing_key(answer.key)


def _checked(documents: Sequence[dict[str, Any]], agreed: Agreed, ours: OurSide, why: str) -> JobResult:
    """What is wrong with the bill: by our records, and for a reason of ours."""
    from pipeline.cli.zones import zone_of
    from pipeline.core.business_time import BusinessDays, month_days
    from pipeline.jobs import their_bill as job
    from pipeline.jobs.result import JobResult
    from pipeline.lake.lake_files import LakeFiles

    if ours.lake is None:
        result = JobResult(job.APP, outcome="signed by the partner, and adds up", details={"objections": []})
    else:
        month, zone = job.month_of(documents)
        days = BusinessDays(*month_days(month), zone_of(zone))
        result = job.check(LakeFiles.of(ours.lake), documents, days, agreed)
    result.details["documents"] = documents
    if why:
        job.dispute(result, why)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedBy:
    """Options that say who has returned a bill of ours."""

    peer: Annotated[str, typer.Option(help="Domain of the partner.")]
    peer_key: PeerKey
    domain: Domain = ""

    def reader(self, file: Path) -> Callable[[Lake], BillReturn]:
        """Make the reader of the file that the partner returned; it takes the lake, which knows our domain.

        Raises:
            SettingsError: The partner's key cannot be used.
        """
        from pipeline.jobs.exchange import own_domain
        from pipeline.partners.bill_return_file import BILL_RETURN_FORMAT
        from pipeline.partners.keys import public_key

        trusted = public_key(self.peer_key)

        def read(lake: Lake) -> BillReturn:
            return BILL_RETURN_FORMAT.read(file, peer_key=trusted, domain=own_domain(lake, self.domain), peer=self.peer)

        return read


@grouped
def bill_returned(
    file: Annotated[Path, typer.Argument(help="Return of the partner.")], spark: SparkOptions, by: ReturnedBy
) -> None:
    """Import a partner's return of our bill: the documents and the reasons."""
    with errors_reported(as_json=spark.json):
        read = by.reader(file)

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import their_bill as job

        result = job.take_return(opened, read(opened))
        result.warnings += objection_lines(result.details)
        return result

    one_job("bill", spark, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conceded:
    """Options that say what of a return is conceded, and why."""

    why: Annotated[str, typer.Option(help="Reason; it is kept with the account that runs the command.")]
    number: Annotated[str, typer.Option(help="Only this document.")] = ""
    counted: Annotated[str, typer.Option(help="Only lines that count this, such as `delivered`.")] = ""
    quantity: Annotated[int | None, typer.Option(help="So much of one line. Default: all that is not accepted.")] = None


@grouped
def bill_concede(
    file: Annotated[Path, typer.Argument(help="Return of the partner.")],
    spark: SparkOptions,
    by: ReturnedBy,
    conceded: Conceded,
) -> None:
    """Concede what a partner has returned of our bills, wholly or in part; `invoice` then issues the credit note."""
    with errors_reported(as_json=spark.json):
        read = by.reader(file)

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import concede as job

        part = job.Part(number=conceded.number, counted=conceded.counted, quantity=conceded.quantity)
        return job.run(opened, read(opened), part, why=conceded.why)

    one_job("concede", spark, work)


def bill_text(details: Mapping[str, Any]) -> str:
    """Documents and objections for people, a line each."""
    from pipeline.core.bills import document_line
    from pipeline.core.harmless import harmless

    lines = [*map(document_line, details["documents"]), *objection_lines(details)]
    return "".join(harmless(line) + "\n" for line in lines)


def objection_lines(details: Mapping[str, Any]) -> list[str]:
    """Objections for people."""
    from pipeline.core.bills import objection_line

    return [objection_line(one) for one in details["objections"]]
