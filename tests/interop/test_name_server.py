"""The name server of demo and tests keeps to the protocol, also towards nonsense."""

import dns.flags
import dns.message
import dns.rcode
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.core.name_questions import AnswerStatus, Question, RecordKind
from interop.name_server import Fault, NameServer, Turns
from protofly.errors import SettingsError
from tests.support.names import name_service

RECORDS = {
    "a.example": ["A 127.0.0.1", "A 127.0.0.2", "AAAA ::1"],
    "www.a.example": ["CNAME a.example."],
    "_rethink-mn.a.example": ['TXT "v=rmn1; id=1"', "300 SVCB 1 a.example. port=8444"],
}


def ask(server: NameServer, name: str, kind: str) -> dns.message.Message:
    return dns.message.from_wire(server.answer(dns.message.make_query(name, kind).to_wire(), "udp"))


def test_records_of_one_kind_come_together_and_others_stay_away() -> None:
    response = ask(NameServer(RECORDS), "A.example.", "A")
    assert sorted(str(record) for record in response.answer[0]) == ["127.0.0.1", "127.0.0.2"]
    assert response.flags & dns.flags.AA
    assert not response.flags & dns.flags.AD


def test_alias_brings_its_target_along() -> None:
    assert [rrset.name.to_text() for rrset in ask(NameServer(RECORDS), "www.a.example.", "A").answer] == [
        "www.a.example.",
        "a.example.",
    ]


@pytest.mark.parametrize(
    ("name", "rcode"),
    [("a.example.", dns.rcode.NOERROR), ("example.", dns.rcode.NOERROR), ("b.example.", dns.rcode.NXDOMAIN)],
)
def test_nothing_found_says_whether_the_name_exists(name: str, rcode: dns.rcode.Rcode) -> None:
    response = ask(NameServer(RECORDS), name, "SRV")
    assert response.rcode() == rcode
    assert response.answer == []
    assert response.authority[0].rdtype == dns.rdatatype.SOA


def test_turns_change_with_every_query_and_the_last_one_stays() -> None:
    server = NameServer({"a.example": Turns((("A 127.0.0.1",), ("A 127.0.0.2",)))})
    assert [str(ask(server, "a.example.", "A").answer[0][0]) for _ in range(3)] == [
        "127.0.0.1",
        "127.0.0.2",
        "127.0.0.2",
    ]


def test_record_that_does_not_parse_is_refused_and_the_old_ones_stay() -> None:
    server = NameServer(RECORDS)
    with pytest.raises(SettingsError, match=r"c\.example"):
        server.replace({"c.example": ["A 127.0.0.300"]})
    assert server.records == RECORDS


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_get_an_answer_or_silence(wire: bytes) -> None:
    answer = NameServer(RECORDS).answer(wire, "udp")
    assert answer == b"" or answer[:2] == wire[:2]


async def test_queries_are_remembered_by_name_kind_and_transport() -> None:
    async with name_service(RECORDS, faults={"slow.a.example": Fault.SERVFAIL}) as (server, client):
        assert (await client.ask(Question("a.example", RecordKind.AAAA))).addresses == ("::1",)
        assert (await client.ask(Question("slow.a.example", RecordKind.A))).status is AnswerStatus.FAILED
    assert server.asked("a.example") == server.asked("a.example", "AAAA") == 1
    assert server.asked("a.example", "A") == 0


async def test_port_is_the_same_for_both_transports_and_busy_ports_are_an_error() -> None:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(NameServer(RECORDS).run)
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.aclose()
        with pytest.raises((SettingsError, OSError)):
            await NameServer(RECORDS).run(port=port)
        nursery.cancel_scope.cancel()
