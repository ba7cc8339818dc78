"""From which files of records the hours of each day were made, and of which days the files are others by now."""

from __future__ import annotations

from hashlib import sha256

from pipeline.lake_files import LakeFiles
from pipeline.schemas import SILVER_MDR, TRAFFIC_HOURLY


def files_by_day(lake: LakeFiles, silver_version: int) -> dict[str, str]:
    """For each day with records a fingerprint of the files that hold them. Raises LakeError."""
    paths: dict[str, list[str]] = {}
    for file in lake.files(SILVER_MDR, silver_version):
        paths.setdefault(file.partition["dt"], []).append(file.path)
    return {day: sha256("\n".join(sorted(its)).encode()).hexdigest() for day, its in paths.items()}


def settled_files(lake: LakeFiles) -> dict[str, str]:
    """For each day the fingerprint of the files that its hourly traffic was made from. Raises LakeError."""
    settled: dict[str, str] = {}
    for note in lake.history(TRAFFIC_HOURLY):
        settled = note.meta.get("inputs", {}) | settled
    return settled


def unsettled_days(lake: LakeFiles) -> set[str]:
    """Days whose records are in other files than those that were settled. Raises LakeError."""
    settled = settled_files(lake)
    return {day for day, files in files_by_day(lake, lake.version(SILVER_MDR)).items() if settled.get(day) != files}
