"""Attack rows 1 and 2: names that are none, and our own. Nothing of this may reach a name server."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.core.discovery_errors import DiscoveryError, DiscoveryStep
from federation.discovery.resolver import Resolver
from protofly.errors import Code
from tests.support.names import ScriptedNames

LABEL = "a" * 63


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "b",
        "B.example",
        "b.example.",
        ".b.example",
        "b..example",
        "b.example/evil",
        "b.example:443",
        "b@c.example",
        "b.example#x",
        "b.example?x",
        "b.example\x00.c.example",
        "b.example\n",
        " b.example",
        "b_c.example",
        "-b.example",
        "b-.example",
        "bücher.example",
        "b\u0430nk.example",
        "b\u3002example",
        "xn--.example",
        "xn--a.example",
        "xn--B-.example",
        "a" * 64 + ".example",
        f"{LABEL}.{LABEL}.{LABEL}.{'a' * 54}.example",
        "127.0.0.1",
        "[::1]",
        "::1",
        "0x7f.1",
        "0x7f.0x1",
        "127.1",
        "1.2.3.4.5",
        "*.example",
    ],
)
async def test_name_that_is_no_domain_is_refused_before_dns(name: str) -> None:
    names = ScriptedNames()
    resolver = Resolver(names, own_domains=["a.example"])
    with pytest.raises(DiscoveryError, check=lambda error: error.code is Code.NAME_INVALID) as caught:
        await resolver.resolve(name)
    assert caught.value.failure.step is DiscoveryStep.NAME
    assert names.asked == []
    assert resolver.statistics().negative == 0


@pytest.mark.parametrize("name", ["a.example", "a-lab.example"])
async def test_own_domain_and_alias_are_refused_before_dns(name: str) -> None:
    names = ScriptedNames()
    resolver = Resolver(names, own_domains=["a.example", "a-lab.example"])
    with pytest.raises(DiscoveryError, check=lambda error: error.code is Code.OWN_DOMAIN):
        await resolver.resolve(name)
    assert names.asked == []


async def test_domain_that_policy_does_not_permit_is_refused_before_dns() -> None:
    names = ScriptedNames()
    asked: list[str] = []

    def is_permitted(domain: str) -> bool:
        asked.append(domain)
        return domain == "b.example"

    resolver = Resolver(names, own_domains=["a.example"], is_permitted=is_permitted)
    with pytest.raises(DiscoveryError, check=lambda error: error.code is Code.DOMAIN_BLOCKED):
        await resolver.resolve("c.example")
    assert names.asked == []
    await resolver.resolve("b.example")
    assert asked == ["c.example", "b.example"]


@settings(deadline=None)
@given(st.text(max_size=300))
async def test_any_text_is_a_place_or_refused_without_a_trace(text: str) -> None:
    names = ScriptedNames()
    resolver = Resolver(names, own_domains=["a.example"])
    try:
        location = await resolver.resolve(text)
    except DiscoveryError:
        assert names.asked == []
        return
    assert location.domain == text == text.lower()
