"""Recordings of conversations, as operators start, stop and list them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from msg_node.admin.administered import Administered
from msg_node.admin.core.operations import Value
from msg_node.admin.core.pages import Row
from msg_node.admin.core.plan import Plan
from msg_node.bus.recorder import BY_OPERATOR, Recorder, RecordingTerms
from msg_node.records.conversation_file import ConversationFile, fresh_path, recordings_in
from msg_node.settings.recording import recording_key, recordings_folder
from msg_node.settings.tables.recording import RecordingSettings
from protofly.address import canonical_key, valid_domain
from protofly.conversation import ConversationRule
from protofly.errors import Code, PeerError

Arguments = Mapping[str, Value]


def start_recording(node: Administered, arguments: Arguments, by: str) -> Plan:
    """Record what passes between two sides, for a time."""
    recorder, chosen = _recorder(node)
    if recorder.facts is not None:
        raise PeerError(Code.BAD_BODY, "a recording is under way; `recording stop` ends it")
    seconds = float(arguments["for"])
    if not 0 < seconds <= chosen.max_seconds:
        raise PeerError(Code.BAD_BODY, f"`for`: at most {chosen.max_seconds:g} s, by recording.max_seconds")
    terms = RecordingTerms(
        rule=ConversationRule(one=_side(arguments, "from"), other=_side(arguments, "to")),
        has_bodies=bool(arguments.get("bodies", False)),
        seconds=seconds,
        max_bytes=chosen.max_bytes,
        by=by,
    )
    moment = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{node.settings().node_id}"
    name = str(arguments.get("name") or moment)
    path = fresh_path(recordings_folder(node.settings()), name, most=chosen.max_files)
    opened: list[ConversationFile] = []

    def store() -> None:
        opened.append(ConversationFile(path, recording_key(chosen)))

    after = {"file": str(path), "seconds": seconds, "max_bytes": terms.max_bytes, "bodies": terms.has_bodies}
    return Plan(None, after, lambda: recorder.start(opened[0], terms), store)


def stop_recording(node: Administered, _arguments: Arguments, _by: str) -> Plan:
    """End the recording under way."""
    recorder, _ = _recorder(node)
    if recorder.facts is None:
        raise PeerError(Code.NOT_REGISTERED, "nothing is being recorded")
    return Plan(recorder.facts, None, lambda: recorder.stop(BY_OPERATOR))


def recordings(node: Administered) -> Iterator[Row]:
    """The recordings in the folder, oldest first; the one under way with what it has so far."""
    running = None if node.recorder is None else node.recorder.facts
    if node.settings().recording is None:
        return
    for path in recordings_in(recordings_folder(node.settings())):
        is_running = running is not None and running["file"] == str(path)
        try:
            found = path.stat()
        except OSError:
            continue  # moved away meanwhile
        yield {
            "file": str(path),
            "state": "recording" if is_running else "done",
            "written_bytes": found.st_size,
            "written_at": round(found.st_mtime, 3),
            "age_seconds": round(max(0.0, time.time() - found.st_mtime), 1),
            **({name: value for name, value in running.items() if name != "file"} if is_running and running else {}),
        }


def _recorder(node: Administered) -> tuple[Recorder, RecordingSettings]:
    chosen = node.settings().recording
    if node.recorder is None or chosen is None:
        raise PeerError(
            Code.NO_SUCH_SERVICE, "this node records nothing: the settings have no [recording] with a `key_file`"
        )
    return node.recorder, chosen


def _side(arguments: Arguments, name: str) -> str:
    """One side of a conversation, as rules compare it. Raises PeerError: BAD_BODY or NAME_INVALID."""
    text = str(arguments.get(name, ""))
    if not text:
        return ""
    if ":" not in text:
        valid_domain(text)
        return text.lower()
    try:
        return f"{canonical_key(text[:-1])}*" if text.endswith("*") else canonical_key(text)
    except PeerError as exc:
        raise PeerError(Code.BAD_BODY, f"`{name}`: an address, one with a final `*`, or a domain") from exc


PLANNERS: Final = {"recording start": start_recording, "recording stop": stop_recording}
"""All changes by the name of their operation."""
