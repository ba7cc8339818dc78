"""`trapezoid serve`: separate from other commands, so that a node does not load the command-line library."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from msg_node.settings.model import Settings
from protofly.errors import HostError
from trapezoid.log_output import set_up_log
from trapezoid.output import LOST_MESSAGES, errors_reported
from trapezoid.service_manager import notify_service_manager

if TYPE_CHECKING:
    from msg_node.admin.draining import Lost
    from sandbox.host import Sandbox

_Result = TypeVar("_Result")


def main(arguments: Sequence[str]) -> None:
    """Run a node until SIGINT or SIGTERM. Exits with 3 if messages were lost by the stop."""
    parser = argparse.ArgumentParser(prog="trapezoid serve", description="Run a node until SIGINT or SIGTERM.")
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="Configuration file, for example node.toml."
    )
    serve(parser.parse_args(arguments).config)


def serve(config: Path, *, sandbox: Sandbox | None = None) -> None:
    """Load the settings and run the node. Prints `ready {…}` on standard output once it serves.

    Exits with 3 if messages were lost when it stopped; the log says how many.

    Args:
        config: The settings file.
        sandbox: Runs the stubs in place of the real sandbox, whose cost a benchmark measures.
    """
    with errors_reported():
        from msg_node.settings.load import load_settings

        settings = load_settings(config)
        set_up_log(settings.log)
        from trapezoid.checking import check_start

        check_start(settings)
        lost = _run(settings, partial(load_settings, config), sandbox)
    if lost.messages:
        raise SystemExit(LOST_MESSAGES)


def _run(settings: Settings, read_settings: Callable[[], Settings], sandbox: Sandbox | None) -> Lost:
    from msg_node.app import serve as serve_node
    from msg_node.running import running_alone
    from trapezoid.renewal import node_renewal

    main = partial(
        serve_node,
        settings,
        on_ready=print_ready,
        sandbox=sandbox,
        renew=node_renewal(settings),
        read_settings=read_settings,
    )
    ports = tuple(one.port for one in (settings.listen, settings.site, settings.admin) if one is not None)
    with running_alone(settings.node.data_dir, ports):
        return run_services(main)


def run_services(main: Callable[[], Awaitable[_Result]]) -> _Result:
    """Run a program that runs services in nurseries, until it ends; returns what it returns.

    Raises:
        HostError: The first one, if a group has no other kind of error.
    """
    import trio

    try:
        return trio.run(main)
    except BaseExceptionGroup as group:
        ours, others = group.split(HostError)
        if ours is None or others is not None:
            raise
        raise _first(ours) from group


def _first(group: BaseExceptionGroup[HostError]) -> HostError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, HostError)
    return error


def print_ready(facts: dict[str, object]) -> None:
    """Print that the node serves, and where, as one line on standard output: `ready {…}`; notify a service manager."""
    sys.stdout.write(f"ready {msgspec.json.encode(facts).decode()}\n")
    sys.stdout.flush()
    notify_service_manager("READY=1")
