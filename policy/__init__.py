"""Policy documents, their compiler, and the gate that judges messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "CompiledPolicies",
    "Decision",
    "Facts",
    "Gate",
    "GateVerdict",
    "PeerRule",
    "Policy",
    "PolicySet",
    "Rule",
    "compile_canonical",
    "compile_policies",
    "load_policies",
    "read_policies",
]

if TYPE_CHECKING:
    from policy.core.engine import CompiledPolicies, compile_canonical, compile_policies
    from policy.core.gate import Gate, GateVerdict
    from policy.core.model import Decision, Facts, Policy, PolicySet, Rule
    from policy.core.peer_entries import PeerRule
    from policy.core.text import load_policies
    from policy.files import read_policies
else:
    __getattr__ = public_names(
        __name__,
        {
            "CompiledPolicies": "policy.core.engine",
            "Decision": "policy.core.model",
            "Facts": "policy.core.model",
            "Gate": "policy.core.gate",
            "PeerRule": "policy.core.peer_entries",
            "Policy": "policy.core.model",
            "PolicySet": "policy.core.model",
            "Rule": "policy.core.model",
            "GateVerdict": "policy.core.gate",
            "compile_canonical": "policy.core.engine",
            "compile_policies": "policy.core.engine",
            "load_policies": "policy.core.text",
            "read_policies": "policy.files",
        },
    )
