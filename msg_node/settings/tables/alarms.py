"""Settings of alarms: `[alarms]`."""

from __future__ import annotations

from msgspec import Struct

from msg_node.settings.tables.registries import BackendSettings


class WebhookSettings(BackendSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that is called, by POST to `url`, when an alarm is raised or cleared."""


class AlarmSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Notification of alarms; they are in the log and in the audit records in any case."""

    webhook: WebhookSettings | None = None
