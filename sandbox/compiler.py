"""What a compile child does: one module in, machine code or a refusal out, then it ends.

Upstream says that compile-time denial of service is not a security bug, so this runs in a process of its own with
limits of its own: 1 GiB of address space, 15 s of CPU, and the host's 30 s of wall time. It is confined like a
worker, because it reads hostile bytes too.
"""

from __future__ import annotations

from protofly.errors import PeerError
from sandbox.core.frames import COMMAND, GuestFault, Reply, encode_reply
from sandbox.engine import Engine
from sandbox.worker import read_frame, write_all


def compile_one(engine: Engine) -> None:
    """Read one LOAD frame whose block is the module, answer it."""
    frame = read_frame()
    if frame is None:
        return
    try:
        reply = Reply(GuestFault.NONE, 0, 0, 0, [engine.compile(frame[COMMAND.size :])], "")
    except PeerError as error:
        reply = Reply(GuestFault.REFUSED, 0, 0, 0, [], error.detail)
    write_all(encode_reply(reply))
