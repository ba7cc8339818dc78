"""Questions to hyperty catalogues, which more than one service asks. Source: data formats, section 2."""

from __future__ import annotations

import msgspec

from catalogue_client.core.catalogue_entry import CatalogueEntry, entry_of
from msg_node.kernel.data_schemas import DataSchema
from msg_node.kernel.service import ConnectorName
from protofly.errors import Code, PeerError


class CatalogueQuestion(msgspec.Struct, frozen=True):
    """A question for an entry of a catalogue, and who asks."""

    entry: CatalogueEntry
    asked_by: str


CATALOGUE: ConnectorName[CatalogueQuestion, dict[str, object]] = ConnectorName("catalogue")
"""The connector that fetches; it replies with the descriptor."""


SCHEMA: ConnectorName[CatalogueQuestion, DataSchema] = ConnectorName("schema")
"""The connector that fetches schemas of data objects, ready to be asked."""


def schema_question(address: str, asked_by: str) -> CatalogueQuestion:
    """The question for the schema at an address.

    Raises:
        PeerError: BAD_BODY, NO_SUCH_SERVICE, NAME_INVALID: it is no address of a schema.
    """
    return _question(address, asked_by, "dataschema", "schema")


def policy_question(address: str, asked_by: str) -> CatalogueQuestion:
    """The question for the policy of an object at an address.

    Raises:
        PeerError: BAD_BODY, NO_SUCH_SERVICE, NAME_INVALID: it is no address of a policy.
    """
    return _question(address, asked_by, "policy", "policy")


def _question(address: str, asked_by: str, kind: str, noun: str) -> CatalogueQuestion:
    entry = entry_of(address)
    if entry.kind != kind or entry.attribute:
        raise PeerError(Code.BAD_BODY, f"no address of a {noun}")
    return CatalogueQuestion(entry, asked_by)
