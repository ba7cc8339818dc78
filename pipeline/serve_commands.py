"""`trapezoid pipeline serve`: a pipeline that stays."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from pipeline.command_options import Archive, Master, Memory, SparkOptions
from pipeline.command_runs import errors_reported, opened_lake


def serve(
    settings: Annotated[Path, typer.Option("--settings", metavar="FILE", help="Settings: a TOML file.")],
    master: Master = "",
    memory: Memory = "2g",
    archive: Archive = None,
) -> None:
    """Follow spools and run all jobs by a schedule, with metrics, health and alerts, until SIGTERM or Ctrl-C."""
    with errors_reported(as_json=False):
        from pipeline.alert_sinks import sinks_of
        from pipeline.node_keys import load_trust
        from pipeline.serve_settings import read_settings, store_environment
        from pipeline.store_path import location

        chosen = read_settings(settings)
        sinks_of(chosen.alerts)  # so that a wrong file of credentials shows now
        os.environ.update(store_environment(chosen.store))  # which Spark and its workers inherit
        trust = load_trust(Path(chosen.keys) if chosen.keys else None, requires_signatures=chosen.require_signatures)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("py4j", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    stop = Event()
    options = SparkOptions(lake=location(chosen.lake), master=master, memory=memory, archive=archive)
    with opened_lake(options, makes=True) as lake:
        from pipeline.jobs.serve import serve as work

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        host = chosen.listen.host
        work(
            lake,
            chosen,
            trust,
            stop=stop,
            on_listen=lambda port: logging.info("serving %s; http://%s:%d/metrics", lake.folder, host, port),
        )
