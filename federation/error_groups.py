"""One error leaves a public call, however many tasks stood behind it."""

from __future__ import annotations

from typing import TypeVar

from protofly.errors import HostError

_Error = TypeVar("_Error", bound=HostError)


def first_error(group: BaseExceptionGroup[_Error]) -> _Error:
    """The first error inside a group of groups."""
    error: BaseExceptionGroup[_Error] | _Error = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
