"""Alerts by e-mail: one message for all that are new, in plain text.

Domains and addresses in alerts are what strangers have written. They are in the body only, without anything that could
steer a terminal; the header has counts and our own settings.
"""

from __future__ import annotations

import smtplib
import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import Any, Final

from pipeline.core.harmless import harmless
from pipeline.serving.settings import Email, Login

TIMEOUT_S: Final = 10.0
_FACTS: Final = ("pattern", "severity", "our_domain", "peer_domain", "subject", "observed", "threshold")


@dataclass(frozen=True, slots=True)
class Mailbox:
    """Receives alerts by SMTP.

    Attributes:
        address: Whose.
        settings: From whom, and by which server.
        login: How to get in there; None: without.
    """

    address: str
    settings: Email
    login: Login | None = None

    @property
    def url(self) -> str:
        """The name by which warnings and `alert_sent` call it."""
        return f"mailto:{self.address}"

    @property
    def name(self) -> str:
        """The same."""
        return self.url

    def send(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        """Send some. Raises OSError (`smtplib` and `ssl` derive from it): they were not accepted."""
        with _connected(self.settings) as server:
            if self.login is not None:
                server.login(self.login.username, self.login.password)
            server.send_message(letter(self.address, self.settings.sender, alerts))


def _connected(settings: Email) -> smtplib.SMTP:
    """A connection to the server, whose certificate was checked unless it is on this machine. Raises OSError."""
    context = ssl.create_default_context()
    if settings.security == "tls":
        return smtplib.SMTP_SSL(settings.host, settings.port, timeout=TIMEOUT_S, context=context)
    server = smtplib.SMTP(settings.host, settings.port, timeout=TIMEOUT_S)
    if settings.security == "starttls":
        try:
            server.starttls(context=context)
        except BaseException:
            server.close()
            raise
    return server


def letter(receiver: str, sender: str, alerts: Sequence[Mapping[str, Any]]) -> EmailMessage:
    """The message about these alerts, of which there is at least one."""
    message = EmailMessage()
    counts = Counter(str(alert["severity"]) for alert in alerts)
    message["Subject"] = "Trapezoid: " + ", ".join(f"{counts[name]} {name}" for name in sorted(counts))
    message["From"] = sender
    message["To"] = receiver
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2])
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(map(_paragraph, alerts)))
    return message


def _paragraph(alert: Mapping[str, Any]) -> str:
    start = datetime.fromtimestamp(alert["hour_us"] // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [f"{start}: {harmless(str(alert['explanation'] or ''))}"]
    lines += [f"  {name}: {harmless(str(alert[name]))}" for name in _FACTS if alert.get(name) is not None]
    if alert["proposed_policy"]:
        lines += ["  policy to consider, after a replay:"]
        lines += [f"    {harmless(line)}" for line in str(alert["proposed_policy"]).splitlines()]
    return "\n".join([*lines, ""])
