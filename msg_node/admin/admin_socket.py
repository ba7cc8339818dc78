"""The admin service on a Unix socket in the data folder: for the command line on the same machine.

One request and one reply per line, both JSON. Only the user of the node and root may connect: the socket has mode 0600,
and each client is asked for by its credentials, which the kernel knows.

    {"operation": "sessions", "arguments": {"where": "state=live"}}
    {"result": {"rows": [], "total": 0, "next": null}}
    {"error": {"code": "bad-body", "status": 400, "detail": "…"}}
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pwd
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import trio

from msg_node.admin.administration import Actor, Administration
from msg_node.admin.core.operations import REQUEST_BYTES, AdminRequest, error_facts
from protofly.errors import Code, HostError, SettingsError

logger = logging.getLogger("msg_node")

SOCKET_NAME: Final = "admin.sock"
CLIENTS: Final = 16
IDLE_SECONDS: Final = 60.0
MACHINE_ID: Final = Path("/etc/machine-id")
_MACHINE_CHARS: Final = 16
_CREDENTIALS: Final = "3i"
_decoder = msgspec.json.Decoder(AdminRequest)


class AdminSocket:
    """Serves the admin service on the socket of a data folder.

    Args:
        folder: The data folder; it exists.
        administration: Performs the requests.
    """

    def __init__(self, folder: Path, administration: Administration) -> None:
        self._folder = folder
        self._administration = administration
        self._machine = this_machine()
        self._places = trio.CapacityLimiter(CLIENTS)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled.

        Raises:
            SettingsError: The socket cannot be made.
        """
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(_listen(self._folder)))
        try:
            task_status.started()
            await trio.serve_listeners(self._serve, [listener])
        finally:
            (self._folder / SOCKET_NAME).unlink(missing_ok=True)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            self._places.acquire_on_behalf_of_nowait(stream)
        except trio.WouldBlock:
            await stream.aclose()
            return
        try:
            async with stream:
                actor = _actor_of(stream, self._machine)
                if actor is not None:
                    await self._answer_lines(stream, actor)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except Exception:  # a defect here costs this client, never the node
            logger.exception("the admin socket failed")
        finally:
            self._places.release_on_behalf_of(stream)

    async def _answer_lines(self, stream: trio.SocketStream, actor: Actor) -> None:
        buffer = b""
        while len(buffer) <= REQUEST_BYTES:
            line, has_end, rest = buffer.partition(b"\n")
            if has_end:
                await stream.send_all(await self._reply(line, actor) + b"\n")
                buffer = rest
                continue
            with trio.move_on_after(IDLE_SECONDS) as idle:
                data = await stream.receive_some()
            if idle.cancelled_caught or not data:
                return
            buffer += data

    async def _reply(self, line: bytes, actor: Actor) -> bytes:
        try:
            request = _decoder.decode(line)
            return msgspec.json.encode({"result": await self._administration.perform(request, actor)})
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            error = HostError(Code.BAD_BODY, f"no request: {exc}")
        except HostError as exc:
            error = exc
        return msgspec.json.encode({"error": error_facts(error)})


def this_machine() -> str:
    """Names this machine: where the numbers of its users mean persons. A container is a machine of its own."""
    try:
        machine_id = MACHINE_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):  # as in most containers, which have names of their own
        machine_id = ""
    return hashlib.sha256(f"{machine_id} {socket.gethostname()}".encode()).hexdigest()[:_MACHINE_CHARS]


def _actor_of(stream: trio.SocketStream, machine: str) -> Actor | None:
    """The user at the other end; None for one who may not ask."""
    size = struct.calcsize(_CREDENTIALS)
    raw = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _pid, uid, _gid = struct.unpack(_CREDENTIALS, raw)
    if uid not in (0, os.geteuid()):
        logger.warning("user %d may not use the admin socket", uid)
        return None
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a user without a name, as in many containers
        name = str(uid)
    return Actor(name, "socket", f"user {uid}", machine)


@contextlib.contextmanager
def short_path(folder: Path, name: str) -> Iterator[str]:
    """A path of a file in a folder that is short enough for a socket, however long that of the folder is.

    Raises:
        OSError: The folder cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def _listen(folder: Path) -> socket.socket:
    """Make the listening socket of a folder, with mode 0600. A node runs alone on its folder.

    Raises:
        SettingsError: It cannot be made.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = folder / SOCKET_NAME
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)
        with short_path(folder, SOCKET_NAME) as short:
            listener.bind(short)
        listener.listen(CLIENTS)
    except OSError as exc:
        listener.close()
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    finally:
        os.umask(before)
    return listener
