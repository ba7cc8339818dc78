"""Topics of an MQTT broker and the runtimes that they stand for.

`<prefix>/<domain>/<runtime>/up` carries messages of `runtime://<domain>/<runtime>` to the node, `…/down` those of the
node to it, and `…/gone` is where its broker says that it has gone (its last will). A runtime's name is one level: what
a topic cannot hold is percent-encoded. Source: MQTT 5.0, sections 4.7 and 5.4.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from msg_node.kernel.runtime_address import runtime_part
from protofly.address import canonical_key, parse
from protofly.errors import PeerError
from protofly.limits import HEADER_CHARS

UP: Final = "up"
DOWN: Final = "down"
GONE: Final = "gone"
_WORDS: Final = frozenset({UP, GONE})


class TopicName(NamedTuple):
    """The parts of a topic: the key of a runtime, and `up` or `gone`."""

    runtime_key: str
    word: str


class Topics:
    """The topics of one node.

    Args:
        prefix: First levels of all of them.
        domains: Our domains.
    """

    def __init__(self, prefix: str, domains: Collection[str]) -> None:
        self._prefix = prefix
        self._domains = frozenset(domains)

    def subscriptions(self) -> list[str]:
        """Topic filters of everything that is for the node."""
        return [f"{self._prefix}/{domain}/+/{word}" for domain in sorted(self._domains) for word in sorted(_WORDS)]

    def read(self, topic: str) -> TopicName | None:
        """Read a topic; None if it is not ours, or does not name a runtime of ours in its one right form."""
        if len(topic) > HEADER_CHARS or not topic.startswith(f"{self._prefix}/"):
            return None
        levels = topic[len(self._prefix) + 1 :].split("/")
        if len(levels) != 3 or levels[0] not in self._domains or levels[2] not in _WORDS:
            return None
        try:
            key = canonical_key(f"runtime://{levels[0]}/{unquote(levels[1], errors='strict')}")
            is_one = runtime_part(key) == key and _encoded(key) == levels[1]
        except (PeerError, UnicodeDecodeError):
            return None
        return TopicName(key, levels[2]) if is_one else None

    def down(self, runtime_key: str) -> str:
        """Return the topic for messages to a runtime of ours."""
        return f"{self._prefix}/{parse(runtime_key).authority}/{_encoded(runtime_key)}/{DOWN}"


def _encoded(runtime_key: str) -> str:
    return quote(parse(runtime_key).path[1:], safe="")
