"""Where messages of other domains go that a policy of ours redirects: judged again for each address that they are for.

Rates are asked once, for the message as it came. Each rule redirects a message once, so that rules that point at each
other end in a refusal; and what leaves our domain again is refused where it is routed, as all transit is.
"""

from __future__ import annotations

from msgspec.structs import replace

from policy.core.engine import Facts
from policy.core.gate import Gate, GateVerdict
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code
from protofly.limits import POLICY_REDIRECTS


def follow_redirects(gate: Gate, facts: Facts, verdict: GateVerdict) -> tuple[Facts, GateVerdict]:
    """Judge a message anew while the verdict sends it elsewhere.

    Returns:
        The facts and the verdict that count: it passes to the recipient in them, is refused or answered.
    """
    followed = set[str]()
    while verdict.instead is not None and verdict.instead.address:
        if verdict.rule_id in followed or len(followed) == POLICY_REDIRECTS:
            return facts, replace(verdict, code=Code.LOOP, instead=None, duties=None)
        followed.add(verdict.rule_id)
        to = verdict.instead.address
        facts = replace(facts, message=codec.with_recipient(facts.message, to), to_domain=domain_of(to))
        verdict = gate.foresee(facts)
    return facts, verdict
