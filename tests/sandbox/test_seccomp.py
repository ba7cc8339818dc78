"""The filter programs, run by a small interpreter of our own: what the kernel would say, on any machine."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from struct import Struct

import pytest
import ziglang

from sandbox.core.seccomp import (
    ALLOWED,
    AUDIT_ARCH_X86_64,
    MMAP,
    MPROTECT,
    REFUSED_SOFTLY,
    RETURN_ALLOW,
    RETURN_EPERM,
    RETURN_KILL,
    allow_list_program,
    instruction_count,
    no_new_code_program,
)

INSTRUCTION = Struct("<HBBI")
CALL = Struct("<IIQ6Q")
HOSTILE = {"socket": 41, "connect": 42, "fork": 57, "clone": 56, "clone3": 435, "execve": 59, "kill": 62, "ptrace": 101}
HOSTILE |= {
    "prctl": 157,
    "mount": 165,
    "bpf": 321,
    "io_uring_setup": 425,
    "sendto": 44,
    "tgkill": 234,
    "memfd_create": 319,
}


def verdict(program: bytes, number: int, *, arch: int = AUDIT_ARCH_X86_64, third: int = 0) -> int:
    """What the program answers for one system call."""
    call = CALL.pack(number, arch, 0, 0, 0, third, 0, 0, 0)
    accumulator, position = 0, 0
    while True:
        code, if_true, if_false, value = INSTRUCTION.unpack_from(program, position * INSTRUCTION.size)
        position += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            accumulator = int.from_bytes(call[value : value + 4], "little")
            continue
        holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
        position += if_true if holds else if_false


@pytest.mark.parametrize("number", ALLOWED.values(), ids=ALLOWED)
def test_needed_calls_are_allowed(number: int) -> None:
    assert verdict(allow_list_program(), number) == RETURN_ALLOW


@pytest.mark.parametrize("number", REFUSED_SOFTLY.values(), ids=REFUSED_SOFTLY)
def test_curious_calls_get_an_error(number: int) -> None:
    assert verdict(allow_list_program(), number) == RETURN_EPERM


def test_everything_else_ends_the_process() -> None:
    known = set(ALLOWED.values()) | set(REFUSED_SOFTLY.values())
    assert not known & set(HOSTILE.values())
    others = set(range(600)) - known
    assert {verdict(allow_list_program(), number) for number in others} == {RETURN_KILL}


def test_other_machine_word_and_x32_numbers_end_the_process() -> None:
    assert verdict(allow_list_program(), 0, arch=0x40000003) == RETURN_KILL
    assert verdict(allow_list_program(), 0x40000000) == RETURN_KILL


@pytest.mark.parametrize("number", [MMAP, MPROTECT])
def test_no_page_becomes_executable_any_more(number: int) -> None:
    assert verdict(no_new_code_program(), number, third=4) == RETURN_KILL
    assert verdict(no_new_code_program(), number, third=7) == RETURN_KILL
    assert verdict(no_new_code_program(), number, third=3) == RETURN_ALLOW
    assert verdict(no_new_code_program(), ALLOWED["read"], third=4) == RETURN_ALLOW


def test_programs_fit_the_kernel() -> None:
    assert 0 < instruction_count(allow_list_program()) < 4096


def test_every_number_is_the_kernels_number_of_that_name() -> None:
    """By the kernel's header as the compiler of the stubkit has it."""
    header = Path(ziglang.__file__).parent / "lib/libc/include/x86-linux-any/asm/unistd_64.h"
    known = dict(re.findall(r"^#define __NR_(\w+) (\d+)$", header.read_text(encoding="ascii"), re.MULTILINE))
    ours = {**ALLOWED, **REFUSED_SOFTLY, **HOSTILE}
    assert {name: int(known[name]) for name in ours} == ours
    assert not set(ALLOWED) & set(REFUSED_SOFTLY)


def test_programs_have_the_words_of_the_kernels_interface() -> None:
    """By linux/bpf_common.h, linux/filter.h, linux/seccomp.h and linux/audit.h."""
    codes = {code for code, *_ in INSTRUCTION.iter_unpack(allow_list_program() + no_new_code_program())}
    assert codes == {0x20, 0x15, 0x35, 0x45, 0x06}
    assert (RETURN_ALLOW, RETURN_EPERM, RETURN_KILL) == (0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000)
    assert AUDIT_ARCH_X86_64 == 62 | 0x80000000 | 0x40000000
    assert instruction_count(allow_list_program()) == len(allow_list_program()) / INSTRUCTION.size
