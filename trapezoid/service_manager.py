"""Notifies the service manager, if one started this program, that the program serves.

Source: systemd manual, "sd_notify".
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Final

_VARIABLE: Final = "NOTIFY_SOCKET"


def notify_service_manager(state: str) -> None:
    """Send a state such as `READY=1`. Does nothing without a service manager, or when it does not listen.

    The variable is taken out of the environment: programs that this one starts have nothing to report.
    """
    address = os.environ.pop(_VARIABLE, "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.sendall(state.encode())
