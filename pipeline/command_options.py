"""Options that several commands of the pipeline have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

LakeOption = Annotated[Path, typer.Option("--lake", metavar="DIR", help="Where the tables are; made when missing.")]
Spools = Annotated[list[Path], typer.Option("--spool", metavar="DIR", help="Folder with sealed segments; repeatable.")]
Master = Annotated[str, typer.Option(help="Spark master; empty: what spark-submit says, else local[*].")]
Memory = Annotated[str, typer.Option(help="Heap of the Spark driver.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Allowed = Annotated[int, typer.Option(help="Findings that are no reason for exit code 2.", min=0)]
Day = Annotated[str, typer.Option(help="UTC day, YYYY-MM-DD; empty: every day that needs it.")]
OneDay = Annotated[str, typer.Option(help="UTC day, YYYY-MM-DD.")]
Domain = Annotated[str, typer.Option(help="Our domain, where the lake has records of several.")]
Keys = Annotated[Path | None, typer.Option(metavar="FILE", help="Public keys of the nodes, JSON; or a folder of such.")]
Signed = Annotated[bool, typer.Option(help="Refuse segments whose signature cannot be checked.")]
Vouched = Annotated[
    list[str] | None,
    typer.Option(
        "--vouch",
        metavar="NODE=DAY",
        help="Our word that this silent node wrote nothing more, up to the end of a UTC day; repeatable.",
    ),
]
Policy = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Policy file to try; repeatable.")]
Deployed = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Policy file that was in force; repeatable.")]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings of the node, for policies and peers that were in force.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Options of a command that runs Spark over a lake."""

    lake: LakeOption
    master: Master = ""
    memory: Memory = "2g"
    json: Json = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSource:
    """Options that say which segments are read, and whose signatures count."""

    spool: Spools
    keys: Keys = None
    require_signatures: Signed = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """Options that name the policies of a replay."""

    policy: Policy = None
    deployed: Deployed = None
    config: Config = None
