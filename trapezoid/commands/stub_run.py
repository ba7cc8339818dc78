"""`trapezoid stub run`: a stub against its author's own server, or against a script, without any node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.option_groups import grouped
from trapezoid.output import FOUND_WANTING, errors_reported, print_facts, print_rows

if TYPE_CHECKING:
    from stubkit.scripted_run import CaseResult
    from stubkit.trial_link import LiveRequest, LiveResult

DEFAULT_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class FarEndOptions:
    """Options of the far end of a stub: endpoints, domains, proofs, and the configuration it starts with."""

    endpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=URL", help="Endpoint that the stub may open, for example mn=ws://localhost:8080."),
    ] = None
    configuration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON object that the stub gets as its configuration.")
    ] = None
    our_domain: Annotated[str, typer.Option(help="Domain that hosts the stub.")] = "a.example"
    peer_domain: Annotated[str, typer.Option(help="Domain whose stub it is.")] = "b.example"
    needs_auth: Annotated[
        bool, typer.Option("--auth/--no-auth", help="Whether the stub's protocol proves the nodes to each other.")
    ] = True
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates to trust besides those of the system.")
    ] = None
    send: Annotated[
        list[str] | None,
        typer.Option(metavar="JSON|FILE", help="Message to send, or a file with one on each line. Repeatable."),
    ] = None
    deliveries: Annotated[int, typer.Option(help="Run until so many messages have come.", min=0)] = 0
    seconds: Annotated[
        float | None, typer.Option(help="Longest run. Default: 10, or until Ctrl-C with nothing to wait for.", min=0)
    ] = None


@dataclass(frozen=True, kw_only=True)
class ScriptOptions:
    """The script in place of a far end, and what is printed."""

    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Play the cases of this file in virtual time instead.")
    ] = None
    case: Annotated[list[str] | None, typer.Option(help="Name of a case to play. Default: all. Repeatable.")] = None
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results of the cases as JUnit.")] = None
    trace: Annotated[bool, typer.Option("--trace", help="Print every event, every action and their cost.")] = False
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


@grouped
def run(
    module: Annotated[Path, typer.Argument(help="WebAssembly module of the stub.")],
    far_end: FarEndOptions,
    options: ScriptOptions,
) -> None:
    """Run a stub against your own server, or against a script, without a node. Exits with 1 if it does not do well.

    Lines, budgets and permissions are those of a node. Tokens are signed with a key made for the run, and tokens of the
    far end are not checked.
    """
    with errors_reported(as_json=options.json):
        is_good = _run_script(module, options) if options.script else _run_live(module, far_end, options)
    raise typer.Exit(0 if is_good else FOUND_WANTING)


def _run_live(module: Path, far_end: FarEndOptions, options: ScriptOptions) -> bool:
    import msgspec

    from protofly.errors import SettingsError
    from stubkit.live_run import run_live
    from stubkit.trace import Trace

    if options.case or options.junit:
        raise SettingsError("--case and --junit belong to --script")
    is_shown = options.trace and not options.json
    trace = Trace(_print_line) if is_shown else Trace()
    result = run_live(module, _request(module, far_end), trace)
    facts: dict[str, Any] = msgspec.to_builtins(result)
    if options.json:
        print_facts(facts | ({"trace": list(trace.entries)} if options.trace else {}), as_json=True)
    else:
        print_facts(_live_facts(facts, result), as_json=False)
    return result.is_good


def _live_facts(facts: dict[str, Any], result: LiveResult) -> dict[str, Any]:
    """The result for people: only what happened, and what follows from it."""
    shown = {
        name: value for name, value in facts.items() if value not in ("", []) and name not in ("is_good", "took_token")
    }
    shown["refused"] = [f"{one['number']}: {one['code']} {one['detail']}".strip() for one in result.refused] or "none"
    if result.took_token:
        shown["note"] = "the far end's token was taken without a check: a node checks it with published keys"
    return shown | {"verdict": "good" if result.is_good else "not good"}


def _request(module: Path, far_end: FarEndOptions) -> LiveRequest:
    from protofly.errors import SettingsError
    from stubkit.trial_link import LiveRequest

    urls = dict(one.partition("=")[::2] for one in far_end.endpoint or ())
    if not all(urls.values()):
        raise SettingsError("--endpoint NAME=URL: the URL is missing")
    messages = [raw for one in far_end.send or () for raw in _messages(one)]
    has_end = bool(messages or far_end.deliveries)
    return LiveRequest(
        endpoints=urls,
        messages=messages,
        configuration=_configuration(module, far_end.configuration),
        our_domain=far_end.our_domain,
        peer_domain=far_end.peer_domain,
        needs_auth=far_end.needs_auth,
        authority=far_end.ca,
        deliveries=far_end.deliveries,
        seconds=far_end.seconds if far_end.seconds is not None or not has_end else DEFAULT_SECONDS,
    )


def _messages(given: str) -> list[bytes]:
    """The messages of one `--send`: the text itself, or the lines of a file."""
    from protofly.errors import SettingsError

    if given.lstrip().startswith("{"):
        return [given.encode("utf-8", "surrogateescape")]
    try:
        lines = Path(given).read_bytes().splitlines()
    except OSError as exc:
        raise SettingsError(f"--send {given}: {exc.strerror}") from exc
    return [line for line in lines if line.strip()]


def _configuration(module: Path, file: Path | None) -> dict[str, object]:
    """The configuration in a file; it fits the schema that the stub states."""
    import msgspec

    from msg_node.kernel.data_schemas import check_configuration
    from protofly.errors import PeerError, SettingsError
    from sandbox.core.module_check import inspect_module
    from stubkit.sandboxed import module_named, read_module

    configuration: dict[str, object] = {}
    if file is not None:
        try:
            configuration = msgspec.json.decode(file.read_bytes(), type=dict[str, object])
        except OSError as exc:
            raise SettingsError(f"{file}: {exc.strerror}") from exc
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise SettingsError(f"{file}: {exc}") from exc
    with module_named(module):
        schema = inspect_module(read_module(module)).configuration
    if schema:
        try:
            check_configuration(schema, configuration)
        except PeerError as exc:
            raise SettingsError(f"{file or 'no configuration'}: {exc.detail}; see --configuration") from exc
    return configuration


def _run_script(module: Path, options: ScriptOptions) -> bool:
    import msgspec

    from stubkit.cases import load_script
    from stubkit.files import replace_file
    from stubkit.junit import JunitCase, junit_xml
    from stubkit.scripted_run import play_script

    assert options.script is not None
    results = play_script(module, load_script(options.script), names=options.case or ())
    is_good = not any(result.problem for result in results)
    if options.junit is not None:
        cases = [JunitCase(name=one.name, seconds=one.seconds, problem=one.problem) for one in results]
        replace_file(options.junit, junit_xml(f"stub run {options.script.name}", cases))
    if options.json:
        rows: list[dict[str, Any]] = [msgspec.to_builtins(one) | {"problem": one.problem} for one in results]
        for row in rows:
            if not options.trace:
                del row["trace"]
        print_facts({"good": is_good, "cases": rows}, as_json=True)
        return is_good
    for result in results:
        if options.trace:
            _print_case(result)
    print_rows([_case_row(result) for result in results], as_json=False)
    return is_good


def _print_case(result: CaseResult) -> None:
    from stubkit.trace import trace_lines

    typer.echo(f"{result.name}:")
    for entry in result.trace:
        for line in trace_lines(entry):
            _print_line(line)
    typer.echo()


def _case_row(result: CaseResult) -> dict[str, object]:
    return {
        "case": result.name,
        "steps": len(result.steps),
        "calls": sum(step.calls for step in result.steps),
        "most fuel": f"{max(step.fuel for step in result.steps):,}",
        "memory": f"{max(step.memory_bytes for step in result.steps) >> 10:,} KiB",
        "result": result.problem or "good",
    }


def _print_line(line: str) -> None:
    typer.echo(line)
