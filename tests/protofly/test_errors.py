"""What each kind of error says: a code to answer with, a detail for people, and what is to blame."""

from __future__ import annotations

import pytest

from protofly.errors import (
    Code,
    HostError,
    MisuseError,
    PeerError,
    RestartNeededError,
    SettingsError,
    StubFaultError,
    TransportError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HostError(Code.POLICY, "why"), Code.POLICY),
        (PeerError(Code.POLICY, "why"), Code.POLICY),
        (TransportError(Code.LINK_LOST, "why"), Code.LINK_LOST),
        (StubFaultError(Code.STUB_TRAPPED, "why"), Code.STUB_TRAPPED),
        (SettingsError("why"), Code.SETTINGS),
        (RestartNeededError("why"), Code.NEEDS_RESTART),
        (MisuseError("why"), Code.INTERNAL),
    ],
)
def test_every_error_has_a_code_and_says_why(error: HostError, code: Code) -> None:
    assert (error.code, error.detail, str(error)) == (code, "why", f"{code.word}: why")


def test_an_error_names_whom_or_what_to_blame() -> None:
    refused = PeerError(Code.POLICY, domain="b.example", msg_id="ab")
    assert (refused.domain, refused.msg_id, str(refused)) == ("b.example", "ab", Code.POLICY.word)
    assert TransportError(Code.LINK_LOST, phase="tls").phase == "tls"
    fault = StubFaultError(Code.STUB_TRAPPED, domain="b.example", fault="trap")
    assert (fault.domain, fault.fault) == ("b.example", "trap")
