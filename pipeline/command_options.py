"""Options that several commands of the pipeline share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def folder(word: str) -> Path:
    """The folder that an option names. Raises typer.BadParameter: it is a URL, which would become an odd folder."""
    if _URL.match(word):
        raise typer.BadParameter(
            f"{word} is a URL. Spools and lakes are folders of a file system that all machines see under one path: "
            "mount the store, and name the folder"
        )
    return Path(word)


LakeOption = Annotated[
    Path,
    typer.Option("--lake", metavar="DIR", help="Folder of the tables; commands that write create it.", parser=folder),
]
Spools = Annotated[
    list[Path], typer.Option("--spool", metavar="DIR", help="Folder with sealed segments. Repeatable.", parser=folder)
]
Master = Annotated[str, typer.Option(help="Spark master. Default: that of spark-submit, else local[*].")]
Memory = Annotated[str, typer.Option(help="Heap size of the Spark driver.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Allowed = Annotated[int, typer.Option(help="Number of findings that do not cause exit code 2.", min=0)]
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
