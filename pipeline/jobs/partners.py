"""Job `partners`: the exchange of extracts with all partners, a round at a time; each round goes as far as it can.

For each partner: take in what it has handed over; for each day that has ended, export totals, then details once the
partner's totals are here, then reconcile once its details are; and hand over what waits. What was done is noted in the
lake for each day, by what it was made of, so a day is done again when its records have changed, and a round that was
killed is taken up by the next one. A file that cannot be taken is returned with the reason, and so are the records that
are not accepted.

One partner never stops the others, and what each may cost is bounded: files of a round, extracts and returns of a day.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import pyarrow.compute as pc

from pipeline.core.completeness import GRACE_S, NOTHING
from pipeline.core.harmless import harmless
from pipeline.core.utc_days import end_us
from pipeline.jobs import exchange, usage
from pipeline.jobs.proofs import proved_completeness
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.jobs.retention import kept_from
from pipeline.jobs.returns import note_return, times_returned, unaccepted, write_return
from pipeline.lake.day_state import done_inputs, inputs_by_day, note_done
from pipeline.lake.table_log import LakeError
from pipeline.lake.tables import Lake
from pipeline.partners.extract_file import ExtractError, ExtractFault
from pipeline.partners.folders import USAGE_FILE, PartnerFolders, day_and_step, keep
from pipeline.partners.post import NotTakenError, hand_over
from pipeline.partners.return_file import RETURN_FORMAT, Return, ReturnedFile
from pipeline.partners.settings import Exchange, Partner
from pipeline.partners.usage_file import read_usage
from pipeline.schemas import PEER_EXTRACT, SILVER_MDR, TRAFFIC_HOURLY
from pipeline.segments.content import failure, trace
from protofly.errors import HostError, SettingsError
from protofly.signatures import KeyRecord, SigningKey

APP: Final = "exchange"
FILES_A_ROUND: Final = 16
TAKE_SECONDS: Final = 30.0
"""For so long files of one partner are taken in a round; the one that is looked at then is the last."""
EXTRACTS_A_DAY: Final = 50
"""So many extracts of one day are taken from a partner."""
RETURNS_A_DAY: Final = 10
RETRIES: Final = 3
"""So often an extract is made anew because the partner has returned it."""
RAW_BYTES: Final = 256 << 20
"""An extract may unpack to so much."""
LATE_S: Final = 86_400.0
"""After so long a day is exchanged although our own records are not proved complete."""
_ANEW: Final = frozenset({ExtractFault.DAMAGED.code, ExtractFault.MISSING_STEP.code})
DELIVERIES: Final = 16
"""To so many partners files are handed over at once."""
_Found = TypeVar("_Found")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanging:
    """Terms of a round with partners.

    Attributes:
        settings: Who we are, with absolute paths.
        partners: With whom.
        key: Our private key.
        clock: Seconds since the Unix epoch.
    """

    settings: Exchange
    partners: Sequence[Partner]
    key: SigningKey
    clock: Callable[[], float] = time.time

    @property
    def days(self) -> list[str]:
        """The days that are exchanged now, the oldest first."""
        today = datetime.fromtimestamp(self.clock(), UTC).date()
        return [(today - timedelta(days=back)).isoformat() for back in range(self.settings.days, 0, -1)]


def run(lake: Lake, what: Exchanging) -> JobResult:
    """Go as far as possible with each partner.

    `details` has `partners`: by domain the number of files that wait for it, and its days that are reconciled.

    Args:
        lake: As the steps of `jobs.exchange`.
        what: Who and how.

    Returns:
        Ends with FINDINGS when a day has differences beyond what was agreed on, with INCOMPLETE when something could
        not be done with some partner; the next round tries it again.
    """
    result = JobResult(APP)
    rounds = [one for partner in what.partners if (one := _begun(lake, what, partner, result)) is not None]
    for one in rounds:
        for step in (one.take_in, one.exchange_days) if one.partner.extracts else (one.take_in,):
            _done(one.partner, step, result)
    # At once: a partner whose site is slow does not let the others wait.
    with ThreadPoolExecutor(max_workers=DELIVERIES) as pool:
        list(pool.map(lambda one: _done(one.partner, one.deliver, result), rounds))
    known = {one.partner.domain: {"waiting": one.waiting, "reconciled": one.reconciled} for one in rounds}
    result.details["partners"] = known
    done = sum(len(one.reconciled) for one in rounds)
    waiting = sum(one.waiting for one in rounds)
    result.outcome = f"partners {len(known):,}, days reconciled {done:,}, files that wait {waiting:,}"
    return result


def _begun(lake: Lake, what: Exchanging, partner: Partner, result: JobResult) -> _Round | None:
    """A round with a partner; None when its folders cannot be used."""
    try:
        return _Round(lake, what, partner, result)
    except OSError as exc:
        _warn(result, f"{partner.domain}: {exc}")
        return None


def _done(partner: Partner, step: Callable[[], None], result: JobResult) -> None:
    """Do a step with a partner; what goes wrong costs this one alone, and is tried again in the next round."""
    try:
        step()
    except (LakeError, ExtractError, HostError, OSError, MemoryError) as exc:
        _warn(result, f"{partner.domain}: {exc.detail if isinstance(exc, HostError) else exc}")
    except Exception as exc:  # a defect of ours, which a partner may have found
        _log.error("exchange with %s: %s", partner.domain, trace(exc))
        _warn(result, f"{partner.domain}: {failure(exc)}: a defect of this program; please report it")


def _warn(result: JobResult, text: str) -> None:
    result.warnings.append(harmless(text))
    result.exit_code = ExitCode.INCOMPLETE


@dataclass(frozen=True, slots=True)
class _Notes:
    """Notes on the exchange with one partner, by day, as the lake has them."""

    lake: Lake
    what: Exchanging
    peer: str

    def of(self, step: str) -> dict[str, str]:
        """For each day with which a step is done, what it was made of."""
        return done_inputs(self.lake, self._job(step))

    def put(self, step: str, day: str, input_: str) -> None:
        """Note that a step is done with a day; days that are not exchanged any more are forgotten."""
        days = set(self.what.days)
        whole = {one: text for one, text in self.of(step).items() if one in days} | {day: input_}
        note_done(self.lake, self._job(step), whole, is_all=True)

    def forget(self, step: str, day: str) -> None:
        """Have a step done anew."""
        known = self.of(step)
        if known.pop(day, None) is not None:
            note_done(self.lake, self._job(step), known, is_all=True)

    def extracts(self, day: str, author: str, step: str = "") -> list[dict[str, Any]]:
        """What is known of the extracts of a day by one of both; of all steps, or of one."""
        rows = self.lake.read_small(PEER_EXTRACT, ("domain", "peer", "step", "day", "entered_us"))
        both = {self.what.settings.domain, self.peer}
        rows = rows.filter(pc.equal(rows.column("day"), day))
        return [
            row
            for row in rows.to_pylist()
            if row["domain"] == author and step in {"", row["step"]} and {row["domain"], row["peer"]} == both
        ]

    def newest(self, day: str, author: str, step: str) -> dict[str, Any] | None:
        """The newest extract by an author."""
        return max(self.extracts(day, author, step), key=lambda row: int(row["entered_us"]), default=None)

    def _job(self, step: str) -> str:
        return f"{step}-{self.peer}"


@dataclass(slots=True)
class _Round:
    """One round with one partner."""

    lake: Lake
    what: Exchanging
    partner: Partner
    result: JobResult
    folders: PartnerFolders = field(init=False)
    notes: _Notes = field(init=False)
    waiting: int = 0
    reconciled: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folders = PartnerFolders.of(self.what.settings, self.partner.domain)
        self.notes = _Notes(self.lake, self.what, self.partner.domain)

    def of(self, day: str) -> exchange.PartnerDay:
        """A day with this partner."""
        return exchange.PartnerDay(self.what.settings.domain, self.partner.domain, day)

    # What came.

    def take_in(self) -> None:
        """Take what the partner has handed over. Raises LakeError and OSError: the rest waits."""
        began = time.monotonic()
        for number, path in enumerate(self.folders.came(FILES_A_ROUND)):
            if number and time.monotonic() - began >= TAKE_SECONDS:
                return  # sixteen of the largest extracts would let the other partners wait for minutes
            try:
                self._take(path)
            except ExtractError as exc:
                # To find out what is wrong may have been much work: its next file has to wait for the next round.
                self._refuse(path, exc.verdict.code, exc.detail)
                return
            except SettingsError as exc:
                _warn(self.result, f"{self.partner.domain}: {path.name} is refused: {exc.detail}")
                keep(path, "refused")
            except (LakeError, OSError, MemoryError):
                raise  # they say nothing about the file
            except Exception:
                keep(path, "refused")  # or it would be met in every round
                raise
            else:
                keep(path, "taken")

    def _take(self, path: Path) -> None:
        """Take one file. Raises ExtractError and SettingsError: it is refused."""
        named = day_and_step(path.name)
        if named is None:
            if USAGE_FILE.fullmatch(path.name) is None:
                raise SettingsError(
                    "unknown-name: partners hand over `DAY.totals`, `DAY.details`, `DAY.return-NUMBER` and "
                    "`usage-NUMBER.report`"
                )
            self._take_usage(path)
            return
        day, step = named
        if day not in self.what.days:
            raise SettingsError(f"wrong-day: {day} is not exchanged now; `days` under [exchange] says how far back")
        if step == "return":
            self._take_return(path, day)
            return
        if len(self.notes.extracts(day, self.partner.domain)) >= EXTRACTS_A_DAY:
            raise ExtractError(ExtractFault.TOO_LARGE, f"{EXTRACTS_A_DAY} extracts of {day} have come already")
        done = self._by_each_key(
            lambda key: exchange.import_extract(self.lake, path, self.of(day), peer_key=key, raw_bytes=RAW_BYTES)
        )
        if done.details["step"] != step:
            raise ExtractError(ExtractFault.MALFORMED, f"{path.name} has {done.details['step']}")
        self._add(done)

    def _by_each_key(self, read: Callable[[KeyRecord], _Found]) -> _Found:
        """Read a file with the first key of the partner that has signed it."""
        *others, last = self.partner.records
        for key in others:
            try:
                return read(key)
            except ExtractError as exc:
                if exc.verdict is not ExtractFault.BAD_SIGNATURE:
                    raise
            except SettingsError as exc:
                if ": bad-signature: " not in exc.detail:
                    raise
        return read(last)

    def _take_usage(self, path: Path) -> None:
        domain, peer = self.what.settings.domain, self.partner.domain
        if usage.reports_of_day(self.lake, peer, domain) >= usage.REPORTS_A_DAY:
            raise SettingsError(f"{path.name}: too-many: {usage.REPORTS_A_DAY} reports have come today")
        report = self._by_each_key(lambda key: read_usage(path, peer_key=key, domain=domain, peer=peer))
        found = usage.look_up(self.lake, report)
        usage.note_named(self.lake, report, [user["senders"] for user in found.details["users"]], self.result)
        self.result.findings += found.findings
        self.result.warnings += [f"{peer} names {line}" for line in found.warnings]

    def _take_return(self, path: Path, day: str) -> None:
        domain, peer = self.what.settings.domain, self.partner.domain
        count = times_returned(self.lake, peer, domain, day)
        if count >= RETURNS_A_DAY:
            raise SettingsError(f"{path.name}: too-many: {RETURNS_A_DAY} returns of {day} have come already")
        found = self._by_each_key(lambda key: RETURN_FORMAT.read(path, peer_key=key, domain=domain, peer=peer))
        if found.day != day:
            raise SettingsError(f"{path.name}: wrong-day: of {found.day}; ask {self.partner.domain} for it anew")
        note_return(self.lake, found, self.result)
        if found.file is not None:
            _warn(self.result, f"{peer} has refused {found.file.name}: {found.file.reason}: {found.file.detail}")
            if found.file.reason in _ANEW and count < RETRIES:
                self.notes.forget("totals", day)
        if found.records:
            self.result.findings += len(found.records)
            self.result.warnings.append(
                f"{peer} does not accept {len(found.records) + found.left_out:,} records of {day}: see peer_return"
            )

    def _refuse(self, path: Path, reason: str, detail: str) -> None:
        """Return an extract with the reason, and keep it as evidence."""
        named = day_and_step(path.name)
        assert named is not None
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        why = ReturnedFile(path.name, sha256, reason, harmless(detail)[:500])
        if times_returned(self.lake, self.what.settings.domain, self.partner.domain, named[0]) < RETURNS_A_DAY:
            # Of the file, so that a round that was cut off in between returns it as the same.
            came_us = path.stat().st_mtime_ns // 1000
            self._return(Return(**self._names(named[0]), made_us=came_us, file=why))
        _warn(self.result, f"{self.partner.domain}: {path.name} is refused: {reason}: {detail}")
        keep(path, "refused")

    def _names(self, day: str) -> dict[str, Any]:
        return {"domain": self.what.settings.domain, "peer": self.partner.domain, "day": day}

    def _return(self, what: Return) -> None:
        """Let a return wait for the partner. Made again from the same, it has the same name, and takes its place."""
        name = f"{what.day}.return-{what.made_us}"
        self.folders.put(name, lambda path: write_return(self.lake, what, path, key=self.what.key))

    # What is due.

    def exchange_days(self) -> None:
        """Do the next steps of each day. Raises LakeError, ExtractError and OSError."""
        for day, input_ in self._due().items():
            done = self.notes.of("totals")
            if done.get(day) != input_:
                self._export("totals", day, input_)
            own = self.notes.newest(day, self.what.settings.domain, "totals")
            theirs = self.notes.newest(day, self.partner.domain, "totals")
            if own is None or theirs is None:
                continue
            both = f"{own['entered_us']} and {theirs['entered_us']}"
            if self.notes.of("details").get(day) != both:
                self._export("details", day, both)
            details = self.notes.newest(day, self.partner.domain, "details")
            # Details that were made before our totals answer older ones.
            if details is not None and details["entered_us"] > max(own["entered_us"], theirs["entered_us"]):
                self._reconcile(day, f"{both} and {details['entered_us']}", details["entered_us"])

    def _due(self) -> dict[str, str]:
        """Days that can be exchanged, and what their totals are made of."""
        lake, domain, peer = self.lake, self.what.settings.domain, self.partner.domain
        # What retention has dropped would be shown as if it had never been.
        days, now = [day for day in self.what.days if day > kept_from(lake)], self.what.clock()
        names = ("our_domain", "src_domain", "dst_domain", "dt")
        traffic = lake.read_small(TRAFFIC_HOURLY, names, partitions=days).group_by(list(names)).aggregate([])
        pairs = {(domain, peer), (peer, domain)}
        active = {
            row["dt"]
            for row in traffic.to_pylist()
            if row["our_domain"] == domain and (row["src_domain"], row["dst_domain"]) in pairs
        }
        inputs = inputs_by_day(lake, lake.version(SILVER_MDR))
        proved = proved_completeness(lake).get(domain, NOTHING)
        due = {}
        for day in days:
            is_proved = proved.until_us >= end_us(day) + GRACE_S * 1_000_000
            is_asked = day in active or bool(self.notes.extracts(day, peer, "totals"))
            if is_asked and (is_proved or now >= end_us(day) / 1e6 + LATE_S):
                due[day] = f"{inputs.get(day, 'no records')}, {'complete' if is_proved else 'not proved'}"
        return due

    def _export(self, step: Literal["totals", "details"], day: str, input_: str) -> None:
        write = exchange.export_totals if step == "totals" else exchange.export_details
        made: list[JobResult] = []
        self.folders.put(
            f"{day}.{step}",
            lambda path: made.append(write(self.lake, self.of(day), key=self.what.key, out=path)),
        )
        self._add(made[0])
        self.notes.put(step, day, input_)

    def _reconcile(self, day: str, input_: str, newest_us: int) -> None:
        """Reconcile a day and return what is not accepted; `newest_us` is when the last of its extracts came."""
        if self.notes.of("reconciled").get(day) == input_:
            return
        try:
            done = exchange.reconcile_with(self.lake, self.of(day), tolerance=self.partner.tolerance)
        except ExtractError as exc:
            # The same files give the same again: the partner has to say something else.
            why = ReturnedFile(f"{day}.details", "0" * 64, exc.verdict.code, harmless(exc.detail)[:500])
            self._return(Return(**self._names(day), made_us=newest_us, file=why))
            self.notes.put("reconciled", day, input_)
            raise
        self._add(done)
        if done.exit_code is ExitCode.FINDINGS:
            self.result.findings += done.findings
            self.result.warnings.append(f"{self.partner.domain}, {day}: {done.outcome}")
            if self.result.exit_code is ExitCode.FINE:
                self.result.exit_code = ExitCode.FINDINGS
            returned = unaccepted(self.lake, self.of(day), self.partner, made_us=newest_us)
            if returned is not None:
                self._return(returned)
        self.reconciled.append(day)
        self.notes.put("reconciled", day, input_)

    # What leaves.

    def deliver(self) -> None:
        """Hand over what waits. Raises OSError and SettingsError."""
        self._drop_old()
        for path in self.folders.waiting():
            try:
                hand_over(path, self.partner, domain=self.what.settings.domain, key=self.what.key)
            except NotTakenError as exc:
                _warn(self.result, f"{self.partner.domain} did not take {path.name}: {exc}")
                if not exc.is_lasting:
                    break
            else:
                keep(path, "sent")
        self.waiting = len(self.folders.waiting())

    def _drop_old(self) -> None:
        """Give up files that nobody has taken while they were news."""
        oldest = self.what.clock() - self.what.settings.days * 86_400.0
        for path in self.folders.waiting():
            if path.stat().st_mtime < oldest:
                _warn(self.result, f"{self.partner.domain} has never taken {path.name}; it is given up")
                keep(path, "given-up")

    def _add(self, done: JobResult) -> None:
        for table, rows in done.rows.items():
            self.result.wrote(table, rows, done.versions[table])
