"""Asks a running node on this machine, by the socket in its data folder."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Final

import msgspec

from msg_node.admin.admin_socket import SOCKET_NAME, short_path
from msg_node.running import running_node
from protofly.errors import Code, HostError, PeerError, SettingsError, TransportError

ANSWER_SECONDS: Final = 60.0
_ANSWER_BYTES: Final = 64 << 20
_CODES: Final = {(code.status, code.word): code for code in Code}


def ask_node(
    data_dir: Path,
    operation: str,
    arguments: dict[str, Any],
    *,
    dry_run: bool = False,
    seconds: float = ANSWER_SECONDS,
) -> Any:
    """Perform one operation of the admin service; returns its result. Each wait for the node lasts `seconds` at most.

    Raises:
        SettingsError: No node runs on this folder, or its socket is not for this user.
        PeerError: The node refuses the operation.
        TransportError: It does not answer.
    """
    request = {"operation": operation, "arguments": arguments, "dry_run": dry_run}
    with _connected(data_dir) as connection:
        connection.settimeout(seconds)
        try:
            connection.sendall(msgspec.json.encode(request) + b"\n")
            with connection.makefile("rb") as lines:
                line = lines.readline(_ANSWER_BYTES)
            answer = msgspec.json.decode(line)
        except (OSError, msgspec.MsgspecError) as exc:
            raise TransportError(Code.CONNECT_FAILED, f"the node on {data_dir} gives no answer: {exc}") from exc
    if "error" in answer:
        raise _error_of(answer["error"])
    return answer["result"]


def ask_if_running(data_dir: Path, operation: str, arguments: dict[str, Any]) -> bool:
    """Have the node that runs on a folder make a change, which it records; False if none runs. Raises HostError."""
    if running_node(data_dir) is None:
        return False
    ask_node(data_dir, operation, arguments)
    return True


def _connected(data_dir: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(ANSWER_SECONDS)
    try:
        with short_path(data_dir, SOCKET_NAME) as path:
            connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError) as exc:
        connection.close()
        raise SettingsError(f"no node runs on {data_dir}: start it, or name its settings with --config") from exc
    except OSError as exc:
        connection.close()
        raise SettingsError(f"{data_dir / SOCKET_NAME}: {exc.strerror}; run this as the user of the node") from exc
    return connection


def _error_of(facts: dict[str, Any]) -> HostError:
    code = _CODES.get((facts["status"], facts["code"]), Code.INTERNAL)
    return PeerError(code, str(facts["detail"]))
