"""Records of messaging nodes, read with Spark: statements, reconciliation, policy replay, stub health, abuse."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from protofly.public_names import public_names

# Before numpy is imported: what is solved here has some hundred unknowns, and threads that wait for each other take
# three times as much.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__all__ = [
    "Commit",
    "ExitCode",
    "JobResult",
    "Lake",
    "canonical_statements",
]

if TYPE_CHECKING:
    from pipeline.jobs.result import ExitCode, JobResult
    from pipeline.lake.tables import Commit, Lake
    from pipeline.partners.statements import canonical_statements
else:
    __getattr__ = public_names(
        __name__,
        {
            "Commit": "pipeline.lake.tables",
            "ExitCode": "pipeline.jobs.result",
            "JobResult": "pipeline.jobs.result",
            "Lake": "pipeline.lake.tables",
            "canonical_statements": "pipeline.partners.statements",
        },
    )
