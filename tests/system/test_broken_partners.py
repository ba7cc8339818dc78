"""`trapezoid peer check` against partners that are broken in one way each: the step, its code, what to do about it."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes

import msgspec
import pytest

from federation.core.link_frames import FrameKind, encode_frame
from interop.free_ports import free_ports
from interop.lab.link_peer import LinkLine, Stream
from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from tests.support.guests import guest
from trapezoid.peer_check import Outcome, check_domain
from trapezoid.peer_check.output import print_report
from trapezoid.peer_check.report import STEPS
from wire.core.websocket import ServerWebSocket

from .foreign import ROOT, WELL_KNOWN, ForeignDomain
from .frontier import Frontier, running_frontier
from .test_foreign_documents import IMPORTING, cut, expired, module, other_manifest, other_module


@dataclass(slots=True)
class Case:
    """One check: an honest partner, until the case spoils it, what we know of it, and the name that is asked for."""

    frontier: Frontier
    foreign: ForeignDomain
    settings: Settings
    domain: str

    @property
    def service(self) -> str:
        return f"_rethink-mn.{self.domain}"


Spoil = Callable[[Case], None]


@dataclass(frozen=True, slots=True)
class Broken:
    """A way to be broken, and what the check says of it: in which step, by which code, how bad it is."""

    spoil: Spoil
    step: str
    code: str
    outcome: Outcome = Outcome.FAILED


def documents(spoil: Callable[[ForeignDomain], None]) -> Spoil:
    return lambda case: spoil(case.foreign)


def no_name(case: Case) -> None:
    case.domain = case.domain.replace(".", "..")


def denied(case: Case) -> None:
    policy = msgspec.structs.replace(case.settings.policy, deny=[case.domain])
    case.settings = msgspec.structs.replace(case.settings, policy=policy)


def malformed_text(case: Case) -> None:
    case.frontier.announce({case.service: ['TXT "v=rmn1; id"', case.foreign.records[case.service][1]]})


def declined(case: Case) -> None:
    case.frontier.announce({case.service: ["SVCB 1 ."]})


def no_address(case: Case) -> None:
    case.frontier.announce({case.domain: []})


def nobody_there(case: Case) -> None:
    [port] = free_ports(1)
    case.frontier.announce({case.service: [f"SVCB 1 {case.domain}. port={port}"]})


def certificate_of_another(case: Case) -> None:
    foreign = case.foreign
    foreign.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    foreign.context.load_cert_chain(*case.frontier.authority.certificate_for("another.example"))


def nothing_published(case: Case) -> None:
    del case.foreign.files[WELL_KNOWN]


def endpoint_closed(case: Case) -> None:
    [case.foreign.link_port] = free_ports(1)
    case.foreign.publish()


def refusing(case: Case) -> None:
    async def refuse(stream: Stream) -> None:
        line = LinkLine(stream, ServerWebSocket(is_binary=True))
        await line.accept()
        await line.receive_kind(FrameKind.HELLO)
        await line.send(encode_frame(FrameKind.CHALLENGE, 0, token_bytes(32)))
        await line.receive_kind(FrameKind.TOKEN)
        await line.send(encode_frame(FrameKind.BYE, 0, b"auth-policy"))

    case.foreign.behaviour = refuse


def taking_nothing(case: Case) -> None:
    case.foreign.peer.acknowledges = False


BROKEN = {
    "nameless": Broken(no_name, "name", "name-invalid"),
    "denied": Broken(denied, "policy", "domain-blocked"),
    "text": Broken(malformed_text, "txt", "record-ignored", Outcome.WARNING),
    "declined": Broken(declined, "service", "service-declined"),
    "homeless": Broken(no_address, "addresses", "no-such-domain"),
    "silent": Broken(nobody_there, "tcp", "connect-failed"),
    "masked": Broken(certificate_of_another, "tls", "tls-failed"),
    "empty": Broken(nothing_published, "well-known", "http-status"),
    "expired": Broken(documents(expired), "live", "document-expired"),
    "cutroot": Broken(documents(cut(ROOT)), "root", "envelope-malformed"),
    "othermanifest": Broken(documents(other_manifest), "manifest", "digest-mismatch"),
    "othermodule": Broken(documents(other_module), "module", "digest-mismatch"),
    "importing": Broken(documents(module(IMPORTING)), "stub", "module-imports"),
    "trapping": Broken(documents(module(guest("(unreachable)"))), "start", "stub-trapped"),
    "closed": Broken(endpoint_closed, "endpoint", "connect-failed"),
    "refusing": Broken(refusing, "authentication", "auth-policy"),
    "deaf": Broken(taking_nothing, "round-trip", "timeout"),
}
"""Of the step `reverse`, which needs a node that says by which code it would refuse us, see `test_peer_check`."""


def test_there_is_a_broken_partner_for_every_step() -> None:
    assert [one.step for one in BROKEN.values()] == [step for step in STEPS if step != "reverse"]


@pytest.mark.long
async def test_check_of_a_broken_partner_names_the_step_a_code_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, tuple[str, str, str]] = {}
    async with running_frontier(tmp_path, *BROKEN) as frontier:
        settings = load_settings(frontier.node.folder.settings)
        for name, broken in BROKEN.items():
            foreign = await frontier.add(name)
            case = Case(frontier, foreign, settings, foreign.domain)
            broken.spoil(case)
            report = await check_domain(case.settings, case.domain, connects=True)
            capsys.readouterr()
            exit_code = print_report(report, as_json=True)
            said = json.loads(capsys.readouterr().out)
            wrong = [one for one in said["steps"] if one["outcome"] in ("failed", "warning")]
            assert exit_code == (1 if broken.outcome is Outcome.FAILED else 0), (name, wrong)
            assert all(one["hint"] and one["observed"] and one["milliseconds"] >= 0 for one in wrong), wrong
            found[name] = (wrong[0]["step"], wrong[0]["code"], wrong[0]["outcome"])
        await frontier.assert_unharmed()
    assert found == {name: (one.step, one.code, one.outcome.value) for name, one in BROKEN.items()}
