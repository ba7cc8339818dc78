"""Replies of foreign registries on their way to our runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.registries.core.foreign_registry import as_found
from protofly import codec
from protofly.errors import Code
from tests.support.runtime_rig import FOREIGN, Json, a_message, parsed, runtime_address, runtime_rig

REGISTRY = f"domain://registry.{FOREIGN}"
ANA = runtime_address("ana")


def reply(body: dict[str, object], from_: str = REGISTRY) -> Json:
    return a_message("response", from_, ANA, body, id_="7")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"code": 200, "value": {}}, 404),
        ({"code": "200", "value": {"message": "Not Found"}}, 404),
        ({"code": 200, "value": {"message": "x", "hypertyID": "hyperty://beta.example/h"}}, 200),
        ({"code": 200, "value": {"hyperty://beta.example/h": {}}}, 200),
        ({"code": 200, "value": []}, 200),
        ({"code": 200}, 200),
        ({"code": 408, "value": {}}, 408),
    ],
)
def test_a_forced_200_with_nothing_in_it_is_404(body: dict[str, object], code: int) -> None:
    message = parsed(reply(body))
    read = as_found(message)
    members = codec.body_members(read.body)
    assert members["code"] == code
    assert (read.id, read.from_, read.to) == (message.id, message.from_, message.to)
    if code == 404:
        assert members["reason"] == "not-registered"
    else:
        assert read is message


@pytest.mark.parametrize("said", [{}, {"desc": "found"}])
def test_what_a_forced_200_says_in_words_is_replaced_where_it_says_so(said: dict[str, object]) -> None:
    members = codec.body_members(as_found(parsed(reply({"code": 200, "value": {}, **said}))).body)
    description = Code.NOT_REGISTERED.description
    assert {name: members[name] for name in ("desc", "description") if name in members} == {
        "description": description,
        **dict.fromkeys(said, description),
    }


def test_what_is_no_reply_stays_as_it_is() -> None:
    message = parsed(a_message("update", REGISTRY, ANA, {"code": 200, "value": {}}, id_="7"))
    assert as_found(message) is message


async def test_our_runtimes_get_it_so_and_other_replies_as_they_are(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        ana = await rig.opened("ana")
        nothing: dict[str, object] = {"code": 200, "value": {"message": "Not Found"}}
        other = f"hyperty://{FOREIGN}/h"
        messages = [parsed(reply(nothing)), parsed(reply(nothing, other)), parsed(reply({"code": 200, "value": 7}))]
        assert rig.bus.from_links.take(FOREIGN, messages) == [None] * 3
        received = [await ana.next() for _ in range(3)]
        assert [one["body"]["code"] for one in received] == [404, 200, 200]
        assert received[1]["body"] == nothing
