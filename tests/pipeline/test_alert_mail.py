"""Alerts by e-mail, to a real mail server on loopback."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope

from pipeline.jobs.result import ExitCode
from pipeline.lake.tables import Lake
from pipeline.serving.alert_mail import letter
from pipeline.serving.alert_sinks import send_new, sinks_of
from pipeline.serving.settings import Alerts, Email, read_settings
from protofly.errors import SettingsError
from tests.pipeline.object_store import reserved
from tests.pipeline.test_serve_parts import MINIMAL, alert, commit

PASSWORD = "hunter2"
HOSTILE = "eve\r\nBcc: all@a.example\x1b[2J"


class Server:
    """Takes mail for everybody but `full@a.example`."""

    def __init__(self) -> None:
        self.letters: list[tuple[str, EmailMessage]] = []

    async def handle_RCPT(  # noqa: N802
        self, _server: Any, _session: Any, envelope: Envelope, address: str, _options: Any
    ) -> str:
        if address == "full@a.example":
            return "452 mailbox full"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:  # noqa: N802
        parsed = message_from_bytes(cast("bytes", envelope.content), policy=policy.default)
        self.letters += [(address, parsed) for address in envelope.rcpt_tos]
        return "250 OK"


@contextmanager
def running(**options: Any) -> Iterator[tuple[Server, int]]:
    """A server, and its port."""
    server = Server()
    with reserved() as held:
        port = int(held.getsockname()[1])
        controller = Controller(server, hostname="127.0.0.1", port=port, ready_timeout=60, **options)
        controller.start()
        try:
            yield server, port
        finally:
            controller.stop()


def alerts_to(port: int, *to: str, **settings: Any) -> Alerts:
    return Alerts(email=Email(to=to, sender="trapezoid@a.example", port=port, **{"security": "none", **settings}))


def test_each_mailbox_gets_new_alerts_once_and_a_full_one_keeps_nobody_from_theirs(lake: Lake) -> None:
    commit(lake, alert(1, severity="severe"), alert(2, subject=HOSTILE))
    with running() as (server, port):
        sinks = sinks_of(alerts_to(port, "full@a.example", "noc@a.example"))
        first = send_new(lake, sinks, least="warning", since_us=0)
        again = send_new(lake, sinks, least="warning", since_us=0)
    [(address, message)] = server.letters
    assert (address, message["To"], message["From"]) == ("noc@a.example", "noc@a.example", "trapezoid@a.example")
    assert (message["Subject"], message["Bcc"]) == ("Trapezoid: 1 severe, 1 warning", None)
    text = message.get_content()
    assert "Many." in text
    assert "subject: eve··Bcc: all@a.example·[2J" in text
    assert (first.exit_code, again.exit_code) == (ExitCode.INCOMPLETE, ExitCode.INCOMPLETE)
    assert "mailto:full@a.example did not accept 2 alerts" in first.warnings[0]


def test_a_password_goes_only_to_a_server_that_has_proved_its_name(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(lake, alert(1))
    secret = tmp_path / "mail.toml"
    secret.write_text(f'username = "trapezoid"\npassword = "{PASSWORD}"\n')
    secret.chmod(0o600)
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    seen: list[bytes] = []

    def let_in(_server: Any, _session: Any, _envelope: Any, _mechanism: Any, login: Any) -> AuthResult:
        seen.append(login.password)
        return AuthResult(success=login.password == PASSWORD.encode())

    with running(tls_context=context, authenticator=let_in, auth_required=True) as (server, port):
        settings = alerts_to(port, "noc@a.example", security="starttls", credentials=str(secret))
        refused = send_new(lake, sinks_of(settings), least="warning", since_us=0)
        assert (refused.exit_code, seen, server.letters) == (ExitCode.INCOMPLETE, [], [])
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert send_new(lake, sinks_of(settings), least="warning", since_us=0).exit_code is ExitCode.FINE
    assert ([address for address, _ in server.letters], seen) == (["noc@a.example"], [PASSWORD.encode()])
    assert PASSWORD not in "".join(refused.warnings)


def test_a_header_has_nothing_that_strangers_wrote() -> None:
    message = letter("noc@a.example", "trapezoid@a.example", [alert(1, subject=HOSTILE, our_domain=HOSTILE)])
    header = message.as_string().partition("\n\n")[0]
    assert "eve" not in header
    assert "\x1b" not in message.as_string()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ('to = []\nfrom = "a@a.example"', "to"),
        ('to = ["a@a.example\\nBcc: b@b.example"]\nfrom = "a@a.example"', "to"),
        ('to = ["a@a.example"]\nfrom = "a@a.example"\nsecurity = "none"\nhost = "mail.example"', "without TLS only"),
        ('to = ["a@a.example"]\nfrom = "a@a.example"\nsecurity = "none"\ncredentials = "x"', "without TLS only"),
    ],
)
def test_settings_of_mail_that_are_wrong_or_would_leak_are_refused(tmp_path: Path, words: str, problem: str) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(f"{MINIMAL}[alerts.email]\n{words}\n")
    with pytest.raises(SettingsError, match=problem):
        read_settings(file)


def test_the_member_is_called_from_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(f'{MINIMAL}[alerts.email]\nto = ["a@a.example"]\nfrom = "b@a.example"\n')
    email = read_settings(tmp_path / "pipeline.toml").alerts.email
    assert email == Email(to=("a@a.example",), sender="b@a.example")
    assert msgspec.to_builtins(email)["from"] == "b@a.example"
