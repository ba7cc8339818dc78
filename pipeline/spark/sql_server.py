"""The SQL server: Spark Connect over the views of a lake, on loopback, for those who have a token.

Spark checks the token of each request, and nothing else: clients that have it can run what this process can.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any, Final

from pipeline.lake import durable
from pipeline.lake.sql_views import SETTINGS, SqlViews
from pipeline.lake.tables import Lake
from pipeline.spark.session import FOR_SQL
from protofly.errors import SettingsError

TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105
"""Where Spark looks for the token. A setting of Spark would be in the arguments of its Java, which everybody sees."""
_TOKEN_CHARACTERS: Final = 32


def settings_of(port: int) -> dict[str, str]:
    """Settings of a session that listens; port 0: any that is free."""
    return {
        **SETTINGS,
        **FOR_SQL,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }


def token_of(path: Path) -> str:
    """The token in a file; a missing file is made, with a new one, for its owner only.

    Raises:
        SettingsError: Others can read the file, or what is in it is no token, or a short one.
        OSError: The file cannot be read or made.
    """
    if not path.exists():
        token = secrets.token_urlsafe(_TOKEN_CHARACTERS)
        durable.publish_once(path, f"{token}\n".encode())
        path.chmod(0o600)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SettingsError(f"{path}: others can read this file: chmod 600 it, and put a new token in")
    token = path.read_bytes().strip().decode("ascii", "replace")
    if len(token) < _TOKEN_CHARACTERS or not (token.isascii() and token.isprintable()):
        raise SettingsError(
            f"{path}: a token has {_TOKEN_CHARACTERS} printable characters or more: remove the file for a new one"
        )
    return token


def may_change(lake: Lake) -> bool:
    """True if the user of this process can write to the lake; what it may do in a store is not known here."""
    return isinstance(lake.folder, Path) and os.access(lake.folder, os.W_OK)


def keep_open(lake: Lake, *, every_s: float, stop: Event, on_open: Callable[[int, int], None]) -> None:
    """Listen, and keep the views new until `stop` is set.

    It listens when there are views. Spark's own plugin listens before there is a session: a client that came then made
    one, with a catalogue of its own, and nobody ever saw the views.

    Args:
        lake: In a session with `settings_of`.
        every_s: How often it is looked for newer versions.
        stop: Set by somebody else.
        on_open: Called once with the port and the number of views.

    Raises:
        LakeError: As the lake does.
    """
    views = SqlViews(lake)
    made = views.refresh()
    java: Any = lake.spark.sparkContext._jvm  # noqa: SLF001
    service = getattr(getattr(java.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    service.start(lake.spark.sparkContext._jsc.sc())  # noqa: SLF001
    try:
        on_open(int(service.localPort()), len(made))
        while not stop.wait(every_s):
            views.refresh()
    finally:
        service.stop(getattr(service, "stop$default$1")(), getattr(service, "stop$default$2")())
