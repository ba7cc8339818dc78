"""The federation tester: everything that a first contact with a domain needs, tried step by step and explained."""

from trapezoid.peer_check.report import Outcome, Report, StepResult, Verdict
from trapezoid.peer_check.run import check_domain, check_ourselves

__all__ = ["Outcome", "Report", "StepResult", "Verdict", "check_domain", "check_ourselves"]
