"""`hyperty-catalogue://…`: local runtimes read descriptors of hyperties, schemas and stubs by messages.

`read` to the address of the entry itself, or to `domain://catalogue.<d>` with it as `body.resource`. An address of a
catalogue is a document and no place to send messages to; that `read` is served here, on behalf of local runtimes, is
a rule of ours. Source: data formats, section 2; message specification, sections 2.1 and 20.4.
"""

from __future__ import annotations

from collections.abc import Collection

from catalogue_client.core.catalogue_entry import entry_of
from msg_node.kernel.catalogue_questions import CATALOGUE, CatalogueQuestion
from msg_node.kernel.resources import text_of
from msg_node.kernel.service import Answer, Inquiry, Service, ServiceRequest, inquire
from protofly.address import scheme_of
from protofly.errors import Code, PeerError

_GUEST_CODE = frozenset({"protocolstub", "idp-proxy"})
"""Kinds of entries whose code a runtime loads in order to talk to another domain by itself."""


def without_guest_code(own_domains: Collection[str]) -> Service:
    """The service for domains whose devices are not to load code of others: all else is answered.

    Such runtimes reach other domains through the node, which runs those domains' stubs in its sandbox. Source: feature
    row HM-08.

    Raises:
        PeerError: POLICY, from the service, for stubs and identity provider proxies of other domains.
    """
    own = frozenset(own_domains)

    def serve(request: ServiceRequest) -> Inquiry:
        inquiry = catalogue_service(request)
        question = inquiry.question
        assert isinstance(question, CatalogueQuestion)
        if question.entry.kind in _GUEST_CODE and question.entry.domain not in own:
            raise PeerError(Code.POLICY, "runtimes of this domain load no stubs of others; this node hosts them")
        return inquiry

    return serve


def catalogue_service(request: ServiceRequest) -> Inquiry:
    """Serve `read`.

    Raises:
        PeerError: BAD_TYPE, BAD_BODY, NO_SUCH_SERVICE, NAME_INVALID; POLICY for another domain, which can ask the
            catalogue itself.
    """
    if request.caller.is_abroad:
        raise PeerError(Code.POLICY, "catalogues are read over HTTPS, not through this node")
    if request.message.type != "read":
        raise PeerError(Code.BAD_TYPE, "catalogue entries are read")
    is_in_body = scheme_of(request.message.to) != "hyperty-catalogue"
    try:
        entry = entry_of(text_of(request.members, "resource") if is_in_body else request.message.to)
    except PeerError as exc:
        if is_in_body and exc.code is Code.BAD_HEADER:  # what is wrong stands in the body, or is missing there
            text = "`resource` names the entry: hyperty-catalogue://<domain>/.well-known/<kind>/<name>"
            raise PeerError(Code.BAD_BODY, text) from exc
        raise

    def conclude(descriptor: dict[str, object], _: float) -> Answer:
        if not entry.attribute:
            return Answer(value=descriptor)
        if entry.attribute not in descriptor:
            raise PeerError(Code.NOT_REGISTERED, f"the descriptor has no {entry.attribute}")
        return Answer(value=descriptor[entry.attribute])

    return inquire(CATALOGUE, CatalogueQuestion(entry, request.message.from_), conclude)
