"""What `[mqtt]` means: the binding, where the optional library for it is installed.

Source: message specification, section 19.5.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msg_node.connectors.reception import Reception
from msg_node.settings.bindings import MqttSettings
from msg_node.settings.model import Settings
from msg_node.storage.tls_files import believe, show
from protofly.errors import SettingsError

if TYPE_CHECKING:
    from msg_node.connectors.mqtt import MqttBinding


def mqtt_problems(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What one field alone cannot say about `[mqtt]`."""
    mqtt = settings.mqtt
    if mqtt is None:
        return
    if (mqtt.certificate is None) != (mqtt.key is None):
        yield ("mqtt",), "`certificate` and `key` come together"
    if mqtt.insecure_plaintext and (mqtt.ca_file is not None or mqtt.certificate is not None):
        yield ("mqtt", "insecure_plaintext"), "contradicts `ca_file` and `certificate`"
    if mqtt.password_file is not None and not mqtt.username:
        yield ("mqtt", "password_file"), "goes with `username`"


def build_mqtt(settings: Settings, reception: Reception, node: str) -> MqttBinding | None:
    """The binding that the settings ask for, None when they ask for none.

    Raises:
        SettingsError: A file cannot be used, or the library is not installed.
    """
    mqtt = settings.mqtt
    if mqtt is None:
        return None
    try:
        from msg_node.connectors.mqtt import MqttBinding, MqttOptions
        from msg_node.connectors.mqtt_client import BrokerOptions
    except ModuleNotFoundError as exc:
        raise SettingsError("[mqtt] needs a library that is not installed: pip install 'trapezoid[mqtt]'") from exc
    broker = BrokerOptions(
        host=mqtt.host,
        port=mqtt.port,
        client_id=settings.node_id,
        username=mqtt.username,
        password=_password(mqtt),
        tls=_tls(mqtt),
        is_version_5=mqtt.version == "5",
        max_bytes=settings.limits.frame_bytes,
    )
    options = MqttOptions(broker, mqtt.prefix, needs_token=mqtt.tokens == "required")
    return MqttBinding(reception, options, node=node, domains=settings.own_domains)


def check_broker_files(mqtt: MqttSettings) -> None:
    """Read the files for the broker, which is not asked. Raises SettingsError."""
    _password(mqtt)
    _tls(mqtt)


def _password(mqtt: MqttSettings) -> str:
    if mqtt.password_file is None:
        return ""
    try:
        return mqtt.password_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "is not UTF-8"
        raise SettingsError(f"mqtt.password_file: {mqtt.password_file}: {reason}") from exc


def _tls(mqtt: MqttSettings) -> ssl.SSLContext | None:
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
