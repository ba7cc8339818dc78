"""The program of a process that hashes passwords: a question a line in, an answer a line out, until its input ends."""

from __future__ import annotations

import sys

import msgspec

from msg_node.identity.password_hash import HashCost, is_right
from msg_node.process_tuning import BESIDE_NICE
from sandbox.confinement import give_way


class HashQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A password to be hashed, or to be compared.

    Attributes:
        password: As it was typed.
        text: The hash to compare it with; None to have it hashed at the cost of the other two.
        memory_kib: See `HashCost`.
        passes: See `HashCost`.
    """

    password: str
    text: str | None = None
    memory_kib: int = 0
    passes: int = 0


def answer(question: HashQuestion) -> str | bool:
    """Return the hash of a password, or whether it is that of a hash."""
    if question.text is not None:
        return is_right(question.password, question.text)
    return HashCost(question.memory_kib, question.passes).hash(question.password)


def main() -> None:
    """Answer until standard input ends."""
    give_way(BESIDE_NICE)
    decoder = msgspec.json.Decoder(HashQuestion)
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(answer(decoder.decode(line))) + b"\n")
        sys.stdout.buffer.flush()
