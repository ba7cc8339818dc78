"""Settings that change under traffic: taken over whole, or not at all, and no message is lost."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from interop.laboratory import LaboratoryNode
from interop.talker import Talker
from protofly.errors import HostError
from trapezoid.admin_client import ask_node

from .systems import System, running_system, wait_until

EVENTS = 1500
KEYS = '{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "k"}]}'
BOUND = "[limits]\nwaiting_messages = {}\n"
FURTHER = """
[middleware.logging]
every = 1000
[[identity.provider]]
issuer = "https://i.example"
audience = ["a"]
jwks = "keys.json"
"""


async def reload(node: LaboratoryNode, *, dry_run: bool = False) -> Any:
    return await trio.to_thread.run_sync(partial(ask_node, node.folder.data, "reload", {}, dry_run=dry_run))


def edit(node: LaboratoryNode, old: str, new: str) -> None:
    text = node.folder.settings.read_text()
    assert old in text
    node.folder.settings.write_text(text.replace(old, new))


async def shown_certificate(node: LaboratoryNode) -> bytes:
    """The certificate that the node shows to a new connection."""
    host, port = node.access_point.url.split("/")[2].rsplit(":", 1)
    context = node.access_point.ssl_context
    assert context is not None
    stream = await trio.open_ssl_over_tcp_stream(host, int(port), ssl_context=context)
    await stream.do_handshake()
    certificate = stream.getpeercert(binary_form=True)
    await trio.aclose_forcefully(stream)
    assert isinstance(certificate, bytes)
    return certificate


@pytest.mark.long
async def test_settings_change_under_traffic_whole_or_not_at_all(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        await _nothing_is_lost(system, anna, bruno)
        await _what_needs_a_restart_changes_nothing(system, anna, bruno)
        await _a_denied_domain_loses_its_link_and_gets_it_back(system, anna, bruno)
        await _another_fingerprint_counts_for_a_link_that_is_up(system, anna, bruno)
        await _a_new_certificate_is_shown(system)


async def _nothing_is_lost(system: System, anna: Talker, bruno: Talker) -> None:
    """Rates, level of the log, a further peer, bounds, steps, a provider of identities: while events go on.

    All of them may wait: a sender pauses for two seconds at most, and the stub starts anew, which takes longer on a
    busy machine. Events that come when no more may wait are refused, with or without a reload.
    """
    before, after = BOUND.format(EVENTS + 1), BOUND.format(EVENTS + 2)
    with system.a.folder.settings.open("a") as file:
        file.write(f"\n{before}")
    await reload(system.a)
    edit(system.a, before, after)
    edit(system.a, "[policy]", '[policy]\ndeny = ["x.example"]')
    edit(system.a, 'level = "info"', 'level = "debug"')
    edit(system.a, 'domain = "b.example"', 'domain = "b.example"\ngrant.http = false')
    link = await system.link(system.a)
    with system.a.folder.settings.open("a") as file:
        file.write('\n[[peer]]\ndomain = "c.example"\nmessages_per_second = 7.0\n' + FURTHER)
    (system.a.folder.settings.parent / "keys.json").write_text(KEYS)
    planned = await reload(system.a, dry_run=True)
    names = [one["name"] for one in planned["after"]["changes"]]
    assert {"policy.deny", "log.level", "peer[c.example].messages_per_second", "limits.waiting_messages"} <= set(names)
    assert "identity.provider" in names
    assert planned["dry_run"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reload, system.a)
        for number in range(EVENTS):
            await anna.post(bruno.hyperty, number)
    assert (await bruno.hear_numbers(anna.hyperty, EVENTS + 1))[1:] == list(range(EVENTS))
    await system.wait_link(system.a, lambda now: now.worker_pid not in {None, link.worker_pid})
    assert (await reload(system.a, dry_run=True))["after"]["changes"] == []


async def _what_needs_a_restart_changes_nothing(system: System, anna: Talker, bruno: Talker) -> None:
    before = system.a.folder.settings.read_text()
    edit(system.a, 'deny = ["x.example"]', 'deny = ["b.example"]')
    edit(system.a, 'name = "mn-1"', 'name = "mn-2"')
    with pytest.raises(HostError, match=r"node\.name: needs a restart"):
        await reload(system.a)
    assert (await anna.ask(bruno.hyperty)).is_ok
    system.a.folder.settings.write_text("[node]\nnonsense")
    with pytest.raises(HostError, match=r"node\.toml"):
        await reload(system.a)
    system.a.folder.settings.write_text(before)


async def _a_denied_domain_loses_its_link_and_gets_it_back(system: System, anna: Talker, bruno: Talker) -> None:
    edit(system.a, 'deny = ["x.example"]', 'deny = ["b.example"]')
    await reload(system.a)
    answer = await anna.ask(bruno.hyperty)
    assert (answer.code, answer.reason) == (403, "domain-blocked")
    assert (await system.a.status()).link_to("b.example") is None
    edit(system.a, 'deny = ["b.example"]', "deny = []")
    await reload(system.a)
    answer = await anna.ask(bruno.hyperty)
    assert answer.is_ok, answer


async def _another_fingerprint_counts_for_a_link_that_is_up(system: System, anna: Talker, bruno: Talker) -> None:
    edit(system.a, 'domain = "b.example"', f'domain = "b.example"\ntrust = "pinned"\nfingerprint = "{"A" * 43}"')
    await reload(system.a)
    answer = await wait_until(partial(anna.ask, bruno.hyperty), lambda one: not one.is_ok)
    assert answer.reason == "fingerprint-mismatch", answer
    edit(system.a, f'\ntrust = "pinned"\nfingerprint = "{"A" * 43}"', "")
    await reload(system.a)
    await wait_until(partial(anna.ask, bruno.hyperty), lambda one: one.is_ok)


async def _a_new_certificate_is_shown(system: System) -> None:
    """The files are replaced, and nobody asks the node to look."""
    authority = system.laboratory.authority
    assert authority is not None
    before = await shown_certificate(system.a)
    for file in authority.certificate_for("a.example"):
        file.unlink()
    authority.certificate_for("a.example")
    await wait_until(partial(shown_certificate, system.a), lambda now: now != before)
