"""Settings of connectors as stubs: `[[connector]]`. Source: docs/connectors.md."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from msg_node.settings.model import Settings
from msg_node.settings.problem import Problem
from protofly.documents import EndpointUrl
from protofly.limits import STUB_CONFIGURATION_BYTES


def connector_problems(settings: Settings) -> Iterator[Problem]:
    """Check the entries against each other and against what serves the same address."""
    native = {"registry": settings.registry, "qos": settings.qos}
    native["idm"] = settings.identity.provider or None  # type: ignore[assignment]
    seen: set[str] = set()
    for index, one in enumerate(settings.connector):
        place = "connector", index
        if one.service in seen:
            yield (*place, "service"), f"a second connector for {one.service}"
        seen.add(one.service)
        if native.get(one.service) is not None:
            yield (*place, "service"), f"the settings connect {one.service} to a server already"
        if any(peer.domain == f"{one.service}.{settings.node.domain}" for peer in settings.peer):
            yield (*place, "service"), "a [[peer]] entry has the name of this service"
        if one.stub.suffix != ".wasm":
            yield (*place, "stub"), "not a `.wasm` file"
        if len(msgspec.json.encode(msgspec.to_builtins(one.configuration, str_keys=True))) > STUB_CONFIGURATION_BYTES:
            yield (*place, "configuration"), f"has more than {STUB_CONFIGURATION_BYTES:,} bytes"
        try:
            msgspec.convert(one.endpoint, EndpointUrl)
        except msgspec.ValidationError:
            yield (*place, "endpoint"), "not a wss://, https:// or tls:// URL in lower case"
            continue
        if one.endpoint.startswith(("ws:", "http:")) and not one.insecure_plaintext:
            yield (*place, "endpoint"), "without TLS only with `insecure_plaintext = true` in this entry"
