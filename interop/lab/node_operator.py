"""Asks a node of ours to do what its operator can have it do, by the socket in its data folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import trio

from protofly.errors import Code, TransportError

_SOCKET_NAME: Final = "admin.sock"
_ANSWER_SECONDS: Final = 30.0
_ANSWER_BYTES: Final = 1 << 20


async def operate(data: Path, operation: str, arguments: dict[str, str]) -> object:
    """Perform one operation of the admin service; returns its result.

    Raises:
        TransportError: The node does not answer, or refuses.
    """
    request = json.dumps({"operation": operation, "arguments": arguments, "dry_run": False}).encode() + b"\n"
    folder = os.open(data, os.O_PATH)
    try:
        with trio.fail_after(_ANSWER_SECONDS):
            facts = json.loads(await _asked(folder, request))
    except (OSError, ValueError, trio.BrokenResourceError, trio.TooSlowError) as exc:
        raise TransportError(Code.NOT_CONNECTED, f"the node on {data} gives no answer: {exc!r}") from exc
    finally:
        os.close(folder)
    if "error" in facts:
        raise TransportError(Code.BAD_REPLY, f"{operation}: {facts['error'].get('detail')}")
    return facts["result"]


async def _asked(folder: int, request: bytes) -> bytes:
    """One line of answer. The folder is a descriptor: the path of a socket has to be short."""
    answer = b""
    async with await trio.open_unix_socket(f"/proc/self/fd/{folder}/{_SOCKET_NAME}") as stream:
        await stream.send_all(request)
        while not answer.endswith(b"\n") and (part := await stream.receive_some(_ANSWER_BYTES)):
            answer += part
    return answer
