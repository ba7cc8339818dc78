"""Before the first case: is a node there, which domain is it, which dialects does it speak, does it want a token?"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Sequence

import trio

from interop.conformance import session_steps
from interop.conformance.conversation import Conversation
from interop.conformance.filling import Manner
from interop.conformance.model import Dialect, Opens, Profile
from interop.conformance.outcome import NoAnswerError, NodeFaultError
from interop.conformance.stage import Node
from interop.conformance.wire import LineClosedError, LineRefusedError, WireFaultError
from protofly.errors import Code, TransportError


@dataclasses.dataclass(frozen=True, slots=True)
class Discovery:
    """Dialects that a node offers. `missing` gives the reason for each one that was asked for and is not spoken."""

    node: Node
    offered: tuple[Dialect, ...]
    missing: dict[Dialect, str]


def domain_candidates(host: str) -> list[str]:
    """Domains that a node on this host may speak for: the host's name, and what is left without its first label."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        parent = host.partition(".")[2]
        return [host, parent] if "." in parent else [host] if "." in host else []
    return []


async def discover(node: Node, dialects: Sequence[Dialect], profile: Profile) -> Discovery:
    """Try a session in each dialect.

    Raises:
        TransportError: nothing listens; or no dialect is spoken; the text says what to do next.
    """
    missing = dict[Dialect, str]()
    offered = list[Dialect]()
    candidates = [node.domain] if node.domain else domain_candidates(node.target.host)
    if not candidates:
        detail = f"{node.target.url} does not say which domain the node speaks for; say it with --domain"
        raise TransportError(Code.SETTINGS, detail, phase="connect")
    for dialect in dialects:
        for domain in candidates:
            tried, reason = await _probe(dataclasses.replace(node, domain=domain), Manner(dialect, profile))
            if not reason:
                node, candidates = tried, [domain]
                offered.append(dialect)
                missing.pop(dialect, None)
                break
            missing[dialect] = reason
    if not offered:
        reasons = "\n".join(f"  {dialect.value}: {reason}" for dialect, reason in missing.items())
        detail = (
            f"{node.target.url} offers no dialect for {' or '.join(candidates)}:\n{reasons}\n"
            "Is it a messaging node, is --domain right, does it want a --token?"
        )
        raise TransportError(Code.NOT_CONNECTED, detail, phase="connect")
    return Discovery(node, tuple(offered), missing)


async def _probe(node: Node, manner: Manner) -> tuple[Node, str]:
    """The node as it wants to be spoken to, and why it cannot be; empty when it can."""
    reason = await _try_session(node, manner)
    if reason and node.token and node.is_anonymous_welcome:
        node = dataclasses.replace(node, is_anonymous_welcome=False)
        reason = await _try_session(node, manner)
    return node, reason


async def _try_session(node: Node, manner: Manner) -> str:
    async with trio.open_nursery() as nursery:
        talk = Conversation(nursery, node, manner, ["probe"])
        reason, unreachable = "", None
        try:
            await session_steps.perform(talk, Opens("probe"))
            await talk.fence(talk.participants["probe"])
        except NodeFaultError as exc:
            if not _was_granted(talk):
                reason = "; ".join([str(exc), *map(str, exc.differences)])
        except (NoAnswerError, LineClosedError, LineRefusedError, WireFaultError) as exc:
            reason = str(exc)
        except TransportError as exc:
            unreachable = exc
        await session_steps.clear_stage(talk)
        nursery.cancel_scope.cancel()
    if unreachable is not None:
        raise unreachable  # here, where no nursery wraps it into a group
    return reason


def _was_granted(talk: Conversation) -> bool:
    """True if the session was opened."""
    heard = talk.participants["probe"].heard if "probe" in talk.participants else None
    body = heard.get("body", heard) if isinstance(heard, dict) else {}
    return isinstance(body, dict) and 200 in {body.get("code"), body.get("response")}
