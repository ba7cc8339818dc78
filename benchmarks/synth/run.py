"""Makes the traffic: `synth(options, out)` writes spools, keys, policy files and the truth into a folder.

out/spool/<domain>/        what the node of that domain wrote (`<domain>.again` and the like: doubled files)
out/keys.json              public keys by key id: node, algorithm, key as base64url
out/policy/deployed.toml   what every gate had in force; proposed.toml what they think of
out/truth.json             what was planted, counted; cases.parquet names the messages
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.synth.abuse import plan_abuse
from benchmarks.synth.damage import damage
from benchmarks.synth.draws import draw_slot, fault_shares, messages_per_slot
from benchmarks.synth.spools import NodeSpool
from benchmarks.synth.traffic import Traffic, read_policy
from benchmarks.synth.truth import StubChange, Truth
from benchmarks.synth.world import SLOT_US, SynthOptions, World, make_world
from protofly.errors import SettingsError

SPOOL_FOLDER: Final = "spool"
KEYS_NAME: Final = "keys.json"
POLICY_FOLDER: Final = "policy"
_AFTER_US: Final = 900_000_000
"""Spools are closed this long after the last message."""


def synth(options: SynthOptions, out: Path, *, on_progress: Callable[[int, int], None] | None = None) -> Truth:
    """Make traffic and its truth.

    Args:
        options: How much of what.
        out: A folder that is not there yet, or is empty.
        on_progress: Called with the number of messages done and of all.

    Raises:
        SettingsError: Options that make no sense, or a folder with something in it.
        OSError: The disk.
    """
    world = make_world(options)
    if out.exists() and any(out.iterdir()):
        raise SettingsError(f"{out} is not empty")
    root = out / SPOOL_FOLDER
    root.mkdir(parents=True)
    truth = Truth(options.seed, options.start_us, options.end_us)
    truth.clock_offsets_us = {domain.name: domain.offset_us for domain in world.domains}
    has_blocks = world.options.has_blocks
    spools = [
        NodeSpool(one, root / one.name, is_tracked=one.number in world.tracked, has_blocks=has_blocks)
        for one in world.domains
    ]
    traffic = Traffic(world, spools, truth)
    _write_keys_and_policies(world, out)
    _run_days(world, spools, traffic, truth, on_progress or (lambda _done, _total: None))
    traffic.add_truth()
    for spool in spools:
        for kind, count in spool.written.items():
            truth.records[kind] = truth.records.get(kind, 0) + count
    truth.stubs = [_change_of(world, number) for number in range(options.domains) if _is_upgraded(world, number)]
    if options.has_faults:
        damage([spools[number] for number in world.wards], [spools[number] for number in world.late], root, truth)
    truth.save(out)
    return truth


def _run_days(
    world: World, spools: list[NodeSpool], traffic: Traffic, truth: Truth, on_progress: Callable[[int, int], None]
) -> None:
    """Slot by slot: one is in memory at a time."""
    options = world.options
    counts, shares = messages_per_slot(options), fault_shares(options)
    plan = plan_abuse(world)
    truth.abuse = plan.truth
    done, total = 0, int(counts.sum())
    seals = {round(len(counts) * (one + 1) / options.segments) for one in range(options.segments - 1)}
    restart = len(counts) // 3
    traffic.deploy(options.start_us)
    extras, spoofs = sorted(plan.extras, key=lambda one: one.at_us), sorted(plan.spoofs, key=lambda one: one.at_us)
    for slot, count in enumerate(counts.tolist()):
        start_us, end_us = options.start_us + slot * SLOT_US, options.start_us + (slot + 1) * SLOT_US
        if slot in seals:
            traffic.sum_up(start_us)
        for spool in spools:
            if slot in seals:
                spool.seal_messages(start_us + spool.domain.offset_us)
            if slot == restart and spool.domain.restarts:
                spool.restart(start_us + spool.domain.offset_us)
        due = [one for one in extras if start_us <= one.at_us < end_us]
        if count or due:
            traffic.pass_drawn(draw_slot(world, slot, count, shares), due)
        for spoof in spoofs:
            if start_us <= spoof.at_us < end_us:
                traffic.spoof(spoof)
        done += count
        on_progress(done, total)
    traffic.sum_up(options.end_us)
    for spool in spools:
        spool.close(options.end_us + _AFTER_US + spool.domain.offset_us)


def _write_keys_and_policies(world: World, out: Path) -> None:
    keys = {}
    for domain in world.domains:
        record = msgspec.to_builtins(domain.key.record())
        keys[domain.key.key_id] = {"node": domain.node, "domain": domain.name, **record}
    (out / KEYS_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(keys), indent=1) + b"\n")
    policies = out / POLICY_FOLDER
    policies.mkdir()
    for name in ("deployed", "proposed"):
        (policies / f"{name}.toml").write_text(read_policy(name)[0], encoding="utf-8")


def _is_upgraded(world: World, number: int) -> bool:
    stub = world.domains[number].stub
    return stub.older != stub.newer


def _change_of(world: World, number: int) -> StubChange:
    domain = world.domains[number]
    stub = domain.stub
    return StubChange(
        domain.name,
        stub.older,
        stub.newer,
        stub.at_us,
        stub.traps,
        stub.latency,
        stub.fuel,
        is_regression=number == world.regressed,
    )
