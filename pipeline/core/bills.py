"""Documents of bills for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.core.tariffs import amount_text


def document_line(document: Mapping[str, Any]) -> str:
    """A document in one line."""
    amount, currency = document["amount"], document["currency"]
    verb = "gets back from" if document["kind"] == "credit-note" else "owes"
    text = amount_text(abs(amount), currency)
    return f"{document['kind']} {document['number']}: {document['payer']} {verb} {document['issuer']} {text}"


def objection_line(objection: Mapping[str, Any]) -> str:
    """One line that names a document and says what is wrong with it."""
    billed, ours = objection["quantity"], objection["ours"]
    counts = ("" if billed is None else f"; billed {billed:,}") + ("" if ours is None else f", we count {ours:,}")
    return f"{objection['number'] or 'the file'}: {objection['reason']}: {objection['detail']}{counts}"
