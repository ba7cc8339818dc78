"""What the registry itself said, for a runtime of ours that asks for it; over real HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from protofly.limits import REGISTRY_RAW_BYTES
from tests.support.registry_entries import DOMAIN, HYPERTY, USER, hyperty
from tests.support.registry_rig import ADDRESS, create, read, rest_registry
from tests.support.rest_server import Said
from tests.support.runtime_rig import FOREIGN, a_message, code_and_reason, parsed


async def test_the_registry_s_own_answer_stands_beside_what_it_means_and_comes_from_it_each_time(
    tmp_path: Path,
) -> None:
    async with rest_registry(tmp_path, cache_seconds=60) as registry:
        ana = await registry.rig.opened("rt-ana")
        created = await ana.ask("create", ADDRESS, {"value": hyperty(), "raw": True})
        assert created["body"]["code"] == 200
        assert [one["code"] for one in created["body"]["raw"]] == [200]
        plain = await read(ana, USER)
        assert "raw" not in plain["body"]
        registry.server.asked.clear()
        for _ in range(2):
            reply = await read(ana, USER, raw=True)
            assert reply["body"]["value"] == plain["body"]["value"]
            (raw,) = reply["body"]["raw"]
            assert raw["code"] == 200
            assert next(iter(raw["value"].values()))["hypertyID"] == HYPERTY
        assert len(registry.server.asked) == 2  # never from the cache
        assert "raw" not in (await read(ana, USER, raw="true"))["body"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            Said(404, b'{"message": "Not Found", "numbers": [1.0, 1e2]}'),
            {"code": 404, "value": {"message": "Not Found", "numbers": [1.0, 100.0]}},
        ),
        (Said(404, b"<html>gone</html>", "text/html"), {"code": 404, "text": "<html>gone</html>"}),
        (Said(404, b"\xff\xfe", "text/plain"), {"code": 404, "text": "\ufffd\ufffd"}),
        (Said(404, b'"' + b"x" * REGISTRY_RAW_BYTES + b'"'), {"code": 404}),
    ],
    ids=["json", "html", "no text", "long"],
)
async def test_whatever_it_says_is_passed_on_as_it_came_and_bounded(
    tmp_path: Path, said: Said, expected: dict[str, object]
) -> None:
    async with rest_registry(tmp_path) as registry:
        ana = await registry.rig.opened("rt-ana")
        registry.server.handler = lambda _: said
        reply = await read(ana, USER, raw=True)
        assert code_and_reason(reply) == (404, "not-registered")
        assert reply["body"]["raw"] == [expected]


async def test_other_domains_get_no_raw_answers(tmp_path: Path) -> None:
    async with rest_registry(tmp_path) as registry:
        ana = await registry.rig.opened("rt-ana")
        assert (await create(ana, hyperty()))["body"]["code"] == 200
        asked = a_message("read", f"runtime://{FOREIGN}/x", ADDRESS, {"resource": USER, "raw": True}, id_=1)
        assert registry.rig.bus.from_links.take(FOREIGN, [parsed(asked)]) == [None]
        while not registry.rig.domains.sent:
            await registry.settled()
        (reply,) = registry.rig.domains.take()
        assert reply["body"]["code"] == 200
        assert "raw" not in reply["body"]
        assert DOMAIN in str(reply["body"]["value"])
