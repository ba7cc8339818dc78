"""What a confined process may still ask of the kernel, as programs for its packet filter (seccomp BPF, x86-64).

Theory of operation: a worker needs memory, its one open socket (plain `read` and `write`), locks and clocks;
everything else it did before it was confined. What is not listed ends the process on the spot, so that an escape is
loud. A few calls that libraries make out of curiosity get EPERM instead: they give nothing away, and a worker must
not die of a library's new habit.

A second filter comes on top once the code is loaded: from then on nothing can be made executable.

Numbers are those of linux/seccomp.h and linux/filter.h. Source: Wasmtime study, section 7 (d).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

AUDIT_ARCH_X86_64: Final = 0xC000003E
X32_BIT: Final = 0x40000000
PROT_EXEC: Final = 4

RETURN_ALLOW: Final = 0x7FFF0000
RETURN_KILL: Final = 0x80000000
RETURN_EPERM: Final = 0x00050001

_INSTRUCTION: Final = Struct("<HBBI")
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_ANY_BIT: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_OFFSET_NUMBER: Final = 0
_OFFSET_ARCH: Final = 4
_OFFSET_THIRD_ARGUMENT: Final = 32

MMAP: Final = 9
MPROTECT: Final = 10

ALLOWED: Final[dict[str, int]] = {
    "read": 0,
    "write": 1,
    "futex": 202,
    "clock_gettime": 228,
    "clock_nanosleep": 230,
    "madvise": 28,
    "mmap": MMAP,
    "mprotect": MPROTECT,
    "munmap": 11,
    "mremap": 25,
    "brk": 12,
    "rt_sigaction": 13,
    "rt_sigprocmask": 14,
    "rt_sigreturn": 15,
    "sigaltstack": 131,
    "sched_yield": 24,
    "nanosleep": 35,
    "restart_syscall": 219,
    "close": 3,
    "getpid": 39,
    "gettid": 186,
    "getrandom": 318,
    "exit": 60,
    "exit_group": 231,
    "seccomp": 317,
}
"""Often used ones first: the filter asks in this order."""

REFUSED_SOFTLY: Final[dict[str, int]] = {
    "open": 2,
    "openat": 257,
    "stat": 4,
    "fstat": 5,
    "lstat": 6,
    "newfstatat": 262,
    "statx": 332,
    "access": 21,
    "readlink": 89,
    "lseek": 8,
    "ioctl": 16,
    "fcntl": 72,
    "getcwd": 79,
    "uname": 63,
    "sysinfo": 99,
    "sched_getaffinity": 204,
    "getrusage": 98,
    "prlimit64": 302,
}


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, if_true, if_false, value)


def allow_list_program() -> bytes:
    """The filter under which a worker and a compile child live."""
    parts = [
        _instruction(_LOAD, _OFFSET_ARCH),
        _instruction(_JUMP_EQUAL, AUDIT_ARCH_X86_64, 1, 0),
        _instruction(_RETURN, RETURN_KILL),
        _instruction(_LOAD, _OFFSET_NUMBER),
        _instruction(_JUMP_AT_LEAST, X32_BIT, 0, 1),
        _instruction(_RETURN, RETURN_KILL),
    ]
    for numbers, verdict in ((ALLOWED, RETURN_ALLOW), (REFUSED_SOFTLY, RETURN_EPERM)):
        for number in numbers.values():
            parts += [_instruction(_JUMP_EQUAL, number, 0, 1), _instruction(_RETURN, verdict)]
    parts.append(_instruction(_RETURN, RETURN_KILL))
    return b"".join(parts)


def no_new_code_program() -> bytes:
    """The filter on top: `mmap` and `mprotect` may no longer ask for executable pages."""
    return b"".join(
        [
            _instruction(_LOAD, _OFFSET_NUMBER),
            _instruction(_JUMP_EQUAL, MMAP, 2, 0),
            _instruction(_JUMP_EQUAL, MPROTECT, 1, 0),
            _instruction(_RETURN, RETURN_ALLOW),
            _instruction(_LOAD, _OFFSET_THIRD_ARGUMENT),
            _instruction(_JUMP_ANY_BIT, PROT_EXEC, 0, 1),
            _instruction(_RETURN, RETURN_KILL),
            _instruction(_RETURN, RETURN_ALLOW),
        ]
    )


def instruction_count(program: bytes) -> int:
    """Count the instructions of a filter program, as the kernel's `sock_fprog` wants it."""
    return len(program) // _INSTRUCTION.size
