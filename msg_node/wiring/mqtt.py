"""Makes the MQTT binding, where its optional library is installed. Source: message specification, section 19.5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msg_node.connectors.reception import Reception
from msg_node.settings.model import Settings
from msg_node.settings.mqtt import broker_password, broker_tls
from protofly.errors import SettingsError

if TYPE_CHECKING:
    from msg_node.connectors.mqtt import MqttBinding


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
        password=broker_password(mqtt),
        tls=broker_tls(mqtt),
        is_version_5=mqtt.version == "5",
        max_bytes=settings.limits.frame_bytes,
    )
    options = MqttOptions(broker, mqtt.prefix, needs_token=mqtt.tokens == "required")
    return MqttBinding(reception, options, node=node, domains=settings.own_domains)
