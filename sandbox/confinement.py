"""How a process gives up everything it does not need. One way: there is no undo.

Called in a child that the zygote has just forked, before it reads its first foreign byte.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protofly import limits
from protofly.errors import SettingsError
from sandbox.core import seccomp

PR_SET_PDEATHSIG: Final = 1
PR_SET_NAME: Final = 15
PR_SET_NO_NEW_PRIVS: Final = 38
SYS_SECCOMP: Final = 317
SECCOMP_SET_MODE_FILTER: Final = 1
SECCOMP_FILTER_FLAG_TSYNC: Final = 1
CONNECTION: Final = 3
"""The one descriptor of ours that a confined process has, beside /dev/null as 0, 1 and 2."""

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_libc.syscall.restype = ctypes.c_long


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """Kernel limits of one kind of child; None leaves one as it is."""

    address_space_bytes: int
    cpu_seconds: int | None = None


WORKER_LIMITS: Final = ProcessLimits(address_space_bytes=limits.WORKER_ADDRESS_SPACE_BYTES)
COMPILER_LIMITS: Final = ProcessLimits(
    address_space_bytes=limits.COMPILE_ADDRESS_SPACE_BYTES, cpu_seconds=limits.COMPILE_CPU_SECONDS
)


def require_seccomp(*, is_unconfined: bool) -> None:
    """Refuse to run foreign code without a filter, unless the operator said so.

    Raises:
        SettingsError: no filter program for this machine.
    """
    if platform.machine() != "x86_64" and not is_unconfined:
        raise SettingsError(
            f"no system call filter for {platform.machine()}; sandbox.insecure_no_seccomp = true runs stubs without one"
        )


def leave_session(parent_pid: int, name: bytes) -> None:
    """A session of its own, and death together with the parent."""
    os.setsid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(0)  # the parent died before we could ask for the signal
    set_name(name)


def give_way(nice: int) -> None:
    """Have a lower priority than the node: whatever guests compute, it is served first."""
    os.nice(nice)
    with suppress(OSError):  # where the kernel groups processes by session, the priority of the group counts
        Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")


def set_name(name: bytes) -> None:
    """Set the name that `ps` shows; at most 15 bytes."""
    buffer = ctypes.create_string_buffer(name, 16)
    _prctl(PR_SET_NAME, ctypes.addressof(buffer))


def keep_only(connection: int) -> None:
    """Close every descriptor but the connection, which becomes CONNECTION."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    if connection != CONNECTION:
        os.dup2(connection, CONNECTION)
    os.closerange(CONNECTION + 1, os.sysconf("SC_OPEN_MAX"))


def set_limits(wanted: ProcessLimits) -> None:
    """Kernel limits: address space, CPU, descriptors; no core dump, no file, no further process."""
    _limit(resource.RLIMIT_AS, wanted.address_space_bytes)
    _limit(resource.RLIMIT_NOFILE, limits.WORKER_DESCRIPTORS)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NPROC, 0)
    if wanted.cpu_seconds is not None:
        _limit(resource.RLIMIT_CPU, wanted.cpu_seconds, grace=1)


def install_filter(*, is_unconfined: bool) -> None:
    """No new privileges ever, and only the system calls of the allow-list, for every thread of this process.

    Raises:
        OSError: the kernel refuses the filter; the caller must not go on.
    """
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    if not is_unconfined:
        _install(seccomp.allow_list_program())


def forbid_new_code(*, is_unconfined: bool) -> None:
    """From now on nothing can be made executable."""
    if not is_unconfined:
        _install(seccomp.no_new_code_program())


def _install(program: bytes) -> None:
    header = _Program(seccomp.instruction_count(program), program)
    arguments = (SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, ctypes.byref(header))
    if _libc.syscall(ctypes.c_long(SYS_SECCOMP), *arguments) != 0:
        raise OSError(ctypes.get_errno(), "seccomp filter refused")


def _limit(which: int, value: int, *, grace: int = 0) -> None:
    """Never above what the machine's owner allows; `grace` lies between the warning signal and the end."""
    _, hard = resource.getrlimit(which)
    ceiling = value + grace if hard == resource.RLIM_INFINITY else min(value + grace, hard)
    resource.setrlimit(which, (min(value, ceiling), ceiling))


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
