"""Commands about a connection, among the frames of dialect B."""

from __future__ import annotations

import pytest

from msg_node.connectors.core.command_frames import Command, read_command

ANA = "runtime://alpha.example/ana"


@pytest.mark.parametrize(
    ("raw", "command"),
    [
        (b'{"cmd":"connect","data":{"runtimeURL":"%b"}}' % ANA.encode(), Command("connect", ANA)),
        (b'{"cmd":"disconnect"}', Command("disconnect", "")),
        (b'{"type":"create","from":"a","to":"b"}', None),
        (b'{"cm\\u0064":"connect"}', None),
        (b'{"body":"cmd"}', None),
        (b'{"cmd":7}', None),
        (b'{"cmd":"connect"', None),
        (b'{"cmd":"\xff"}', None),
        (b'{"cmd":' + b"[" * 100_000, None),
        (b"", None),
    ],
)
def test_a_command_is_named_as_such(raw: bytes, command: Command | None) -> None:
    assert read_command(raw) == command
