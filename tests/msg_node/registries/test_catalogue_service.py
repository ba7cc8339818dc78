"""Reading catalogue entries by messages: who may, which address counts, and what of a descriptor is the answer."""

from __future__ import annotations

import pytest

from msg_node.kernel.catalogue_questions import CatalogueQuestion
from msg_node.kernel.service import Answer, Caller, Inquiry, Service, ServiceRequest
from msg_node.registries.core.catalogue_service import catalogue_service, without_guest_code
from protofly import codec
from protofly.errors import Code, PeerError

CATALOGUE = "domain://catalogue.a.example"
CHAT = "hyperty-catalogue://catalogue.a.example/.well-known/hyperty/Chat"
STUB = "hyperty-catalogue://catalogue.{}/.well-known/protocolstub/default"
PROXY = "hyperty-catalogue://catalogue.{}/.well-known/idp-proxy/default"
DESCRIPTOR: dict[str, object] = {"objectName": "Chat", "version": 0, "hypertyType": []}


def asked(to: str, body: dict[str, object] | None = None, *, type_: str = "read", caller: Caller) -> ServiceRequest:
    message = codec.build(id=1, type=type_, from_="runtime://a.example/ana", to=to, body=body or {})
    return ServiceRequest(message, caller, "a.example", 0.0, bytes(32))


def ask(to: str, body: dict[str, object] | None = None, *, service: Service = catalogue_service) -> Inquiry:
    inquiry = service(asked(to, body, caller=Caller(1)))
    assert isinstance(inquiry, Inquiry)
    return inquiry


@pytest.mark.parametrize(("to", "body"), [(CHAT, {}), (CATALOGUE, {"resource": CHAT}), (CHAT, {"resource": "x"})])
def test_an_entry_is_read_at_its_own_address_or_named_to_the_catalogue(to: str, body: dict[str, object]) -> None:
    question = ask(to, body).question
    assert isinstance(question, CatalogueQuestion)
    assert (question.entry.domain, question.entry.kind, question.entry.name) == ("a.example", "hyperty", "Chat")
    assert question.asked_by == "runtime://a.example/ana"


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("", DESCRIPTOR), ("/objectName", "Chat"), ("/version", 0), ("/hypertyType", [])],
)
def test_the_answer_is_the_descriptor_or_its_attribute_that_is_named(attribute: str, value: object) -> None:
    answer = ask(CHAT + attribute).conclude(DESCRIPTOR, 0.0)
    assert isinstance(answer, Answer)
    assert answer.value == value


def test_an_attribute_that_a_descriptor_lacks_is_not_found() -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.NOT_REGISTERED) as caught:
        ask(f"{CHAT}/sourcePackage").conclude(DESCRIPTOR, 0.0)
    assert "sourcePackage" in caught.value.detail


@pytest.mark.parametrize(
    ("to", "type_", "caller", "code"),
    [
        (CHAT, "read", Caller(-1, "b.example"), Code.POLICY),
        (CHAT, "read", Caller(1, is_guest=True), Code.POLICY),
        (CHAT, "create", Caller(1), Code.BAD_TYPE),
    ],
)
def test_what_is_no_question_of_a_runtime_is_refused(to: str, type_: str, caller: Caller, code: Code) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        catalogue_service(asked(to, type_=type_, caller=caller))


@pytest.mark.parametrize("body", [{}, {"resource": ""}, {"resource": "x"}, {"resource": "::"}, {"resource": [CHAT]}])
def test_a_question_to_the_catalogue_that_names_no_entry_has_a_bad_body(body: dict[str, object]) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        catalogue_service(asked(CATALOGUE, body, caller=Caller(1)))


@pytest.mark.parametrize(
    ("to", "body", "code"),
    [
        ("hyperty-catalogue:x y", {}, Code.BAD_HEADER),
        (CATALOGUE, {"resource": CHAT.replace("hyperty/", "secrets/")}, Code.NO_SUCH_SERVICE),
        (CATALOGUE, {"resource": CHAT.replace("a.example", "a..example")}, Code.NAME_INVALID),
    ],
)
def test_what_is_wrong_with_an_entry_keeps_its_own_code(to: str, body: dict[str, object], code: Code) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        catalogue_service(asked(to, body, caller=Caller(1)))


@pytest.mark.parametrize("address", [STUB, PROXY])
def test_code_of_other_domains_is_kept_from_devices_where_the_operator_says_so(address: str) -> None:
    careful = without_guest_code(["a.example", "alias.example"])
    for domain in ("a.example", "alias.example"):
        ask(address.format(domain), service=careful)
    ask(address.format("b.example"))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.POLICY):
        ask(address.format("b.example"), service=careful)
    ask(CHAT.replace("a.example", "b.example"), service=careful)
