"""Makes the MQTT binding, where its optional library is installed. Source: message specification, section 19.5."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

from msg_node.connectors.reception import Reception
from msg_node.settings.model import Settings
from msg_node.settings.mqtt import broker_password, broker_tls
from protofly.errors import SettingsError

if TYPE_CHECKING:
    from msg_node.connectors.mqtt import MqttBinding


class LoadedBroker(NamedTuple):
    """A broker of the settings: what it was made from, and the binding to it; None, None: the settings name none."""

    terms: object
    binding: MqttBinding | None


class BrokerLine:
    """The binding to the broker of the settings in force.

    Args:
        loaded: That of the start.
    """

    def __init__(self, loaded: LoadedBroker) -> None:
        self._loaded = loaded
        self._scope = trio.CancelScope()

    @property
    def binding(self) -> MqttBinding | None:
        """The binding; None: the settings name no broker."""
        return self._loaded.binding

    def follow(self, loaded: LoadedBroker) -> None:
        """Use another broker, or none. Sessions of runtimes behind the one of before are parked, for their return."""
        if loaded.terms != self._loaded.terms:
            self._loaded = loaded
            self._scope.cancel()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        task_status.started()
        while True:
            with trio.CancelScope() as self._scope:
                if self.binding is not None:
                    await self.binding.run()
                await trio.sleep_forever()


def load_mqtt(settings: Settings, reception: Reception, node: str) -> LoadedBroker:
    """Make the binding that the settings ask for; nothing is connected yet.

    Raises:
        SettingsError: A file cannot be used, or the library is not installed.
    """
    mqtt = settings.mqtt
    if mqtt is None:
        return LoadedBroker(None, None)
    try:
        from msg_node.connectors.mqtt import MqttBinding, MqttOptions
        from msg_node.connectors.mqtt_client import BrokerOptions
    except ModuleNotFoundError as exc:
        raise SettingsError("[mqtt] needs a library that is not installed: pip install 'trapezoid[mqtt]'") from exc
    password = broker_password(mqtt)
    broker = BrokerOptions(
        host=mqtt.host,
        port=mqtt.port,
        client_id=settings.node_id,
        username=mqtt.username,
        password=password,
        tls=broker_tls(mqtt),
        is_version_5=mqtt.version == "5",
        max_bytes=settings.limits.frame_bytes,
    )
    options = MqttOptions(broker, mqtt.prefix, needs_token=mqtt.tokens == "required")
    binding = MqttBinding(reception, options, node=node, domains=settings.own_domains)
    return LoadedBroker((mqtt, settings.limits.frame_bytes, password), binding)
