"""Checks of the engine that nodes of a domain share, and of what they have to have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from msg_node.cluster.cluster_key import read_cluster_key
from msg_node.settings.model import Settings
from msg_node.storage.engine_errors import EngineError
from msg_node.storage.file_checks import FileError
from msg_node.wiring import meaning
from msg_node.wiring.accounts import left_in_files
from msg_node.wiring.adopting import stored_before
from msg_node.wiring.cluster import needed_engine, node_facts
from protofly.errors import SettingsError
from trapezoid.findings import Finding, Level, remark
from trapezoid.process_environment import own_names

if TYPE_CHECKING:
    from msg_node.cluster.names import Member, NodeFacts

_ALIKE = {
    "root": "publishes other keys (root)",
    "policy": "has other policies",
    "limits": "has other [limits]",
}


def check_engine(settings: Settings) -> str:
    """Check that the engine can be used, and that this node fits the running ones. Returns what a commit survives.

    Raises:
        FileError: With the code of the engine's error, or `cluster-differs`; or what is wrong with the cluster's key.
    """
    from msg_node.cluster.names import Names

    if settings.cluster.key_file is not None:
        read_cluster_key(settings.cluster.key_file)
    engine = needed_engine(settings)
    try:
        text = engine.durability()
        own_processes = own_names(settings)
        others = [one for one in Names(engine).members() if one.is_running and one.name not in own_processes]
    except EngineError as exc:
        raise FileError(exc.word, exc.place, exc.what, exc.action) from exc
    finally:
        engine.close()
    own = node_facts(settings, policy=meaning.build_gate(settings).policies.revision)
    differences = [text for one in others for text in _differences(own, one)]
    if differences:
        action = "give all nodes of the domain the same; policies are changed by a reload of each node"
        raise FileError("cluster-differs", engine.place, "; ".join(differences), action)
    names = ", ".join(one.name for one in others) or "none"
    return f"{text}; other running nodes: {names}"


def check_adopted(settings: Settings) -> str | Finding:
    """Check that nothing is left in files that this node does not read. Raises HostError."""
    left, files = left_in_files(settings.node.data_dir), stored_before(settings.node.data_dir)
    if not left and not files:
        return "users, clients, GUIDs and the state are in the engine"
    text = f"{left.users} users, {left.clients} clients and {left.guids} GUIDs of before the engine are in files only"
    if files:
        text += f", and what {' and '.join(files)} have"
    action = "take them over with `trapezoid state adopt`"
    return remark(Level.WARNING, "not-adopted", text, file=str(settings.node.data_dir), action=action)


def _differences(own: NodeFacts, other: Member) -> Iterator[str]:
    for member, text in _ALIKE.items():
        if getattr(own, member) != getattr(other.facts, member):
            yield f"node {other.name} {text}"
    if bool(own.bus) != bool(other.facts.bus):
        yield f"node {other.name} {'has' if other.facts.bus else 'has no'} cluster.listen"


def cluster_members(settings: Settings) -> list[dict[str, object]]:
    """The names of the domain, for people. Raises SettingsError or EngineError."""
    from msg_node.cluster.names import Names

    engine = needed_engine(settings)
    try:
        return [_row(one) for one in Names(engine).members()]
    finally:
        engine.close()


def _row(member: Member) -> dict[str, object]:
    facts = member.facts
    return {
        "node": member.name,
        "state": "running" if member.is_running else "silent" if member.is_held else "stopped",
        "age_seconds": round(member.age_seconds, 1),
        "epoch": member.epoch,
        "version": facts.version,
        "endpoint": facts.endpoint,
        "host": facts.host,
        **msgspec.to_builtins(facts.figures),
    }


def remove_member(settings: Settings, name: str) -> None:
    """Forget a name that has stopped in order and owns nothing. Raises SettingsError or EngineError."""
    from msg_node.cluster.names import Names

    engine = needed_engine(settings)
    try:
        if not Names(engine).remove(name):
            raise SettingsError(f"{name} is unknown, has not stopped in order, or still owns state")
    finally:
        engine.close()
