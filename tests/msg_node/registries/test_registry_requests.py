"""Requests to catalogues and to the global registry: what is asked elsewhere, and what is refused at once."""

from __future__ import annotations

import pytest

from msg_node.kernel.service import Answer, Caller, Inquiry, Service, ServiceRequest
from msg_node.registries.core.catalogue_service import catalogue_service, without_guest_code
from msg_node.registries.core.global_registry_service import GlobalRegistryService
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import GLOBAL_REGISTRY_READ_SECONDS, GLOBAL_REGISTRY_WRITE_SECONDS

OURS, THEIRS = "alpha.example", "beta.example"
CAREFUL = without_guest_code([OURS])
GUID = "3mCDsu5R9o0HlNMBxdICiQS1vGRMUD39jkpl5u3iRdI"


OWN, GUEST = Caller(1), Caller(1, is_guest=True)


def request(type_: str, body: dict[str, object], *, caller: Caller = OWN) -> ServiceRequest:
    message = codec.build(id=1, type=type_, from_=f"runtime://{OURS}/rt", to=f"domain://catalogue.{OURS}", body=body)
    return ServiceRequest(message, caller, OURS, 1e6, bytes(32))


def entry(domain: str, kind: str) -> str:
    return f"hyperty-catalogue://catalogue.{domain}/.well-known/{kind}/Thing"


@pytest.mark.parametrize("kind", ["hyperty", "protocolstub", "idp-proxy", "dataschema"])
@pytest.mark.parametrize("domain", [OURS, THEIRS])
def test_only_code_of_other_domains_is_kept_from_runtimes_that_load_none(domain: str, kind: str) -> None:
    asked = request("read", {"resource": entry(domain, kind)})
    assert isinstance(catalogue_service(asked), Inquiry)
    if domain == OURS or kind not in ("protocolstub", "idp-proxy"):
        assert isinstance(CAREFUL(asked), Inquiry)
        return
    with pytest.raises(PeerError, check=lambda error: error.code is Code.POLICY):
        CAREFUL(asked)


@pytest.mark.parametrize("service", [catalogue_service, CAREFUL])
@pytest.mark.parametrize(
    ("type_", "number", "code"),
    [("create", 1, Code.BAD_TYPE), ("update", 1, Code.BAD_TYPE), ("read", -1, Code.POLICY)],
)
def test_catalogues_are_read_and_not_for_others(service: Service, type_: str, number: int, code: Code) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        service(request(type_, {"resource": entry(OURS, "hyperty")}, caller=Caller(number)))


@pytest.mark.parametrize(
    ("type_", "body", "jwt"),
    [
        ("read", {"resource": f"user-guid://{GUID}"}, ""),
        ("read", {"guid": GUID, "value": "x"}, ""),
        ("create", {"resource": GUID, "value": "x"}, "x"),
        ("update", {"resource": GUID, "value": "", "jwt": "y"}, "y"),
        ("update", {"resource": GUID, "value": 7, "jwt": "y"}, "y"),
    ],
)
def test_the_global_registry_is_asked_for_records_and_given_them(type_: str, body: dict[str, object], jwt: str) -> None:
    asked = GlobalRegistryService()(request(type_, body))
    assert isinstance(asked, Inquiry)
    assert (getattr(asked.question, "guid", ""), getattr(asked.question, "jwt", "")) == (GUID, jwt)
    least = GLOBAL_REGISTRY_WRITE_SECONDS if jwt else GLOBAL_REGISTRY_READ_SECONDS
    assert least < asked.seconds < least + 60
    answer = asked.conclude("record", 0.0)
    assert isinstance(answer, Answer)
    assert (answer.code, answer.value) == (200, "" if jwt else "record")


@pytest.mark.parametrize(
    ("type_", "body", "caller", "code"),
    [
        ("delete", {"resource": GUID, "value": "x"}, Caller(1), Code.BAD_TYPE),
        ("create", {"resource": GUID}, Caller(1), Code.BAD_BODY),
        ("create", {"resource": GUID, "value": "", "jwt": 7}, Caller(1), Code.BAD_BODY),
        ("read", {"resource": GUID}, Caller(-1), Code.TRANSIT),
        ("read", {"resource": GUID}, GUEST, Code.TRANSIT),
        ("create", {"resource": GUID, "value": "x"}, GUEST, Code.TRANSIT),
    ],
)
def test_what_the_global_registry_is_not_asked_is_refused_in_both_spellings(
    type_: str, body: dict[str, object], caller: Caller, code: Code
) -> None:
    answer = GlobalRegistryService()(request(type_, body, caller=caller))
    assert isinstance(answer, Answer)
    assert (answer.code, answer.reason, (answer.members or {})["Code"]) == (code.status, code.word, code.status)
