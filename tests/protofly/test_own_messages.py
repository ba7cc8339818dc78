"""Messages that the node makes itself are what it would read if they came from outside."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly import codec
from protofly.errors import DESCRIPTIONS
from protofly.message import BodyPeek

_REQUEST = codec.decode(b'{"id":7,"type":"create","from":"hyperty://a.example/h","to":"comm://b.example/r"}')[0]
_PEEKED = BodyPeek.__struct_encode_fields__


@given(
    code=st.sampled_from([*DESCRIPTIONS, 299]),
    description=st.none() | st.text(max_size=8),
    value=st.just(msgspec.UNSET) | st.none() | st.lists(st.text(max_size=8), max_size=3),
    extra=st.none()
    | st.dictionaries(st.sampled_from([*_PEEKED, "reason", "desc", "value"]), st.text(max_size=8), max_size=3),
)
def test_answers_are_what_they_would_be_read_as(
    code: int,
    description: str | None,
    value: object,
    extra: dict[str, object] | None,
) -> None:
    answer = codec.response(_REQUEST, code, description=description, value=value, extra=extra)
    assert codec.decode(answer.raw) == [answer]
    body = json.loads(answer.body)
    assert body["code"] == (extra or {}).get("code", code)
    assert ("value" in body) == (value is not msgspec.UNSET or "value" in (extra or {}))


@pytest.mark.parametrize("id_", [None, 7, "x", b"7"])
@pytest.mark.parametrize("body", [None, {}, {"value": 1}, {"via": ["x"], "code": 200}])
def test_built_messages_are_what_they_would_be_read_as(
    id_: bytes | int | str | None, body: dict[str, object] | None
) -> None:
    message = codec.build(id=id_, type="update", from_="mn:/session", to="runtime://a.example/r", body=body)
    assert codec.decode(message.raw) == [message]
