"""Makes the watch of alarms, with the webhook that the settings name."""

from __future__ import annotations

from functools import partial

from msg_node.admin.administered import Administered
from msg_node.admin.alarm_calls import Call
from msg_node.admin.alarm_watch import AlarmWatch
from msg_node.admin.expiry_watch import ExpiryWatch
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.backend_tls import BackendTls
from msg_node.records.writer import RecordsWriter
from msg_node.settings.model import Settings
from protofly.errors import Code, TransportError

_ANSWER_BYTES = 64 << 10


def build_alarms(administered: Administered, *, records: RecordsWriter, expiries: ExpiryWatch) -> AlarmWatch:
    """Make the watch; it is not running yet. Raises SettingsError when a file of the webhook cannot be used."""
    return AlarmWatch(
        administered,
        records=records.statistics,
        expiring=lambda: [one.term.title for one in expiries.judged() if one.is_warning or one.is_failing],
        call=webhook_of(administered.settings()),
    )


def webhook_of(settings: Settings) -> Call | None:
    """Make what calls the webhook, None without one. Blocks. Raises SettingsError when a file cannot be used."""
    webhook = settings.alarms.webhook
    if webhook is None:
        return None
    http = BackendHttp(webhook.url, BackendTls("alarms.webhook", webhook), max_bytes=_ANSWER_BYTES)
    return partial(post_alarm, http, webhook.attempt_seconds)


async def post_alarm(http: BackendHttp, seconds: float, body: bytes) -> None:
    """Call a webhook once, in so many seconds. Raises HostError when it does not take the call."""
    headers = {"Content-Type": "application/json"}
    answer = await http.ask("POST", "", seconds=seconds, body=body, headers=headers)
    if not 200 <= answer.status < 300:
        raise TransportError(Code.HTTP_STATUS, f"{http.base_url} answered {answer.status}")
