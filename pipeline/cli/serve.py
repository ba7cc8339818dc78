"""`trapezoid pipeline serve`: a pipeline that stays."""

from __future__ import annotations

import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from pipeline.cli.option_groups import grouped
from pipeline.cli.options import Archive, Json, Master, Memory, SparkOptions
from pipeline.cli.runs import errors_reported, opened_lake
from pipeline.cli.terminal import Terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRun:
    """Options of one round of the exchange."""

    peer: Annotated[str, typer.Option(help="Only with this partner.")] = ""
    master: Master = ""
    memory: Memory = "2g"
    archive: Archive = None
    json: Json = False


def serve(
    settings: Annotated[Path, typer.Option("--settings", metavar="FILE", help="Settings: a TOML file.")],
    master: Master = "",
    memory: Memory = "2g",
    archive: Archive = None,
) -> None:
    """Follow spools and run all jobs by a schedule, with metrics, health and alerts, until SIGTERM or Ctrl-C."""
    with errors_reported(as_json=False):
        from pipeline.lake.store_path import location
        from pipeline.partners.keys import load_signing_key
        from pipeline.segments.node_keys import load_trust
        from pipeline.serving.alert_sinks import sinks_of
        from pipeline.serving.settings import read_settings, store_environment

        chosen = read_settings(settings)
        if chosen.exchange is not None:
            load_signing_key(Path(chosen.exchange.key))
        sinks_of(chosen.alerts)  # so that a wrong file of credentials shows now
        os.environ.update(store_environment(chosen.store))  # which Spark and its workers inherit
        trust = load_trust(Path(chosen.keys) if chosen.keys else None, requires_signatures=chosen.require_signatures)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("py4j", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    stop = Event()
    options = SparkOptions(lake=location(chosen.lake), master=master, memory=memory, archive=archive)
    with opened_lake(options, makes=True) as lake:
        from pipeline.serving.loop import serve as work

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


@grouped
def exchange(
    settings: Annotated[Path, typer.Option("--settings", metavar="FILE", help="Settings of `serve`: a TOML file.")],
    runs: ExchangeRun,
) -> None:
    """Exchange extracts with all partners of the settings once, as `serve` does in each round."""
    with errors_reported(as_json=runs.json):
        from pipeline.lake.store_path import location
        from pipeline.serving.exchanging import exchange_of
        from pipeline.serving.settings import read_settings, store_environment

        chosen = read_settings(settings)
        what = exchange_of(chosen, runs.peer)
        os.environ.update(store_environment(chosen.store))
    terminal = Terminal(as_json=runs.json)
    options = SparkOptions(
        lake=location(chosen.lake), master=runs.master, memory=runs.memory, archive=runs.archive, json=runs.json
    )
    with opened_lake(options) as lake:
        from pipeline.jobs import partners

        terminal.job("exchange", lambda: partners.run(lake, what))
    terminal.end()
