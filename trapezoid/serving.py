"""`trapezoid serve`: kept apart from other commands, so that a node carries no command-line library in its memory."""

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
    """Run a node until it is told to stop."""
    parser = argparse.ArgumentParser(prog="trapezoid serve", description="Run one node.")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings, for example node.toml")
    serve(parser.parse_args(arguments).config)


def serve(config: Path, *, sandbox: Sandbox | None = None) -> None:
    """Read the settings and run the node. Prints `ready {…}` on standard output once everything is up.

    Args:
        config: The settings file.
        sandbox: Where stubs run, when it is to be another than the real one: a benchmark measures what that costs.
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

    main = partial(serve_node, settings, on_ready=tell_ready, sandbox=sandbox, renew=node_renewal(settings))
    ports = tuple(one.port for one in (settings.listen, settings.site) if one is not None)
    with running_alone(settings.node.data_dir, ports):
        run_services(main)


def run_services(main: Callable[[], Awaitable[None]]) -> None:
    """Run what runs services in nurseries, until it ends.

    Raises:
        HostError: The first plain reason, when there is no other kind of error beside it.
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


def tell_ready(facts: dict[str, object]) -> None:
    """Say on standard output that everything is up, and where: `ready {…}`, one line."""
    sys.stdout.write(f"ready {msgspec.json.encode(facts).decode()}\n")
    sys.stdout.flush()
