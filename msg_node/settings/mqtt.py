"""Checks of `[mqtt]`, and the contents of its files.

Source: message specification, section 19.5.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from msg_node.settings.model import Settings
from msg_node.settings.tables.bindings import MqttSettings
from msg_node.storage.tls_files import believe, show
from protofly.errors import SettingsError


def mqtt_problems(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Check the fields of `[mqtt]` against each other."""
    mqtt = settings.mqtt
    if mqtt is None:
        return
    if (mqtt.certificate is None) != (mqtt.key is None):
        yield ("mqtt",), "`certificate` and `key` come together"
    if mqtt.insecure_plaintext and (mqtt.ca_file is not None or mqtt.certificate is not None):
        yield ("mqtt", "insecure_plaintext"), "contradicts `ca_file` and `certificate`"
    if mqtt.password_file is not None and not mqtt.username:
        yield ("mqtt", "password_file"), "goes with `username`"


def check_broker_files(mqtt: MqttSettings) -> None:
    """Read the files for the broker, which is not asked. Raises SettingsError."""
    broker_password(mqtt)
    broker_tls(mqtt)


def broker_password(mqtt: MqttSettings) -> str:
    """The password for the broker, "" without one. Raises SettingsError."""
    if mqtt.password_file is None:
        return ""
    try:
        return mqtt.password_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "is not UTF-8"
        raise SettingsError(f"mqtt.password_file: {mqtt.password_file}: {reason}") from exc


def broker_tls(mqtt: MqttSettings) -> ssl.SSLContext | None:
    """TLS towards the broker, None without it. Raises SettingsError."""
    if mqtt.insecure_plaintext:
        return None
    context = ssl.create_default_context()
    if mqtt.ca_file is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # these authorities, and none of the system's
        believe(context, mqtt.ca_file, "mqtt.ca_file")
    if mqtt.certificate is not None:
        show(context, mqtt.certificate, mqtt.key, "mqtt")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
