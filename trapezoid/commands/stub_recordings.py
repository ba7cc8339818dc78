"""`trapezoid stub record` and `stub replay`: what stubs were given before they faulted, and the same once more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trapezoid.output import FOUND_WANTING, errors_reported, print_facts, print_rows

if TYPE_CHECKING:
    from federation.stubs.flight_recorder import Recordings
    from sandbox.core.recording import Recording

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration file, for example node.toml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def record(
    config: Config,
    domain: Annotated[str, typer.Option(help="Only recordings of this domain's stub.")] = "",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Open the newest one, and write it so that its author can read it."),
    ] = None,
    json: Json = False,
) -> None:
    """List the recordings of stubs that faulted (`record_bytes` of a peer), or open the newest one.

    A recording has messages, the peer's configuration and tokens in it, and the opened file is not encrypted: look at
    it (`stub replay --trace`) before you give it to anybody.
    """
    with errors_reported(as_json=json):
        from federation.stubs.flight_recorder import packed
        from msg_node.settings.load import load_settings
        from msg_node.wiring.recordings import recordings_of
        from protofly.errors import Code, HostError
        from stubkit.files import PRIVATE_FILE_MODE, replace_file

        recordings = recordings_of(load_settings(config))
        files = recordings.files(domain)
        if output is None:
            rows = [{"file": str(path), **_read_row(recordings, path)} for path in files]
            print_rows(rows, as_json=json)
            if any(not row["domain"] for row in rows):
                raise typer.Exit(FOUND_WANTING)
            return
        if not files:
            raise HostError(Code.NOT_REGISTERED, f"no recording{f' of {domain}' if domain else ''}")
        newest = max(files, key=lambda path: path.stat().st_mtime)
        recording = recordings.read(newest)
        replace_file(output, packed(recording), mode=PRIVATE_FILE_MODE)
        print_facts({"file": str(output), **_row(recording)}, as_json=json)


def _read_row(recordings: Recordings, path: Path) -> dict[str, object]:
    """The row of one file; one that cannot be read says why, and leaves the others theirs."""
    from protofly.errors import HostError

    try:
        return _row(recordings.read(path))
    except HostError as exc:
        nothing = dict.fromkeys(("domain", "stub", "sha256", "at"), "")
        return {**nothing, "exchanges": 0, "whole": False, "fault": str(exc)}


def _row(recording: Recording) -> dict[str, object]:
    from datetime import UTC, datetime

    return {
        "domain": recording.stub.domain,
        "stub": f"{recording.stub.name} {recording.stub.version}",
        "sha256": recording.stub.sha256,
        "at": datetime.fromtimestamp(recording.at, UTC).isoformat(timespec="seconds"),
        "exchanges": len(recording.exchanges),
        "whole": recording.is_whole,
        "fault": recording.fault,
    }


def replay(
    recording: Annotated[Path, typer.Argument(help="Recording, from `stub record --output`.")],
    module: Annotated[Path, typer.Argument(help="The recorded module, or a build of it with names.")],
    trace: Annotated[bool, typer.Option("--trace", help="Print every event, every action and their cost.")] = False,
    json: Json = False,
) -> None:
    """Play a recording again. Exits with 1 if the stub does not answer the same, or does not end in the same way."""
    with errors_reported(as_json=json):
        import dataclasses

        from federation.stubs.flight_recorder import is_sealed, opened, read_file
        from protofly.errors import SettingsError
        from stubkit.replay import replay as replay_module
        from stubkit.trace import Trace

        raw = read_file(recording)
        if is_sealed(raw):
            raise SettingsError(f"{recording}: sealed; `trapezoid stub record --config … --output FILE` opens it")
        played = Trace(typer.echo) if trace and not json else Trace()
        result = replay_module(module, opened(recording, raw), played)
        facts = dataclasses.asdict(result) | {"same": result.is_same}
        if json:
            print_facts(facts | ({"trace": list(played.entries)} if trace else {}), as_json=True)
        else:
            kept = "whole" if result.is_whole else "NOT whole: the middle is missing"
            print_facts(
                {
                    "exchanges": f"{result.exchanges}, {kept}",
                    "module": "the recorded one" if result.is_same_module else "another build than the recorded one",
                    "recorded fault": result.recorded_fault or "none",
                    "fault": result.fault or "none",
                    "verdict": "the same" if result.is_same else result.difference or "another end",
                },
                as_json=False,
            )
    raise typer.Exit(0 if result.is_same else FOUND_WANTING)
