"""Which address asks a catalogue for a schema."""

from __future__ import annotations

import pytest

from msg_node.kernel.catalogue_questions import schema_question
from protofly.errors import Code, PeerError

BASE = "hyperty-catalogue://catalogue.alpha.example/.well-known"
ANA = "runtime://alpha.example/rt-ana"


@pytest.mark.parametrize("kind", ["dataschema", "dataobjectschema"])
def test_a_whole_schema_can_be_asked_for(kind: str) -> None:
    question = schema_question(f"{BASE}/{kind}/Chat", ANA)
    assert (question.entry.kind, question.entry.name, question.asked_by) == ("dataschema", "Chat", ANA)


@pytest.mark.parametrize("path", ["hyperty/Chat", "dataschema/Chat/version", "runtime/default", "dataschema"])
def test_other_descriptors_and_parts_of_a_schema_are_no_schema(path: str) -> None:
    with pytest.raises(PeerError) as refused:
        schema_question(f"{BASE}/{path}", ANA)
    assert refused.value.code is Code.BAD_BODY
