"""The name server of a kept laboratory, as a process: `python -m interop.lab.name_service FILE PORT`.

`FILE` holds the records as JSON: name, then records as in a zone file.
"""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from pathlib import Path

import msgspec
import trio

from interop.name_server import NameServer


async def serve(server: NameServer, port: int) -> None:
    """Serve until SIGTERM."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            taken = await nursery.start(partial(server.run, port=port))
            sys.stdout.write(f"ready {json.dumps({'port': taken})}\n")
            sys.stdout.flush()
            async for _ in signals:
                nursery.cancel_scope.cancel()
                break


if __name__ == "__main__":
    names = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=dict[str, list[str]])
    trio.run(serve, NameServer(names), int(sys.argv[2]))
