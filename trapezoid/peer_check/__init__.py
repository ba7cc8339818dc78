"""The federation tester: everything that a first contact with a domain needs, tried step by step and explained."""

from trapezoid.peer_check.report import Outcome, PeerVerdict, Report, StepResult
from trapezoid.peer_check.run import check_domain, check_ourselves

__all__ = ["Outcome", "PeerVerdict", "Report", "StepResult", "check_domain", "check_ourselves"]
