"""Message specification, section 21: descriptors and stubs. One test per row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalogue_client.core.legacy import Descriptor, decode_descriptor
from federation.core.stub_lifecycle import StubLifecycle, StubState
from protofly.errors import Code, PeerError
from sandbox.core.module_check import inspect_module
from tests.support.guests import assemble
from tests.support.repository import MODULE, PublishedDomain, World

WELL_KNOWN = "https://catalogue.b.example/.well-known/protocolstub/default"


async def test_row_53_the_default_stub_of_an_old_catalogue_is_asked_for_at_its_well_known_place(tmp_path: Path) -> None:
    published = PublishedDomain()
    package = {"sourceCodeClassname": "B", "sourceCode": MODULE.hex()}
    published.files = {WELL_KNOWN: json.dumps({"objectName": "b", "version": 1, "sourcePackage": package}).encode()}
    world = World(tmp_path, published)
    try:
        descriptor, _ = await world.client.read_unsigned("b.example")
        assert (descriptor.object_name, world.fetcher.requests) == ("b", [WELL_KNOWN])
    finally:
        world.close()


MEMORY = '(memory (export "memory") 1 16)'
WINDOW = '(func (export "window") (param i32) (result i32) (i32.const 4096))'
HANDLE = '(func (export "handle") (param i32 i32) (result i64) (i64.const 0))'


def test_row_54_a_stub_begins_in_one_way_and_no_start_function_runs() -> None:
    begins = inspect_module(assemble(f'(module {MEMORY} {WINDOW} {HANDLE} (func (export "_initialize")))'))
    plain = inspect_module(assemble(f"(module {MEMORY} {WINDOW} {HANDLE})"))
    assert (begins.has_initialize, plain.has_initialize) == (True, False)
    for other in ('(func (export "_start"))', "(func $go) (start $go)"):
        module = assemble(f"(module {MEMORY} {WINDOW} {HANDLE} {other})")
        if "(start" in other:
            with pytest.raises(PeerError, check=lambda error: error.code is Code.MODULE_EXPORTS):
                inspect_module(module)
        else:
            assert not inspect_module(module).has_initialize


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("created", StubState.CREATED),
        ("create", StubState.CREATED),
        ("in-progress", StubState.IN_PROGRESS),
        ("live", StubState.LIVE),
        ("LIVE", StubState.LIVE),
        ("connected", StubState.LIVE),
        ("failed", StubState.FAILED),
        ("disconnected", StubState.DISCONNECTED),
        ("quarantined", None),
        ("alive", None),
    ],
)
def test_row_55_status_words_of_old_stubs_mean_the_states_of_today(word: str, state: StubState | None) -> None:
    lifecycle = StubLifecycle()
    lifecycle.deploying()
    lifecycle.deployed()
    lifecycle.started(0.0)
    assert lifecycle.reported(word, 1.0) is state


def descriptor(**members: object) -> Descriptor:
    return decode_descriptor(json.dumps({"objectName": "b", "version": "1.0", **members}).encode(), domain="b.example")


def test_row_56_descriptor_members_are_read_in_every_form() -> None:
    for configuration in ({"host": "b"}, '{"host":"b"}'):
        assert descriptor(configuration=configuration).configuration == {"host": "b"}
    empty: tuple[object, ...] = ([], "[]", {}, "nonsense")
    for constraints in empty:
        assert descriptor(constraints=constraints).constraints == {}
    for flag in (True, "true", "1"):
        assert descriptor(constraints={"browser": flag}).constraints == {"browser": True}
    assert descriptor(version=1.0).version == "1.0"
    assert descriptor(hypertyType="comm").hyperty_types == descriptor(hypertyType=["comm"]).hyperty_types == ("comm",)
