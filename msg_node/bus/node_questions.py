"""Questions between nodes of one domain, with an answer each: about sessions, and about what registries have.

A question names its kind by one byte; the other node answers it at once, or when what it has changed is durable, or not
at all. Source: design, section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final

import trio

from msg_node.cluster.core.node_contents import ANSWER, QUESTION, number_and_text, numbered
from msg_node.cluster.node_bus import NodeBus
from protofly.errors import Code, HostError

ANSWER_SECONDS: Final = 5.0

Answerer = Callable[[bytes], bytes]
"""Answers a question by its text. Raises PeerError for one that cannot be read."""

LateAnswerer = Callable[[bytes, Callable[[bytes], None]], None]
"""Answers a question by its text with the function that it is given, once. Raises PeerError as above."""


class NodeQuestions:
    """Asks other nodes, and answers them.

    Attributes:
        bus: Where other nodes are asked; set once, before anything runs.
        answerers: Who answers which kind at once.
        late_answerers: Who answers which kind later.
    """

    def __init__(self) -> None:
        self.bus: NodeBus
        self.answerers: dict[bytes, Answerer] = {}
        self.late_answerers: dict[bytes, LateAnswerer] = {}
        self._numbers = count(1)
        self._open: dict[int, tuple[trio.Event, list[bytes]]] = {}

    async def ask(self, node: str, kind: bytes, text: bytes) -> bytes:
        """Ask a node, and wait for its answer.

        Raises:
            HostError: NOT_CONNECTED, OVERLOAD.
        """
        number, is_answered = next(self._numbers), trio.Event()
        answers: list[bytes] = []
        self._open[number] = is_answered, answers
        try:
            code = self.bus.send(node, numbered(QUESTION, number, kind + text))
            if code is not None:
                raise HostError(code, f"node {node} cannot be asked")
            self.bus.flush()
            with trio.fail_after(ANSWER_SECONDS):
                await is_answered.wait()
        except trio.TooSlowError as exc:
            raise HostError(Code.NOT_CONNECTED, f"node {node} does not answer") from exc
        finally:
            del self._open[number]
        return answers[0]

    def asked(self, node: str, content: bytes) -> None:
        """Another node asks. Raises PeerError when that cannot be read; a kind of a newer version is not answered."""
        number, text = number_and_text(content)
        if (answerer := self.answerers.get(text[:1])) is not None:
            self.bus.keep(node, numbered(ANSWER, number, answerer(text[1:])))
        elif (late := self.late_answerers.get(text[:1])) is not None:
            late(text[1:], partial(self._answer, node, number))

    def _answer(self, node: str, number: int, text: bytes) -> None:
        self.bus.keep(node, numbered(ANSWER, number, text))
        self.bus.flush()

    def answered(self, content: bytes) -> None:
        """Another node answers. Raises PeerError when that cannot be read."""
        number, text = number_and_text(content)
        asking = self._open.get(number)
        if asking is not None:
            asking[1].append(text)
            asking[0].set()
