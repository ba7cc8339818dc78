"""The REST interface of a QoS broker, as calls and as what their answers mean: numbers as text, refusals as pages.

Source: message specification, section 14.
"""

from __future__ import annotations

from collections.abc import Mapping

from msg_node.kernel.rest_calls import Answered, Call, path_to, refusal_of
from msg_node.qos.core.leases import Amounts, QosKind
from protofly.errors import Code, PeerError

WHO = "the QoS broker"
PROVIDERS = Call("GET", "/getAllCspInfo")

_TEXT_CHARS = 256
_PROVIDERS = 1000
_AMOUNT_DIGITS = 15


def turn_call(provider: str, client: str) -> Call:
    """Ask for the TURN server that suits a client."""
    return Call("GET", path_to("getAppropriateTurn", query={"cspId": provider, "clientName": client}))


def credentials_call(client_id: str) -> Call:
    """Ask for the password of a client."""
    return Call("GET", path_to("getCredentials", query={"clientId": client_id}))


def usage_call(key: str) -> Call:
    """Ask how much of its quotas a provider has used."""
    return Call("GET", path_to("getCspConso", query={"cspkey": key}))


def new_provider_call(name: str, quotas: Amounts) -> Call:
    """Add a provider."""
    audio, video, data = map(str, quotas)
    return Call("POST", "/provRequest", form={"servicename": name, "audio": audio, "video": video, "qdata": data})


def remove_provider_call(key: str) -> Call:
    """Remove a provider."""
    return Call("DELETE", path_to("deleteCSP", query={"cspkey": key}))


def quotas_call(key: str, quotas: Amounts, *, method: str) -> Call:
    """Change quotas. `method` is PUT as documented, or GET as implemented; the key is spelled with a capital here."""
    audio, video, data = map(str, quotas)
    query = {"cspKey": key, "audioQuota": audio, "videoQuota": video, "dataQuota": data}
    return Call(method, path_to("changeQuotas", query=query))


def read_turn(answer: Answered) -> tuple[str, str]:
    """Server (`ip:port`) and client id.

    Raises:
        PeerError: NOT_REGISTERED when no server suits; BAD_REPLY; see `refusal_of`.
    """
    document = _document(answer, "no suitable server")
    if isinstance(document, dict):
        document = [document.get("server"), document.get("clientId")]
    if not isinstance(document, list) or len(document) != 2:
        raise PeerError(Code.BAD_REPLY, "the QoS broker names no server")
    return _text(document[0]), _text(document[1])


def read_credentials(answer: Answered) -> tuple[str, str]:
    """Client id and password.

    Raises:
        PeerError: NOT_REGISTERED when there is no such client; BAD_REPLY; see `refusal_of`.
    """
    document = _document(answer, "no such client")
    if isinstance(document, dict):
        document = [document.get("clientId"), document.get("password")]
    if not isinstance(document, list) or len(document) != 2:
        raise PeerError(Code.BAD_REPLY, "the QoS broker names no password")
    return _text(document[0]), _text(document[1])


def read_usage(answer: Answered) -> Amounts:
    """Read the amounts that are in use, by kind.

    Raises:
        PeerError: NOT_REGISTERED when there is no such provider; BAD_REPLY; see `refusal_of`.
    """
    document = _document(answer, "no such provider")
    if not isinstance(document, dict):
        raise PeerError(Code.BAD_REPLY, "the QoS broker reports no usage")
    return _amounts(document, {kind: kind.value for kind in QosKind})


def read_providers(answer: Answered) -> dict[str, Amounts]:
    """The quotas of all providers, by their keys.

    Raises:
        PeerError: BAD_REPLY; see `refusal_of`.
    """
    document = _document(answer, "no providers")
    if not isinstance(document, list) or len(document) > _PROVIDERS:
        raise PeerError(Code.BAD_REPLY, "the QoS broker lists no providers")
    names = {kind: f"{kind.value}Quota" for kind in QosKind}
    providers: dict[str, Amounts] = {}
    for one in document:
        if not isinstance(one, dict):
            raise PeerError(Code.BAD_REPLY, "the QoS broker lists what is no provider")
        providers[_text(one.get("csp"))] = _amounts(one, names)
    return providers


def check_done(answer: Answered, *, what: str) -> None:
    """Check that an operator's verb was carried out; a redirect to a page means that as well.

    Raises:
        PeerError: NOT_REGISTERED with `what` is missing; see `refusal_of`.
    """
    if answer.status == 404:
        raise PeerError(Code.NOT_REGISTERED, what)
    if not 200 <= answer.status < 400:
        raise refusal_of(answer, WHO)


def _document(answer: Answered, missing: str) -> object:
    if answer.status == 404:
        raise PeerError(Code.NOT_REGISTERED, missing)
    if answer.status != 200:
        raise refusal_of(answer, WHO)
    return answer.document()


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= _TEXT_CHARS or not value.isprintable():
        raise PeerError(Code.BAD_REPLY, "the QoS broker answers what is no text")
    return value


def _amounts(members: Mapping[str, object], names: Mapping[QosKind, str]) -> Amounts:
    return Amounts(*(_amount(members.get(names[kind], 0)) for kind in QosKind))


def _amount(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _AMOUNT_DIGITS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 10**_AMOUNT_DIGITS:
        raise PeerError(Code.BAD_REPLY, "the QoS broker answers what is no amount")
    return int(value)
