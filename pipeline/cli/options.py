"""Options that several commands of the pipeline share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.lake.store_path import parsed
from protofly.errors import SettingsError

if TYPE_CHECKING:
    from pipeline.lake.store_path import Location as Location
else:
    Location = Path  # an option cannot be of one of two types; its parser can


def place(word: str) -> Location:
    """The folder, or the prefix in a store, that an option names. Raises typer.BadParameter: any other URL."""
    try:
        return parsed(word)
    except SettingsError as exc:
        raise typer.BadParameter(exc.detail) from exc


LakeOption = Annotated[
    Location,
    typer.Option(
        "--lake",
        metavar="DIR",
        help="Folder of the tables, or s3://BUCKET/PREFIX or az://CONTAINER/PREFIX; commands that write create it.",
        parser=place,
    ),
]
Spools = Annotated[
    list[Location],
    typer.Option(
        "--spool",
        metavar="DIR",
        help="Folder, or s3://BUCKET/PREFIX or az://CONTAINER/PREFIX, with sealed segments. Repeatable.",
        parser=place,
    ),
]
Master = Annotated[str, typer.Option(help="Spark master. Default: that of spark-submit, else local[*].")]
Memory = Annotated[str, typer.Option(help="Heap size of the Spark driver.")]
Archive = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Archive of `pack`, for executors that do not have this package.", exists=True),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Allowed = Annotated[int, typer.Option(help="Number of findings that do not cause exit code 1.", min=0)]
Day = Annotated[str, typer.Option(help="UTC day, YYYY-MM-DD. Default: all days with changes.")]
OneDay = Annotated[str, typer.Option(help="UTC day, YYYY-MM-DD.")]
Domain = Annotated[str, typer.Option(help="Our domain; required if the lake has records of several.")]
Keys = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Public keys of the nodes: a JSON file, or a folder of such.")
]
Signed = Annotated[bool, typer.Option(help="Reject segments whose signature cannot be checked.")]
Vouched = Annotated[
    list[str] | None,
    typer.Option(
        "--vouch",
        metavar="NODE=DAY",
        help="Declare that a silent node wrote nothing more, up to the end of a UTC day. Repeatable.",
    ),
]
Policy = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Policy file to evaluate. Repeatable.")]
Deployed = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Policy file that was in force. Repeatable.")]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Configuration file of the node, for the policies and peers in force."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Options of a command that runs Spark over a lake."""

    lake: LakeOption
    master: Master = ""
    memory: Memory = "2g"
    archive: Archive = None
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
