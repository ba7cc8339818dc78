"""Ingest: from the spools of nodes to bronze, quarantine and the ledger, every record exactly once.

Theory of operation. A round lists the manifests in the spools, leaves out those that the ledger has settled, and takes
the others in batches. A batch is verified, pinned as a plan in table `ingest_plan`, loaded by tasks of Spark, committed
to quarantine and bronze under the number of the batch, and entered into the ledger under the same number. A plan whose
batch is in the ledger is done.

Whether frames are sound and lines are as many as promised is found out by the tasks, which decompress anyway. When
something is not as it should be, nothing is committed, and the batch is verified once more, to the last line. Segments
that tasks refuse, or on which our program fails in a way that nobody has foreseen, are rejected, and the others of the
batch are loaded without them. What fails on the machine itself (memory, disk) ends the run and is no verdict.

A killed run leaves a plan behind. The next run verifies what is in it once more and carries on: tables that have
the batch's number skip it, the ledger is written from what is true now. So nothing comes twice and nothing is left
out, wherever the end was. Rows say with which batch they came, so even a segment that was taken away in between is
entered as what it is: stored, and no longer there to be verified.

Of several that ingest into one lake at the same time one goes on. On a disk the others find a lock. In a store, where
nothing can be locked, a plan is pinned by a commit that holds only if nobody has pinned another one since: who fails
ends. One that finds the plan of another at work carries it out as well, as if that had been killed, and ends where it
meets a commit of the other. Nothing is entered into the ledger without a plan.

Why no stream of Spark's over the manifests: its checkpoint would be a second memory beside the ledger, and losing it
starts the numbers of batches again at 0; it can neither leave out what is settled nor look again at what was rejected;
and a round without news would still cost a job. Here the lake alone remembers, and a round without news is a listing
of folders. See docs/adr/0010.

Source: pipeline study, section 4.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.findings import Finding, SegmentVerdict, Severity
from pipeline.core.stretches import missing_numbers
from pipeline.jobs import compact
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake import durable, storage
from pipeline.lake.lake_files import explained
from pipeline.lake.store_path import Location
from pipeline.lake.table_log import ConflictError, LakeError
from pipeline.lake.tables import Change, Commit, Lake
from pipeline.schemas import INGEST_PLAN, SEGMENTS
from pipeline.segments.ledger import Ledger, read_stretches
from pipeline.segments.loading import ChangedError, RefusedSegmentsError, load, loaded_before
from pipeline.segments.node_keys import Trust
from pipeline.segments.spool import Place, Segment, examine, find_manifests
from pipeline.segments.summary import FindingSummary, missing_line
from protofly.errors import SettingsError
from protofly.records import RecordKind, SegmentManifest

BATCH_SEGMENTS: Final = 2048
BATCH_BYTES: Final = 256 << 20
"""Of compressed segments: some five million records."""
_ATTEMPTS: Final = 3
_GAPS_SHOWN: Final = 20
_FOLDER: Final = "_ingest"
_REQUESTS: Final = 16
"""At once, to a store that takes its time to answer each."""

_Refusals: TypeAlias = dict[Place, tuple[Finding, str]]
"""What loading has found about segments that were fine before, and what is to be said about it."""


class _Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted segment as it was when its rows were about to be stored."""

    place: Place
    manifest_sha256: str
    manifest: SegmentManifest


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A batch, pinned before anything of it is committed: where to look, and by stem what was accepted."""

    batch: int
    places: list[Place]
    accepted: dict[str, _Pinned] = {}


@dataclass(slots=True)
class Ingest:
    """Loads segments round by round, and remembers what it tried; a new one starts from the lake alone.

    Args:
        lake: Where to.
        spools: Folders to look in, and below.
        trust: Whose signatures count.
    """

    lake: Lake
    spools: Sequence[Location]
    trust: Trust = field(default_factory=Trust)
    _tried: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Rejected places, and the marks of their files when they were looked at."""
    _plan_version: int = -1
    """Of table `ingest_plan`, when it was read or written last."""

    def run(self, progress: Callable[[str], None] = lambda _: None) -> JobResult:
        """Take in everything that is there now.

        Args:
            progress: Called with a line of text after every batch.

        Raises:
            LakeError: The lake cannot be written, or another ingest is at work on it.
            SettingsError: A spool cannot be listed.
        """
        result = JobResult("ingest")
        counts: Counter[str] = Counter()
        summary = FindingSummary()
        with explained(self.lake.folder), self._alone():
            plan = self._left_plan()
            while plan is not None or (plan := self._next_plan(result)) is not None:
                segments = self._carry_out(plan, result)
                counts.update(segment.verdict.value for segment in segments)
                summary.add(segments)
                result.findings += sum(segment.severity >= Severity.SEVERE for segment in segments)
                progress(f"batch {plan.batch}: {_summary(segments)}")
                plan = None
            result.warnings += summary.lines()
            self._conclude(result, counts)
        return result

    # One batch.

    def _left_plan(self) -> _Plan | None:
        self._plan_version = self.lake.version(INGEST_PLAN)
        rows = self.lake.read_small(INGEST_PLAN, version=self._plan_version).to_pylist()
        if not rows:
            return None
        try:
            plan = msgspec.json.decode(rows[0]["plan"], type=_Plan)
        except msgspec.DecodeError as exc:
            raise LakeError(f"{INGEST_PLAN.name} is spoilt ({exc}): restore it from a backup of the lake") from exc
        return plan if plan.batch > Ledger(self.lake).last_batch else None

    def _next_plan(self, result: JobResult) -> _Plan | None:
        ledger = Ledger(self.lake)
        with result.timed("list"):
            places = self._news(ledger)
        return _Plan(batch=ledger.last_batch + 1, places=places) if places else None

    def _news(self, ledger: Ledger) -> list[Place]:
        try:
            found = ledger.news(list(find_manifests(self.spools)))
        except OSError as exc:
            raise SettingsError(f"spool {exc.filename}: {exc.strerror}" if exc.filename else str(exc)) from exc
        found = [place for place in found if place not in self._tried or self._tried[place] != _marks(place)]
        found.sort(key=lambda place: (place.stem, place))
        chosen = list(islice(_up_to(found, BATCH_BYTES), BATCH_SEGMENTS))
        return chosen if len(chosen) == len(found) else _before_disputed(chosen, found)

    def _carry_out(self, plan: _Plan, result: JobResult) -> list[Segment]:
        refusals: _Refusals = {}
        changes = 0
        while changes <= _ATTEMPTS:
            try:
                return self._try_batch(plan, refusals, result, reads_lines=bool(plan.accepted) or changes > 0)
            except RefusedSegmentsError as exc:  # what is refused is not loaded again, so this comes to an end
                refusals |= {place: (Finding[one.finding], one.remark) for place, one in exc.refusals.items()}
            except ChangedError as exc:
                changes += 1
                if changes >= _ATTEMPTS:
                    refusals |= dict.fromkeys(exc.places, (Finding.CHANGED, ""))
        raise LakeError("segments keep changing while they are read: ingest a spool that nobody writes over")

    def _try_batch(self, plan: _Plan, refusals: _Refusals, result: JobResult, *, reads_lines: bool) -> list[Segment]:
        """`reads_lines` False leaves it to those who load the segments to find damage in the lines of one."""
        ledger = Ledger(self.lake)
        with result.timed("verify"):
            segments = self._examine(plan.places, refusals, ledger, reads_lines=reads_lines)
            segments = ledger.chains_for(segments).judge(segments)
        accepted = [segment for segment in segments if segment.verdict is SegmentVerdict.ACCEPTED]
        if accepted and not plan.accepted:
            plan = self._pin(plan, accepted)
        loaded: list[Segment] = []
        for kind in RecordKind:
            of_kind = [segment for segment in accepted if segment.manifest and segment.manifest.kind is kind]
            loaded += self._load(kind, of_kind, plan, result)
        stored = {segment.place for segment in loaded}
        loaded += [
            segment
            for segment in segments
            if segment.verdict is not SegmentVerdict.ACCEPTED and segment.place not in stored
        ]
        known = ledger.known(segment.place for segment in loaded)
        news = [
            segment
            for segment in loaded
            if not any(one.says_the_same_as(segment) for one in known[segment.place.spool, segment.place.path])
        ]
        if news:
            if not accepted:
                self._pin(plan, [])
            with result.timed("ledger"):
                commit = ledger.write(news, plan.batch, datetime.now(UTC).strftime("%Y-%m-%d"))
            self._check_alone(commit)
            result.rows[SEGMENTS.name] = result.rows.get(SEGMENTS.name, 0) + len(news)
            result.versions[SEGMENTS.name] = commit.version
        judged = {segment.place for segment in segments if segment.verdict is SegmentVerdict.ACCEPTED}
        for place in set(plan.places) - judged:
            self._tried[place] = _marks(place)
        return news

    def _examine(
        self, places: Sequence[Place], refusals: _Refusals, ledger: Ledger, *, reads_lines: bool
    ) -> list[Segment]:
        known = ledger.known(places)
        with ThreadPoolExecutor(self._threads) as pool:  # what takes long does not hold the interpreter
            segments = list(pool.map(partial(examine, trust=self.trust, reads_lines=reads_lines), places))
        for segment in segments:
            if segment.place in refusals:
                segment.find(*refusals[segment.place])
        return [
            segment
            for segment in segments
            if not any(
                one.is_settled and one.manifest_sha256 == segment.manifest_sha256
                for one in known[segment.place.spool, segment.place.path]
            )
        ]

    def _pin(self, plan: _Plan, accepted: Sequence[Segment]) -> _Plan:
        pinned = {
            segment.place.stem: _Pinned(
                place=segment.place, manifest_sha256=segment.manifest_sha256, manifest=segment.manifest
            )
            for segment in accepted
            if segment.manifest is not None
        }
        plan = msgspec.structs.replace(plan, accepted=pinned)
        row = {"batch": plan.batch, "plan": msgspec.json.encode(plan).decode()}
        rows = pa.Table.from_pylist([row], to_arrow_schema(INGEST_PLAN.schema))
        try:
            commit = self.lake.commit(rows, INGEST_PLAN, Change("overwrite", base_version=max(0, self._plan_version)))
        except ConflictError as exc:
            raise self._not_alone() from exc
        self._plan_version = commit.version
        return plan

    def _load(self, kind: RecordKind, segments: list[Segment], plan: _Plan, result: JobResult) -> list[Segment]:
        """Load the accepted segments of one kind, or find that it was done; returns those to enter into the ledger."""
        pinned = {stem: one.manifest for stem, one in plan.accepted.items() if one.manifest.kind is kind}
        loaded = loaded_before(self.lake, kind, plan.batch, pinned)
        if loaded is None:
            if not segments:
                return []
            with result.timed(f"load {kind.value}"):
                loaded = load(self.lake, kind, segments, plan.batch)
            self._check_alone(loaded.commits[-1] if loaded.commits else None)
            for commit in loaded.commits:
                result.wrote(commit.table, commit.rows, commit.version)
        by_stem = {segment.place.stem: segment for segment in segments}
        rows = {stem: counts for stem, counts in loaded.rows.items() if any(counts) or stem in by_stem}
        for stem in rows.keys() - by_stem.keys():
            by_stem[stem] = _vanished(stem, plan)
        entered = []
        for stem, (good, bad) in sorted(rows.items()):
            segment = by_stem[stem]
            segment.rows_good, segment.rows_quarantined = good, bad
            if bad:
                segment.find(Finding.QUARANTINED, f"{bad} lines")
            entered.append(segment)
        return entered

    # Around the batches.

    @property
    def _threads(self) -> int:
        is_far = not all(isinstance(spool, Path) for spool in self.spools)
        return max(os.cpu_count() or 1, _REQUESTS if is_far else 1)

    def _not_alone(self) -> LakeError:
        return LakeError(f"another ingest is at work on {self.lake.folder}")

    def _check_alone(self, commit: Commit | None) -> None:
        """Raises LakeError: somebody else has made this commit."""
        if commit is not None and commit.is_repeated:
            raise self._not_alone()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not isinstance(self.lake.folder, Path):
            yield
            return
        folder = self.lake.folder / _FOLDER
        folder.mkdir(exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, durable.FILE_MODE)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                raise self._not_alone() from exc
            self.lake.clear_stages()
            yield
        finally:
            os.close(lock)

    def _conclude(self, result: JobResult, counts: Counter[str]) -> None:
        chains = read_stretches(self.lake).chains()
        gaps = [(*key, *hole) for key, stretches in chains.items() for hole in missing_numbers(stretches)]
        result.details = {
            "verdicts": dict(sorted(counts.items())),
            "gaps": [
                {"node": node, "kind": kind, "boot": boot, "first": first, "last": last}
                for node, kind, boot, first, last in gaps
            ],
        }
        for node, kind, boot, first, last in gaps[:_GAPS_SHOWN]:
            result.warnings.append(missing_line(node, kind, boot, first, last))
        if len(gaps) > _GAPS_SHOWN:
            result.warnings.append(f"{len(gaps) - _GAPS_SHOWN:,} more gaps: `audit` lists them by node")
        if self.trust.keys is None and counts:
            result.warnings.append("signatures were not checked: name the nodes' keys with --keys")
        if self.trust.requires_signatures:
            self._warn_of_unsigned(result)
        if not chains:
            folders = ", ".join(map(str, self.spools))
            rejected = counts[SegmentVerdict.REJECTED.value]
            result.warnings.append(
                f"none of the segments in {folders} was accepted"
                if rejected
                else f"no segments in {folders}: name the node's folder `records`, or wait for its first sealed segment"
            )
        if gaps or not chains:
            result.exit_code = ExitCode.INCOMPLETE
        elif result.findings:
            result.exit_code = ExitCode.FINDINGS

    def _warn_of_unsigned(self, result: JobResult) -> None:
        """Warn of segments that were taken when signatures were not required."""
        lax = sum(one.unchecked_segments for one in read_stretches(self.lake))
        if lax:
            result.findings += lax
            result.warnings.append(
                f"{lax:,} segments that are in the lake already were taken without a good signature: "
                "see `show segments`; where they must not count, take the spools into an empty lake"
            )


def run(
    lake: Lake,
    spools: Sequence[Location],
    *,
    trust: Trust | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> JobResult:
    """Take in everything that lies in the spools now.

    Args:
        lake: Gets bronze tables, `quarantine` and `segments`.
        spools: Folders with manifests in or below them.
        trust: Whose signatures count; see `pipeline.segments.node_keys.load_trust`.
        progress: Called with a line of text after every batch.

    Raises:
        LakeError: The lake cannot be written, or another ingest is at work on it.
        SettingsError: A spool cannot be listed.
    """
    return Ingest(lake, spools, trust or Trust()).run(progress)


def follow(
    lake: Lake,
    spools: Sequence[Location],
    *,
    trust: Trust | None = None,
    wait: Callable[[], bool],
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[JobResult]:
    """Round after round, a result each, until `wait` (called in between) returns False. Raises as `run`.

    Days get no more than a bounded number of small files, see `compact.bound`.
    """
    ingest = Ingest(lake, spools, trust or Trust())
    yield ingest.run(progress)
    while wait():
        compact.bound(lake)
        yield ingest.run(progress)


def _marks(place: Place) -> tuple[int, int]:
    for path in place.segment_paths:
        with suppress(OSError):
            found = storage.marks(path)
            return found.size_bytes, found.mtime_us
    return 0, 0


def _up_to(places: Sequence[Place], limit_bytes: int) -> Iterator[Place]:
    total = 0
    for place in places:
        size_bytes = _marks(place)[0]
        total += size_bytes
        if total > limit_bytes and total > size_bytes:
            return
        yield place


def _before_disputed(chosen: list[Place], found: list[Place]) -> list[Place]:
    """Cut off the last number if several claim it: who is right says the segment behind, which comes with the next."""
    claims = Counter(place.stem for place in found)
    kept = len(chosen)
    while kept and claims[chosen[kept - 1].stem] > 1:
        kept -= 1
    return chosen[:kept] or chosen


def _vanished(stem: str, plan: _Plan) -> Segment:
    """The ledger row of a segment that was stored by a run that ended, and cannot be verified any more."""
    pinned = plan.accepted.get(stem)
    if pinned is None:
        raise LakeError(f"segment {stem} was stored, but the plan of batch {plan.batch} does not know it")
    segment = Segment(pinned.place, pinned.manifest_sha256, pinned.manifest, verdict=SegmentVerdict.ACCEPTED)
    segment.find(Finding.VANISHED)
    return segment


def _summary(segments: Sequence[Segment]) -> str:
    verdicts = Counter(segment.verdict.value for segment in segments)
    rows = sum(segment.rows_good for segment in segments)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    return f"{counts or 'nothing new'}; {rows} rows"
