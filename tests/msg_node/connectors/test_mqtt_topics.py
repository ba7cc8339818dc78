"""Topics name runtimes in one right form, and nothing else names any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.connectors.core.mqtt_topics import DOWN, UP, Topics
from protofly.address import canonical_key
from protofly.limits import HEADER_CHARS

TOPICS = Topics("trapezoid", ["alpha.example", "alias.example"])


def up(runtime_key: str) -> str:
    """Where that runtime sends its messages."""
    return TOPICS.down(runtime_key).removesuffix(DOWN) + UP


def test_the_node_listens_to_its_own_domains_only() -> None:
    assert TOPICS.subscriptions() == [
        "trapezoid/alias.example/+/gone",
        "trapezoid/alias.example/+/up",
        "trapezoid/alpha.example/+/gone",
        "trapezoid/alpha.example/+/up",
    ]


@pytest.mark.parametrize("name", ["rt-ana", "a+b", "a%2Bb", "ä", "~a", "a:b@c"])
def test_a_runtime_is_found_behind_its_topic(name: str) -> None:
    key = canonical_key(f"runtime://alpha.example/{name}")
    found = TOPICS.read(up(key))
    assert found is not None
    assert found.runtime_key == key
    assert TOPICS.down(key).count("/") == 3
    assert not set("+#") & set(TOPICS.down(key))


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "trapezoid",
        "trapezoid/alpha.example/a",
        "trapezoid/alpha.example/a/down",
        "trapezoid/alpha.example/a/b/up",
        "trapezoid/beta.example/a/up",
        "trapezoid/ALPHA.example/a/up",
        "other/alpha.example/a/up",
        "trapezoid-alpha.example/a/up",
        "trapezoid/alpha.example//up",
        "trapezoid/alpha.example/a%2fb/up",
        "trapezoid/alpha.example/%61/up",
        "trapezoid/alpha.example/%ff/up",
        "trapezoid/alpha.example/%/up",
        "trapezoid/alpha.example/%00/up",
        "trapezoid/alpha.example/a b/up",
        f"trapezoid/alpha.example/{'a' * 5000}/up",
    ],
)
def test_other_topics_name_nobody(topic: str) -> None:
    assert TOPICS.read(topic) is None


@given(st.text(max_size=40))
def test_what_a_topic_names_has_that_topic(level: str) -> None:
    topic = f"trapezoid/alpha.example/{level}/up"
    found = TOPICS.read(topic)
    assert found is None or up(found.runtime_key) == topic


def test_a_topic_is_as_long_as_an_address_at_most() -> None:
    name = "a" * (HEADER_CHARS - len("trapezoid/alpha.example//up"))
    found = TOPICS.read(f"trapezoid/alpha.example/{name}/up")
    assert found is not None
    assert (found.runtime_key, found.word) == (f"runtime://alpha.example/{name}", UP)
    assert TOPICS.read(f"trapezoid/alpha.example/{name}a/up") is None
