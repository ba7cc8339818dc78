"""Which kind of connection a request target asks for."""

from __future__ import annotations

import pytest

from msg_node.kernel.dialects import BAD_PATH, NO_RUNTIME, EntryPoint, arrival_at, parameters_of


@pytest.mark.parametrize(
    ("target", "entry", "status", "text"),
    [
        ("/ws", EntryPoint.SESSION_MESSAGES, 0, ""),
        ("/ws?a=b", EntryPoint.SESSION_MESSAGES, 0, ""),
        ("/link", EntryPoint.LINK, 0, ""),
        ("/messages", EntryPoint.HTTPS, 0, ""),
        ("/twin?resource=x", EntryPoint.HTTPS, 0, ""),
        ("/socket.io/?transport=polling", EntryPoint.ENGINE_IO, 0, ""),
        ("/socket.io", EntryPoint.ENGINE_IO, 0, ""),
        ("/stub/connect", EntryPoint.COMMAND_FRAMES, 0, ""),
        ("/stub/connect?x=y", EntryPoint.COMMAND_FRAMES, 0, ""),
        ("/stub/connect?runtimeURL=runtime://a/b", EntryPoint.QUERY, 0, ""),
        ("/stub/connect?runtimeURL=", EntryPoint.NOBODY, 403, NO_RUNTIME),
        ("/stub/connect?runtimeURL=a&runtimeURL=b", EntryPoint.NOBODY, 403, NO_RUNTIME),
        ("/stub/other", EntryPoint.NOBODY, 403, BAD_PATH),
        ("/stubs", EntryPoint.NOBODY, 403, BAD_PATH),
    ],
)
def test_a_target_is_one_entry_point_or_refused(target: str, entry: EntryPoint, status: int, text: str) -> None:
    arrival = arrival_at(target)
    assert (arrival.entry, arrival.status, arrival.text) == (entry, status, text)


@pytest.mark.parametrize("target", ["", "/", "/WS", "/ws/", "/messages/x", "/socket.io/x", "ws"])
def test_all_else_is_not_found(target: str) -> None:
    arrival = arrival_at(target)
    assert (arrival.entry, arrival.status) == (EntryPoint.NOBODY, 404)


def test_parameters_are_decoded_and_those_given_twice_left_out() -> None:
    assert parameters_of("a=1&b=%2F&c=&a=2&d") == {"b": "/", "c": "", "d": ""}
    most = "&".join(f"p{number}=x" for number in range(16))
    assert len(parameters_of(most)) == 16
    assert parameters_of(f"{most}&more=x") == {}
    assert arrival_at("/stub/connect?runtimeURL=r&t=1").parameters == {"runtimeURL": "r", "t": "1"}
    assert arrival_at("/socket.io/?EIO=3").parameters == {"EIO": "3"}
