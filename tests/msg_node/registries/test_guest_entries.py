"""What a guest may register here, as a table: whose name it takes, and who reports what it registers."""

from __future__ import annotations

import pytest

from msg_node.registries.core.guest_entries import of_guest
from msg_node.registries.core.registry_entry import Changed
from protofly.errors import Code, PeerError
from tests.support.state_rig import DOMAIN

RUNTIME = "runtime://beta.example/guest"
HELD = f"hyperty://{DOMAIN}/held"


def registered(changed: Changed) -> Changed | Code:
    try:
        return of_guest("beta.example", RUNTIME, changed, holds=lambda url: url == HELD)
    except PeerError as refused:
        return refused.code


@pytest.mark.parametrize(
    "changed",
    [
        Changed(),
        Changed(user="user://beta.example/bo"),
        Changed(user="user://beta.example/bo@BETA.example"),
        Changed(user="acct://beta.example/bo", guid=""),
        Changed(reporter="hyperty://beta.example/bo"),
        Changed(reporter=HELD),
        Changed(runtime="runtime://alpha.example/ana"),
    ],
)
def test_a_guest_registers_itself_and_users_of_its_own_domain_as_its_own_runtime(changed: Changed) -> None:
    found = registered(changed)
    assert isinstance(found, Changed)
    assert (found.runtime, found.user, found.reporter) == (RUNTIME, changed.user, changed.reporter)


@pytest.mark.parametrize(
    "changed",
    [
        Changed(guid="user-guid://bo"),
        Changed(guid="user-guid://bo", user="user://beta.example/bo"),
        Changed(user=f"user://{DOMAIN}/ana"),
        Changed(user="user://gamma.example/cy"),
        Changed(user=f"user://beta.example/ana@{DOMAIN}"),
        Changed(reporter=f"hyperty://{DOMAIN}/ana"),
        Changed(reporter="hyperty://gamma.example/cy"),
    ],
)
def test_a_guest_registers_no_guid_nobody_of_another_domain_and_nothing_that_others_report(changed: Changed) -> None:
    assert registered(changed) is Code.NOT_OWNER
