"""Settings of the steps that messages pass on their way into the router: `[middleware]`.

Source: message specification, section 20.2; requirement R4 (router, middleware, handler).
"""

from __future__ import annotations

from collections.abc import Iterator

from msg_node.settings.model import Settings
from msg_node.settings.rates import rate_problems
from msg_node.settings.tables.middleware import StepName


def active_steps(settings: Settings, *, has_policies: bool) -> tuple[StepName, ...]:
    """The steps that have something to do, in order.

    Policies in force are always asked, wherever they are from: last, where the order does not name their step.
    """
    wanted = _configured(settings) - {"authorisation"} | ({"authorisation"} if has_policies else frozenset())
    order = settings.middleware.order
    rest: tuple[StepName, ...] = ("authorisation",) if has_policies and "authorisation" not in order else ()
    return (*(name for name in order if name in wanted), *rest)


def middleware_problems(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Check the fields of `[middleware]` against each other."""
    order = settings.middleware.order
    for index, name in enumerate(order):
        if name in order[:index]:
            yield ("middleware", "order", index), f"`{name}` is there twice"
    for name in sorted(_configured(settings) - set(order)):
        table = "[policy] files are" if name == "authorisation" else f"[middleware.{name}] is"
        yield ("middleware", "order"), f"{table} there, but no step `{name}`: nothing would ask for it"
    if settings.middleware.schema.validate and not settings.catalogue.serve:
        yield ("middleware", "schema", "validate"), "schemas are read from catalogues: `[catalogue] serve` has to be on"
    if settings.policy.documents and not settings.catalogue.serve:
        yield ("policy", "documents"), "policies are read from the catalogue: `[catalogue] serve` has to be on"
    yield from rate_problems(settings.middleware.rate.by_type, ("middleware", "rate", "by_type"))
    for index, text in enumerate(settings.middleware.authentication.open_to):
        if not text.removesuffix("/*"):
            yield ("middleware", "authentication", "open_to", index), "not an address"


def _configured(settings: Settings) -> frozenset[StepName]:
    steps = settings.middleware
    found: dict[StepName, bool] = {
        "logging": steps.logging.every > 0,
        "authentication": steps.authentication.required,
        "rate": bool(steps.rate.by_type) or not steps.rate.limit.is_unlimited,
        "authorisation": bool(settings.policy.files),
        "schema": steps.schema.validate,
    }
    return frozenset(name for name, is_there in found.items() if is_there)
