"""The PostgreSQL server of one domain of a laboratory.

Use: `python -m interop.lab.engine_service FOLDER PORT PASSWORD_FILE`.
It ends with SIGTERM, and recovers at its next start as after a crash.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import trio

from interop.domain_folders import ENGINE_USER
from interop.engine_server import EngineServer
from protofly.errors import SettingsError


async def serve(folder: Path, port: int, password: str) -> None:
    """Make the files if they are missing, start the server, and stop it when asked to.

    Raises:
        SettingsError: There is no PostgreSQL, or it does not start.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        server = EngineServer(folder, port, ENGINE_USER)
        await trio.to_thread.run_sync(server.create, password)
        try:
            await trio.to_thread.run_sync(server.start)
            sys.stdout.write(f"ready {json.dumps({'port': port})}\n")
            sys.stdout.flush()
            async for _ in signals:
                break
        finally:
            server.stop()


if __name__ == "__main__":
    try:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True, mode=0o700)
        trio.run(serve, Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]).read_text())
    except (SettingsError, OSError) as exc:
        sys.exit(str(exc))
