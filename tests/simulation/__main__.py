"""`python -m tests.simulation`: the clocks are replaced before anything else is imported."""

from __future__ import annotations

import importlib
import sys

from tests.simulation import virtual_process

virtual_process.install()
sys.exit(importlib.import_module("tests.simulation.command").main())
