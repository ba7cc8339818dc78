"""Settings of the process of a node."""

from __future__ import annotations

import sys

from msg_node.process_tuning import share_interpreter


def test_threads_give_way_to_messages_sooner_than_by_default() -> None:
    before = sys.getswitchinterval()
    try:
        share_interpreter()
        assert sys.getswitchinterval() < before / 2
    finally:
        sys.setswitchinterval(before)
