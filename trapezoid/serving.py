"""`trapezoid serve`: separate from other commands, so that a node does not load the command-line library."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from msg_node.settings.model import Settings
from protofly.errors import HostError
from trapezoid.log_output import set_up_log
from trapezoid.output import errors_reported

if TYPE_CHECKING:
    from sandbox.host import Sandbox


def main(arguments: Sequence[str]) -> None:
    """Run a node until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="trapezoid serve", description="Run a node until SIGINT or SIGTERM.")
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="Configuration file, for example node.toml."
    )
    serve(parser.parse_args(arguments).config)


def serve(config: Path, *, sandbox: Sandbox | None = None) -> None:
    """Load the settings and run the node. Prints `ready {…}` on standard output once it serves.

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
        _run(settings, sandbox)


def _run(settings: Settings, sandbox: Sandbox | None) -> None:
    from msg_node.app import serve as serve_node
    from msg_node.running import running_alone
    from trapezoid.renewal import node_renewal

    main = partial(serve_node, settings, on_ready=print_ready, sandbox=sandbox, renew=node_renewal(settings))
    ports = tuple(one.port for one in (settings.listen, settings.site) if one is not None)
    with running_alone(settings.node.data_dir, ports):
        run_services(main)


def run_services(main: Callable[[], Awaitable[None]]) -> None:
    """Run a program that runs services in nurseries, until it ends.

    Raises:
        HostError: The first one, if a group has no other kind of error.
    """
    import trio

    try:
        trio.run(main)
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
    """Print that the node serves, and where, as one line on standard output: `ready {…}`."""
    sys.stdout.write(f"ready {msgspec.json.encode(facts).decode()}\n")
    sys.stdout.flush()
