"""Who enters something into the lake, and why."""

from __future__ import annotations

import getpass
import socket
from typing import Final, NamedTuple

from protofly.errors import SettingsError

_REASON_CHARS: Final = 500


class OperatorWord(NamedTuple):
    """The account and the machine of an operator, and the reason."""

    who: str
    why: str

    @classmethod
    def now(cls, why: str) -> OperatorWord:
        """That of the account that runs this process. Raises SettingsError: no reason."""
        reason = why.strip()[:_REASON_CHARS]
        if not reason:
            raise SettingsError("say why with --why: others will read it in the evidence")
        return cls(f"{getpass.getuser()}@{socket.gethostname()}", reason)
