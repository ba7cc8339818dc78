"""`trapezoid serve`: separate from other commands, so that a node does not load the command-line library."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from msg_node.settings.model import Settings
from protofly.errors import HostError, SettingsError
from trapezoid.log_output import set_up_log
from trapezoid.output import LOST_MESSAGES, errors_reported
from trapezoid.service_manager import notify_service_manager

if TYPE_CHECKING:
    from msg_node.admin.draining import Lost
    from msg_node.site.site import AskOthers
    from sandbox.host import Sandbox

_PROCESSES: Final = "TRAPEZOID__NODE__PROCESSES"
_Result = TypeVar("_Result")


def main(arguments: Sequence[str]) -> None:
    """Run a node until SIGINT or SIGTERM. Exits with 3 if messages were lost by the stop."""
    parser = argparse.ArgumentParser(prog="trapezoid serve", description="Run a node until SIGINT or SIGTERM.")
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="Configuration file, for example node.toml."
    )
    parser.add_argument(
        "--processes",
        type=_count,
        metavar="N",
        help="Processes that serve together, or auto for one per core; over node.processes.",
    )
    parser.add_argument("--process", type=int, default=0, help=argparse.SUPPRESS)  # which of them this is
    given = parser.parse_args(arguments)
    if given.process:
        with errors_reported():
            _serve_process(given.config, given.process)
        return
    serve(given.config, processes=given.processes)


def _count(text: str) -> int:
    """The value of `--processes`; 0 for `auto`."""
    if text == "auto":
        return 0
    if not text.isdecimal():
        raise argparse.ArgumentTypeError("give a number, or auto for one per core")
    return int(text)


def serve(config: Path, *, processes: int | None = None, sandbox: Sandbox | None = None) -> None:
    """Load the settings and run the node. Prints `ready {…}` on standard output once it serves.

    Exits with 3 if something was lost when it stopped; the log says what.

    Args:
        config: The settings file.
        processes: How many serve together, over the settings; 0: one for each core.
        sandbox: Runs the stubs in place of the real sandbox, whose cost a benchmark measures.
    """
    with errors_reported():
        from msg_node.settings.load import load_settings
        from trapezoid.process_environment import count_of

        if processes is not None:
            os.environ[_PROCESSES] = str(processes)
        try:
            settings = load_settings(config)
        except SettingsError as exc:
            raise SettingsError(exc.detail.replace(f"{_PROCESSES}: node.processes", "--processes")) from exc
        set_up_log(settings.log)
        from trapezoid.checking import check_start

        check_start(settings)
        count = count_of(settings.node.processes)
        if count > 1:
            code = _run_processes(settings, config, count)
            if code:
                raise SystemExit(code)
            return
        lost = _run(settings, config, partial(load_settings, config), sandbox)
    if not lost.is_complete:
        raise SystemExit(LOST_MESSAGES)


def _serve_process(config: Path, number: int) -> None:
    """Serve as one of several processes, until it is to end or its parent has ended."""
    from msg_node.settings.load import load_settings
    from trapezoid.process_admin import ask_others

    def read() -> Settings:
        settings = load_settings(config)
        # A console and a broker's client that all processes had would each see a part.
        return settings if number == 1 else msgspec.structs.replace(settings, admin=None, mqtt=None)

    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    settings = read()
    set_up_log(settings.log, process=number)
    data_dir = settings.node.data_dir if number == 1 else settings.node.data_dir.parent.parent
    others = partial(ask_others, data_dir, number, settings.node.processes)
    if not _run(settings, config, read, None, (number, others)).is_complete:
        raise SystemExit(LOST_MESSAGES)


def _end_with_parent() -> None:
    """Ask this process to end when nobody has the other end of its standard input any more."""
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _reserved(named: str, host: str, port: int) -> Iterator[int]:
    """Keep an address for the processes of this node; gives its port. Raises SettingsError."""
    from msg_node.connectors.shared_listeners import reserve

    try:
        sockets = reserve(host, port)
    except OSError as exc:
        raise SettingsError(f"[{named}] {host} port {port}: {exc.strerror}") from exc
    try:
        yield int(sockets[0].getsockname()[1])
    finally:
        for one in sockets:
            one.close()


def _run_processes(settings: Settings, config: Path, count: int) -> int:
    """Run the node as several processes; returns the worst exit code."""
    from msg_node.process_tuning import settle_memory
    from msg_node.running import running_alone
    from trapezoid.process_environment import PROCESSES, Ports, bus_folder, environment_of, prepare_folders
    from trapezoid.process_supervisor import ChildCommand, ProcessSupervisor, serve_command

    def print_all_ready(facts: dict[int, dict[str, object]]) -> None:
        first = {name: value for name, value in facts[1].items() if name != "zygote_pid"}
        each = [{"process": number, "node": one["node"], "pid": one["pid"]} for number, one in sorted(facts.items())]
        print_ready({**first, "pid": os.getpid(), "processes": each})

    settle_memory()
    prepare_folders(settings, count)
    folder = settings.node.data_dir / PROCESSES
    with contextlib.ExitStack() as stack:
        stack.enter_context(running_alone(folder, ()))
        site = settings.site
        ports = Ports(
            stack.enter_context(_reserved("listen", settings.listen.host, settings.listen.port)),
            0 if site is None else stack.enter_context(_reserved("site", site.host, site.port)),
        )
        bus = stack.enter_context(bus_folder(folder))
        outer = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        commands = {
            number: ChildCommand(
                serve_command(config, number), outer | environment_of(settings, number, count, ports, bus)
            )
            for number in range(1, count + 1)
        }
        return run_services(ProcessSupervisor(commands, print_all_ready).run)


def _run(
    settings: Settings,
    config: Path,
    read_settings: Callable[[], Settings],
    sandbox: Sandbox | None,
    processes: tuple[int, AskOthers] | None = None,
) -> Lost:
    from msg_node.app import ProgramParts
    from msg_node.app import serve as serve_node
    from msg_node.running import running_alone
    from trapezoid.peer_check.beside import check_beside
    from trapezoid.record_search import find_beside
    from trapezoid.renewal import node_renewal

    main = partial(
        serve_node,
        settings,
        on_ready=print_ready,
        sandbox=sandbox,
        program=ProgramParts(
            node_renewal(settings), partial(check_beside, config.absolute()), partial(find_beside, config.absolute())
        ),
        read_settings=read_settings,
        processes=processes,
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
