"""What the running node says of a domain beside the settings: blocks by operators, and its policies in force.

The settings file may be newer than what the node has read, and operators block domains, forbid stubs and activate
bundles of policies without touching it.
"""

from __future__ import annotations

from typing import Any

import trio

from federation.core.contact_trouble import cleaned
from federation.links.visitors import greeting
from msg_node.settings.model import Settings
from protofly.errors import Code, HostError, SettingsError
from trapezoid.peer_check.report import Outcome, Report, StepResult
from trapezoid.process_admin import ask_processes

_MOST_ROWS = 1000


async def hear_running_node(report: Report, settings: Settings, domain: str) -> None:
    """Have the step `policy` fail by what the node that runs with these settings has against a domain, if one runs."""
    if not report.has_passed("policy"):
        return
    try:
        said = await trio.to_thread.run_sync(_ask, report, settings, domain)
    except SettingsError:
        return  # none runs
    except HostError as exc:
        said = StepResult("policy", "the running node")
        said.warn(exc.code.word, f"the running node does not say: {cleaned(exc.detail)}")
    if said is not None:
        report.results[-1] = said  # the settings do not count alone


def _ask(report: Report, settings: Settings, domain: str) -> StepResult | None:
    data_dir, result = settings.node.data_dir, StepResult("policy", "the running node")
    rows = ask_processes(data_dir, "restrictions", {"limit": _MOST_ROWS})["rows"]
    report.forbidden = {row["subject"]: _terms(row) for row in rows if row["what"] == "module"}
    concerned = {row["what"]: row for row in rows if covers(row, domain)}
    if "peer" in concerned:
        _fail(result, Code.DOMAIN_BLOCKED, f"an operator has blocked it {_terms(concerned['peer'])}")
        result.hint = f"`trapezoid node peer unblock {concerned['peer']['subject']}` lifts it"
        return result
    if "stub" in concerned:
        _fail(result, Code.STUB_FORBIDDEN, f"an operator has forbidden its stub {_terms(concerned['stub'])}")
        result.hint = f"`trapezoid node stub allow {domain}` lifts it"
        return result
    node = f"runtime://{settings.node.domain}/{settings.node.name}"
    message = {"from": node, "to": f"runtime://{domain}/mn", "type": greeting(node, node).type, "gate": "peer"}
    verdict = ask_processes(data_dir, "evaluate", message)
    if verdict["permitted"]:
        return None
    result.outcome, result.code = Outcome.FAILED, str(verdict["code"])
    by = f"rule {verdict['rule']}" if verdict["rule"] else "its settings in force"
    result.observed = f"it does not talk to {domain} ({by})"
    result.hint = (
        "`trapezoid node reload` takes changed settings over; `trapezoid node policy active` shows its policies"
    )
    return result


def covers(row: dict[str, Any], domain: str) -> bool:
    """True for a restriction, as operators see it, that is about a domain."""
    subject = str(row["subject"])
    is_meant = domain.endswith(subject[1:]) if subject.startswith("*.") else domain == subject
    return is_meant or domain in row["aliases"]


def _fail(result: StepResult, code: Code, observed: str) -> None:
    result.outcome, result.code, result.observed = Outcome.FAILED, code.word, observed


def _terms(row: dict[str, Any]) -> str:
    until = f"until {row['until']}" if row["until"] else "until that is lifted"
    return f"{until}: {cleaned(row['reason'])}" if row["reason"] else until
