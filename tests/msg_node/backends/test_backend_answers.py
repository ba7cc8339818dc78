"""Whatever a back-end answers, cores make a result or a PeerError of it, and leave out what nobody asked for."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue_client.core.catalogue_entry import decode_entry, entry_of, places
from msg_node.kernel.registrations import Status
from msg_node.kernel.rest_calls import Answered
from msg_node.qos.core.qos_rest import read_credentials, read_providers, read_turn, read_usage
from msg_node.registries.core.registry_entry import Changed, new_entry, read_changed
from msg_node.registries.core.registry_query import By, Query
from msg_node.registries.core.registry_rest import create_call, query_calls, records_in, statuses_in, update_call
from protofly.address import domain_of
from protofly.errors import PeerError
from tests.support.registry_entries import DOMAIN, HYPERTY, ROOM, USER, hyperty, room

DOMAINS = frozenset({DOMAIN})
QUERIES = [
    Query(By.URL, HYPERTY),
    Query(By.USER, USER),
    Query(By.GUID, "kS3Qd0x"),
    Query(By.IDENTIFIER, f"ana@{DOMAIN}"),
    Query(By.NAME, "Room 51"),
    Query(By.REPORTER, HYPERTY),
]
WORDS = st.sampled_from(
    ["hypertyID", "userID", "user", "url", "guid", "status", "expires", "resources", "lastModified", "message", HYPERTY]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([HYPERTY, USER, ROOM, "live", "asleep", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=8), inner, max_size=6),
    max_leaves=12,
)
ANSWERS = st.builds(
    Answered,
    status=st.sampled_from([200, 204, 302, 400, 401, 404, 408, 429, 500, 503]),
    body=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()),
    content_type=st.sampled_from(["", "application/json", "text/html", "application/problem+json"]),
)


@given(answer=ANSWERS, query=st.sampled_from(QUERIES))
def test_any_answer_of_a_registry_gives_entries_that_were_asked_for_or_a_peer_error(
    answer: Answered, query: Query
) -> None:
    with contextlib.suppress(PeerError):
        for record in records_in([answer], query, DOMAINS):
            assert domain_of(record.url) == DOMAIN
            assert 0 <= record.life_seconds(2e9) <= record.entry.expires_seconds
    with contextlib.suppress(PeerError):
        assert all(domain_of(record.url) == DOMAIN for record in statuses_in(answer, DOMAINS))


@given(answer=ANSWERS)
def test_any_answer_of_a_broker_gives_what_it_should_say_or_a_peer_error(answer: Answered) -> None:
    for read in (read_turn, read_credentials, read_usage, read_providers):
        with contextlib.suppress(PeerError):
            read(answer)


@given(raw=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_descriptor_is_an_object_or_a_peer_error(raw: bytes) -> None:
    with contextlib.suppress(PeerError):
        assert isinstance(decode_entry(raw, domain="b.example"), dict)


@given(text=st.text(max_size=60), kind=st.sampled_from(["hyperty", "dataschema", "x"]), name=st.text(max_size=30))
def test_any_address_names_an_entry_of_one_domain_or_nothing(text: str, kind: str, name: str) -> None:
    for address in (text, f"hyperty-catalogue://{text}", f"hyperty-catalogue://b.example/.well-known/{kind}/{name}"):
        with contextlib.suppress(PeerError):
            entry = entry_of(address)
            for url in places(entry):
                host, _, path = url.removeprefix("https://").partition("/")
                assert host in (entry.domain, f"catalogue.{entry.domain}", entry.authority)
                assert path.startswith(f".well-known/{entry.kind}/{entry.name}")
                assert not {"?", "#", "%", "\\", " "} & set(path)


@pytest.mark.parametrize(
    ("query", "paths"),
    [
        (Query(By.USER, "user://A.example/b?c"), ["/hyperty/user/user%3A%2F%2Fa.example%2Fb%3Fc"]),
        (
            Query(By.USER, USER, resources=frozenset({"b", "a,&"}), data_schemes=frozenset({"comm"})),
            ["/hyperty/user/user%3A%2F%2Falpha.example%2Fana/hyperty?resources=a%2C%26%2Cb&dataSchemes=comm"],
        ),
        (Query(By.GUID, "kS3"), ["/hyperty/guid/user-guid%3A%2F%2FkS3"]),
        (Query(By.IDENTIFIER, "ana@a.example"), ["/hyperty/email/ana%40a.example", "/hyperty/email/ana"]),
        (Query(By.NAME, "../x"), ["/hyperty/dataobject/name/..%2Fx"]),
        (
            Query(By.REPORTER, HYPERTY, resources=frozenset({"chat"})),
            ["/hyperty/dataobject/reporter/hyperty%3A%2F%2Falpha.example%2Fh-ana/do?resources=chat"],
        ),
        (Query(By.URL, ROOM), ["/hyperty/dataobject/url/comm%3A%2F%2Falpha.example%2Froom-51"]),
    ],
)
def test_queries_become_the_paths_of_the_published_interface(query: Query, paths: list[str]) -> None:
    assert [call.path for call in query_calls(query).calls] == paths


def test_writes_carry_what_the_published_interface_wants_and_no_more() -> None:
    entry = new_entry(HYPERTY, read_changed({**hyperty(), "secret": 1}), sid=1, now=0)
    call = create_call(entry)
    assert call.path == "/hyperty/user/user%3A%2F%2Falpha.example%2Fana/hyperty%3A%2F%2Falpha.example%2Fh-ana"
    assert set(call.document or ()) == {
        "descriptor", "expires", "resources", "dataSchemes", "runtime", "status", "guid", "p2pHandler",
    }  # fmt: skip
    thing = new_entry(ROOM, read_changed(room()), sid=1, now=0)
    assert set(create_call(thing).document or ()) == {
        "schema", "name", "reporter", "resources", "dataSchemes", "status", "expires", "runtime",
    }  # fmt: skip
    assert update_call(entry, Changed()).document == {}
    assert update_call(entry, Changed(status=Status.DISCONNECTED)).document == {"status": "disconnected"}
    assert update_call(entry, Changed(resources=("av",))).document == {"resources": ("av",), "status": "live"}
