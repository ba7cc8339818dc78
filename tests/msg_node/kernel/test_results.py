"""What is said about each of several resources."""

from __future__ import annotations

import pytest

from msg_node.kernel.results import MULTI_STATUS, answer_each
from msg_node.kernel.service import Answer
from protofly.errors import Code

GOOD, BAD = {"resource": "a", "code": 200}, {"resource": "b", "code": 403, "reason": "not-owner"}


@pytest.mark.parametrize(
    ("detail", "results", "answer"),
    [
        (None, {}, Answer()),
        (None, {"a": None}, Answer()),
        (None, {"a": None, "b": Code.NOT_OWNER}, Answer(value={"refused": ["b"]})),
        (False, {"a": None, "b": Code.NOT_OWNER}, Answer(value={"refused": ["b"]})),
        ("true", {"b": Code.NOT_OWNER}, Answer(value={"refused": ["b"]})),
        (True, {"a": None}, Answer(200, {"resources": [GOOD]})),
        (True, {"a": None, "b": Code.NOT_OWNER}, Answer(MULTI_STATUS, {"resources": [GOOD, BAD]})),
        (True, {"b": Code.NOT_OWNER}, Answer(MULTI_STATUS, {"resources": [BAD]})),
    ],
)
def test_each_resource_is_listed_on_demand_and_otherwise_those_refused(
    detail: object, results: dict[str, Code | None], answer: Answer
) -> None:
    assert answer_each({"detail": detail}, results) == answer
