"""Policies in the console: what is in force, bundles with their buttons, and "Would this pass?"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from msg_node.admin.changes import shown
from msg_node.admin.console_context import MOST_ROWS, ConsoleContext, Form, redirect
from msg_node.admin.core.console_sessions import LogIn
from policy.core.session_class import SESSION_CLASSES
from protofly.errors import Code, HostError, PeerError

_GATES: Final = ("", "local", "out", "in", "peer")
_ASKED: Final = ("from", "to", "type", "body", "gate", "roles", "class", "bundle")
_CHANGES: Final = {
    "activate": ("policy activate", "Put in force"),
    "roll-back": ("policy roll-back", "Roll back"),
    "remove": ("policy remove", "Forget"),
}
"""Operation of each button, and its name on the page that asks again, by the end of its path."""

_GATE: Final = ("from", "to", "type", "scheme")
_GATE_FORMS: Final = {
    "set": ((*_GATE, "effect", "for", "reason"), "Set the gate"),
    "unset": (_GATE, "End the gate"),
}
"""Members of the form for a gate, and the name of its button, by the end of its path."""


_PROPOSAL_FORMS: Final = {"confirm": "Make the change", "withdraw": "Reject the change"}
"""Names of the buttons for a proposal, by the end of the path."""


class PolicyPages:
    """The pages.

    Args:
        context: Performs operations and makes pages.
    """

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    async def show(self, request: Request, log_in: LogIn) -> Response:
        """Show the policies in force and the bundles that exist."""
        return await self._show(request, log_in, {}, None)

    async def evaluate(self, request: Request, log_in: LogIn, form: Form) -> Response:
        """Answer the question of the form."""
        asked = {name: form[name].strip() for name in _ASKED if form.get(name, "").strip()}
        try:
            verdict = await self._context.ask(request, "evaluate", asked)
        except HostError as error:
            verdict = {"error": error.detail or error.code.description}
        return await self._show(request, log_in, form, verdict)

    async def bundle(self, request: Request, log_in: LogIn) -> Response:
        """One bundle with its files."""
        found = await self._context.ask(request, "policy bundle", request.path_params)
        return self._context.render("bundle.html", log_in=log_in, bundle=found)

    async def add(self, request: Request, _log_in: LogIn, form: Form) -> Response:
        """Keep a bundle of one file."""
        text = form.get("text", "").replace("\r\n", "\n")  # as browsers send lines
        arguments = {"files": {form.get("name", "").strip(): text}, "note": form.get("note", "").strip()}
        added = await self._context.ask(request, "policy add", arguments)
        return redirect(f"/policies/bundles/{added['after']['bundle']}")

    async def change(self, request: Request, log_in: LogIn, form: Form) -> Response:
        """Show what a change would do, and make it once it is confirmed."""
        change = request.path_params["change"]
        if change not in _CHANGES:
            raise PeerError(Code.NO_SUCH_SERVICE, "there is no such change")
        operation, label = _CHANGES[change]
        arguments = {"bundle": form.get("bundle", "")} if change != "roll-back" else {}
        is_confirmed = form.get("confirmed") == "yes"
        result = await self._context.ask(request, operation, arguments, is_dry_run=not is_confirmed)
        if is_confirmed:
            return redirect("/policies")
        return self._context.render(
            "confirm_policies.html", log_in=log_in, change=change, label=label, arguments=arguments, result=result
        )

    async def gate(self, request: Request, log_in: LogIn, form: Form) -> Response:
        """Show what setting or ending a gate would do, and do it once it is confirmed."""
        op = request.path_params["op"]
        if op not in _GATE_FORMS:
            raise PeerError(Code.NO_SUCH_SERVICE, "there is no such change")
        names, label = _GATE_FORMS[op]
        arguments = {name: form[name].strip() for name in names if form.get(name, "").strip()}
        is_confirmed = form.get("confirmed") == "yes"
        result = await self._context.ask(request, f"gate {op}", arguments, is_dry_run=not is_confirmed)
        if is_confirmed:
            return redirect("/policies")
        facts = {name: msgspec.to_builtins(result[name]) for name in ("before", "after")}
        return self._context.render(
            "confirm_gate.html", log_in=log_in, op=op, label=label, arguments=arguments, result=facts
        )

    async def proposal(self, request: Request, log_in: LogIn, form: Form) -> Response:
        """Show what confirming or rejecting a proposal would do, and do it once it is confirmed."""
        op, id_ = request.path_params["op"], form.get("proposal", "").strip()
        if op not in _PROPOSAL_FORMS:
            raise PeerError(Code.NO_SUCH_SERVICE, "there is no such change")
        rows = (await self._context.ask(request, "policy proposals", {"limit": MOST_ROWS})).rows
        is_confirmed = form.get("confirmed") == "yes"
        result = await self._context.ask(request, f"policy {op}", {"proposal": id_}, is_dry_run=not is_confirmed)
        if is_confirmed:
            return redirect("/policies")
        facts = {name: shown(msgspec.to_builtins(result[name])) for name in ("before", "after")}
        proposal = next(row for row in rows if row["proposal"] == id_)
        label = _PROPOSAL_FORMS[op]
        return self._context.render(
            "confirm_proposal.html", log_in=log_in, op=op, label=label, proposal=proposal, result=facts
        )

    async def _show(
        self, request: Request, log_in: LogIn, form: Form, verdict: Mapping[str, object] | None
    ) -> Response:
        ask = self._context.ask
        return self._context.render(
            "policies.html",
            log_in=log_in,
            page=await ask(request, "policies", {"limit": MOST_ROWS}),
            active=await ask(request, "policy active"),
            bundles=(await ask(request, "policy bundles", {"limit": MOST_ROWS})).rows,
            form=form,
            verdict=verdict,
            gates=_GATES,
            classes=SESSION_CLASSES,
            proposals=(await ask(request, "policy proposals", {"limit": MOST_ROWS})).rows,
            temporary=(await ask(request, "gates", {"limit": MOST_ROWS})).rows,
        )
