"""What the ledger of a lake proves about the completeness of its records, in the form that transforms take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from pipeline.core.completeness import Completeness, completeness_of_domain, completeness_of_nodes
from pipeline.lake.lake_files import LakeFiles
from pipeline.schemas import NODE_OWNER
from pipeline.segments.declarations import declared_until, written_again
from pipeline.segments.ledger import read_stretches
from protofly.errors import SettingsError
from protofly.records import RecordKind


def proved_completeness(lake: LakeFiles, *, declared: Mapping[str, int] | None = None) -> dict[str, Completeness]:
    """From when until when the records of each domain in the lake are complete.

    Args:
        lake: Its `segment_stretch`, `node_declaration` and `node_owner` are read. Nodes of which no record was refined
            belong to the domain in their name.
        declared: Until when the operator vouches for a node, in µs, besides what `node_declaration` has; see
            `pipeline.core.completeness`.

    Raises:
        SettingsError: The operator vouches for a node that has not written anything.
        LakeError: As the lake does.
    """
    stretches = list(read_stretches(lake))
    declared = declared or {}
    unknown = sorted(declared.keys() - {one.node for one in stretches})
    if unknown:
        raise SettingsError(
            f"nothing that {unknown[0]} wrote is in the lake, so nobody can vouch for it: `show segment_stretch` "
            "lists the nodes"
        )
    of_messages = [one for one in stretches if one.kind == RecordKind.MESSAGE.value]
    entered = declared_until(lake, stretches)
    words = {node: max(each.get(node, 0) for each in (entered, declared)) for node in entered.keys() | declared.keys()}
    proved = completeness_of_nodes(of_messages, words)
    for node in sorted(written_again(lake, stretches) & proved.keys()):
        proof = f"{proved[node].proof} (it has written since it was retired: `pipeline nodes withdraw` it)"
        proved[node] = replace(proved[node], proof=proof)
    nodes = defaultdict[str, set[str]](set)
    owners = lake.read_small(NODE_OWNER).to_pylist()
    for row in owners:
        nodes[row["our_domain"]].add(row["node"])
    for silent in {one.node for one in of_messages} - {row["node"] for row in owners}:
        domain = silent.partition(".")[2]
        if domain in nodes:
            nodes[domain].add(silent)
    return {domain: completeness_of_domain(its, proved) for domain, its in sorted(nodes.items())}
