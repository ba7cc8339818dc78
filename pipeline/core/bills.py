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
