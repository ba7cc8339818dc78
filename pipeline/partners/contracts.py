"""JSON Schemas of everything that leaves us for somebody else: records as nodes write them, and files for partners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pipeline.partners.bill_file import Bill
from pipeline.partners.bill_return_file import BillReturn
from pipeline.partners.extract_file import ExtractEntry, Header, Total
from pipeline.partners.return_file import Return
from pipeline.partners.usage_file import UsageReport
from protofly.block_list import BlockList
from protofly.partner_files import PartnerFile
from protofly.records import RECORD_TYPES, SegmentManifest

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_FILES: Final[dict[str, type]] = {
    "segment-manifest": SegmentManifest,
    "extract-header": Header,
    "extract-total": Total,
    "extract-record": ExtractEntry,
    "usage-report": UsageReport,
    "return": Return,
    "bill": Bill,
    "bill-return": BillReturn,
    "partner-file": PartnerFile,
    "block-list": BlockList,
}


def json_schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each contract with its name, as JSON Schema of 2020-12."""
    records = {f"record-{kind.value}": type_ for kind, type_ in RECORD_TYPES.items()}
    for name, type_ in {**records, **_FILES}.items():
        yield name, {"$schema": _DIALECT, "title": name} | msgspec.json.schema(type_)
