"""The mark of a lake: the file that says that a folder is one, and in which format its tables are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pipeline.lake import durable, storage
from pipeline.lake.store_path import Location, StorePath
from pipeline.lake.table_log import LakeError

LAKE_FORMAT: Final = 3
"""Raised whenever tables of older lakes would be misread. New columns do not raise it."""
MARK_NAME: Final = "lake.json"
_PATTERN: Final = frozenset("*?[]{}\\")
_TABLES: Final = "delta"


def open_mark(folder: Location) -> None:
    """Check the mark of a lake, or make a new lake in a folder that is empty or missing.

    Raises:
        LakeError: The folder holds something else, or a lake that this version cannot read.
        OSError: It cannot be read or written.
    """
    if _PATTERN & set(str(folder)):
        raise LakeError(f"{folder}: Spark takes this path for a pattern; name one without {' '.join(sorted(_PATTERN))}")
    mark = folder / MARK_NAME
    storage.make_folder(folder)
    if not storage.exists(mark):
        others = _others(folder)
        if others and others != [MARK_NAME]:
            raise LakeError(
                f"{folder} is not empty and no lake ({MARK_NAME} is missing, there is {others[0]}): "
                "name an empty folder, or make the lake anew from the spools"
            )
        content = {"format": LAKE_FORMAT, "tables": _TABLES}
        _publish(mark, json.dumps(content).encode() + b"\n")
    check_mark(folder)


def check_mark(folder: Location) -> None:
    """Check that a folder is a lake that this version can read; nothing is made.

    Raises:
        LakeError: There is no lake, or one that this version cannot read.
        OSError: It cannot be read.
    """
    mark = folder / MARK_NAME
    try:
        content = json.loads(storage.read_bytes(mark))
        lake_format, tables = int(content["format"]), content["tables"]
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise LakeError(
            f"{folder} is no lake ({MARK_NAME} is missing): name the folder that `pipeline run` or `ingest` has made"
        ) from exc
    except (ValueError, KeyError, TypeError) as exc:
        raise LakeError(f"{mark} is spoilt ({exc}): restore it, or make the lake anew from the spools") from exc
    advice = "ingest the spools into an empty folder, or use the program that made it"
    if lake_format != LAKE_FORMAT:
        age = "an older" if lake_format < LAKE_FORMAT else "a newer"
        raise LakeError(f"{folder} is {age} lake (format {lake_format}, this program knows {LAKE_FORMAT}): {advice}")
    if tables != _TABLES:
        raise LakeError(f"{folder} has {tables} tables, this program knows {_TABLES}: {advice}")


def _others(folder: Location) -> list[str]:
    """The contents of the folder."""
    if isinstance(folder, Path):
        return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    return [one.path for one in storage.files_below(folder)]


def _publish(mark: Location, content: bytes) -> None:
    """Of two who make a lake in a store at the same moment both write the same."""
    if isinstance(mark, StorePath):
        storage.write_bytes(mark, content)
    else:
        durable.publish_once(mark, content)
