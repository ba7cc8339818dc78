"""Answers about several resources at once: what was refused, and on demand what became of each.

Source: message specification, sections 4 (207), 7.3 and 7.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from msg_node.kernel.resources import Members
from msg_node.kernel.service import Answer
from protofly.errors import Code

MULTI_STATUS = 207


def answer_each(members: Members, results: Mapping[str, Code | None]) -> Answer:
    """Say what became of each resource.

    Args:
        members: Body of the request. With `detail` true every resource is listed with its code, and the code of the
            whole is 207 if they differ; otherwise only those refused are listed, and the whole is 200.
        results: By resource as it was written: None for success, else why not.
    """
    if members.get("detail") is True:
        listed = [_outcome(resource, code) for resource, code in results.items()]
        is_mixed = any(results.values())
        return Answer(MULTI_STATUS if is_mixed else 200, {"resources": listed})
    refused = [resource for resource, code in results.items() if code is not None]
    return Answer(value={"refused": refused}) if refused else Answer()


def _outcome(resource: str, code: Code | None) -> dict[str, object]:
    if code is None:
        return {"resource": resource, "code": 200}
    return {"resource": resource, "code": code.status, "reason": code.word}
