"""`trapezoid demo --pipeline`: ingest, settle and reconcile the records of both nodes, and write a report."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from msg_node.settings.load import load_settings
from protofly.errors import SettingsError
from trapezoid.record_keys import record_keys

LAKE_NAME = "lake"
KEYS_NAME = "record-keys.json"


def reconcile_demo(state_dir: Path, *, as_json: bool = False) -> int:
    """Run the pipeline over all records of the demo's nodes.

    Returns:
        The exit code of the pipeline.

    Raises:
        SettingsError: Spark is not installed, the folder has no nodes, or its lake cannot be used.
    """
    try:
        from pipeline.cli.terminal import Terminal
        from pipeline.jobs.whole import WholeRun, combined, jobs
        from pipeline.lake.table_log import LakeError
        from pipeline.lake.tables import Lake
        from pipeline.segments.node_keys import load_trust
        from pipeline.spark.session import bytes_in, start_session
    except ModuleNotFoundError as exc:
        raise SettingsError(f"{exc.name} is not installed: pip install 'trapezoid[pipeline]'") from exc
    state_dir = state_dir.absolute()
    settings = [load_settings(file) for file in sorted(state_dir.glob("*/node.toml"))]
    if not settings:
        raise SettingsError(f"{state_dir}: no node has run here; run `trapezoid demo` first")
    keys = {key_id: key for one in settings for key_id, key in record_keys(one).items()}
    keys_file = state_dir / KEYS_NAME
    keys_file.write_bytes(msgspec.json.encode(keys))
    lake_folder = state_dir / LAKE_NAME
    what = WholeRun(
        spools=[one.spool_dir for one in settings],
        trust=load_trust(keys_file, requires_signatures=True),
        deployed=None,
        proposed=None,
        out=lake_folder / "report.html",
    )
    terminal = Terminal(as_json=as_json)
    session = start_session(input_bytes=bytes_in([lake_folder, *what.spools]))
    try:
        for name, work in jobs(Lake(lake_folder, session), what):
            terminal.job(name, work)
    except LakeError as exc:
        raise SettingsError(f"{exc}; use --fresh to delete the state of earlier runs") from exc
    finally:
        session.stop()
    if as_json:
        facts = {"pipeline": [result.to_dict() for result in terminal.results], "report": str(what.out)}
        sys.stdout.write(msgspec.json.encode(facts).decode() + "\n")
    else:
        terminal.say(f"report: {what.out}")
    return int(combined(terminal.results))
