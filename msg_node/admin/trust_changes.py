"""What operators decide about the code and keys of another domain: which to believe from now on, or to forget them.

All is on the disk before it is in force. Then the contact with the domain begins anew: its documents are asked
for again, and a link that rests on what does not count any more ends in good order.

Source: trust and hosts, section 3.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from catalogue_client.core.state import TrustState, retrusted
from federation.links.domain_link import close_link
from msg_node.admin.administered import Administered
from msg_node.admin.core.operations import Value
from msg_node.admin.core.plan import Plan
from protofly.documents import is_fingerprint
from protofly.errors import Code, PeerError

Arguments = Mapping[str, Value]
_NOTHING: Final = "nothing stored"


def retrust(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Replace the trust in a domain that lost its keys: believe only this key set from now on."""
    domain, fingerprint = str(arguments["domain"]), str(arguments["fingerprint"])
    if domain in node.settings().own_domains:
        raise PeerError(Code.BAD_BODY, f"{domain} is our own domain")
    if not is_fingerprint(fingerprint):
        raise PeerError(Code.BAD_BODY, "`fingerprint` has 43 characters of base64url, as `keys fingerprint` prints it")
    pinned = next((one.fingerprint for one in node.settings().peer if one.domain == domain), "")
    if pinned and pinned != fingerprint:
        raise PeerError(Code.BAD_BODY, f"the [[peer]] entry of {domain} pins {pinned}; change that first, and reload")
    before, level = _remembered(node, domain)
    after = trust_facts(retrusted(before, domain, fingerprint))
    store = partial(node.trust_store.retrust_now, domain, fingerprint)
    return Plan(trust_facts(before, level), after, partial(_begin_anew, node, domain), lambda: _ignore(store()))


def forget(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Undo a retrust that was not used; otherwise forget the keys of a domain, and the pin of a stub that we chose."""
    domain = str(arguments["domain"])
    is_pinned, is_known = domain in node.pins.domains(), domain in node.trust_store.domains()
    if not is_known and not is_pinned:
        raise PeerError(Code.NOT_REGISTERED, f"no trust is stored for {domain}")
    before, level = _remembered(node, domain)
    replaced = None if before is None else before.replaced

    def store() -> None:
        node.pins.forget(domain)
        if is_known:
            node.trust_store.forget_now(domain)

    return Plan(
        trust_facts(before, level) | ({"pin": True} if is_pinned else {}),
        trust_facts(replaced),
        partial(_begin_anew, node, domain),
        store,
    )


def pin(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Accept another module as the stub that the settings choose for a domain; one that runs ends in good order."""
    domain, module = str(arguments["domain"]), str(arguments["module"])
    if any(one.domain == domain and one.unsigned_stub for one in node.settings().peer):
        raise PeerError(Code.BAD_BODY, f"the [[peer]] entry of {domain} pins its stub: change `sha256` there")
    try:
        before = node.pins.read(domain)
    except PeerError as exc:
        before = exc.code.word
    return Plan(
        {"module": before},
        {"module": module},
        partial(_take_up, node, domain, module),
        partial(node.pins.write, domain, module),
    )


def _take_up(node: Administered, domain: str, module: str) -> None:
    """Have a pinned module run in place of another one, or of none."""
    link = next((one for one in node.federation.links if one.domain == domain), None)
    if link is None:
        return
    if link.stub.worker_pid is not None and link.stub.module_sha256 != module:
        link.need.recall()
    elif link.machine.refusal is Code.DIGEST_NOT_APPROVED:
        node.federation.restart(domain)


def trust_facts(state: TrustState | None, level: str = "") -> dict[str, object]:
    """Row about the stored trust in a domain; `level` is shown if nothing is stored, or it cannot be read."""
    if state is None:
        return {"level": level or _NOTHING, "root": 0, "serial": 0, "fingerprint": "", "held": ""}
    return {
        "level": state.level.value,
        "root": state.root_version,
        "serial": state.live_serial,
        "fingerprint": state.fingerprints[-1] if state.fingerprints else "",
        "held": ", ".join(state.held),
    }


def _remembered(node: Administered, domain: str) -> tuple[TrustState | None, str]:
    """What is stored of a domain; None with a word for what cannot be read."""
    try:
        return node.trust_store.load(domain), ""
    except PeerError as exc:
        return None, exc.code.word


def _begin_anew(node: Administered, domain: str) -> None:
    node.resolver.forget_failures()
    node.documents.ask_again(domain)
    link = next((one for one in node.federation.links if one.domain == domain), None)
    if link is not None and link.is_live:
        close_link(link)
    elif link is not None:
        node.federation.restart(domain)


def _ignore(_state: object) -> None:
    """Do nothing: the plan has the state before the change."""


PLANNERS: Final[Mapping[str, Callable[[Administered, Arguments, str], Plan]]] = {
    "peer retrust": retrust,
    "peer forget": forget,
    "stub pin": pin,
}
"""Changes of trust by the name of their operation."""
