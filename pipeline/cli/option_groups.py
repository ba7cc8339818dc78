"""Groups of options: a command takes one dataclass for options that belong together.

Typer reads the options of a command from the signature of its function. `grouped` shows it the fields of each dataclass
in the place of the parameter that has it as type, and calls the function with one instance of each:

    @dataclass(frozen=True, kw_only=True)
    class Period:
        since: Annotated[str, typer.Option(help="First moment.")] = ""
        until: Annotated[str, typer.Option(help="Last moment.")] = ""

    @app.command()
    @grouped
    def find(period: Period, json: Json = False) -> None: ...      # find --since … --until … --json
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

Command = Callable[..., None]


def grouped(command: Command) -> Command:
    """Wrap a command so that each parameter whose type is a dataclass becomes one option for each field.

    Options appear in the order of parameters and fields. Names of fields and other parameters must differ.
    """
    groups: dict[str, tuple[type, tuple[str, ...]]] = {}
    shown: list[Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in signature(command).parameters.items():
        if is_dataclass(group := hints[name]) and isinstance(group, type):
            options = _options(group)
            groups[name] = group, tuple(option.name for option in options)
            shown += options
        else:
            shown.append(parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def call(**values: Any) -> None:
        made = {name: group(**{one: values.pop(one) for one in members}) for name, (group, members) in groups.items()}
        command(**made, **values)

    call.__signature__ = Signature(shown)  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in shown}
    return call


def _options(group: type) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
