"""Figures of several processes in one text."""

from __future__ import annotations

from msg_node.site.process_metrics import of_processes

ONE = b"""# HELP a Of a.
# TYPE a counter
a_total 1.0
a_created 5.0
# HELP b Of b.
# TYPE b gauge
b{x="y z"} 2.0
"""
TWO = b"""# HELP a Of a.
# TYPE a counter
a_total 7.0
# HELP c Of c.
# TYPE c gauge
c 1.0
"""


def test_samples_of_one_metric_stand_together_each_with_its_process() -> None:
    assert of_processes({2: TWO, 1: ONE}).decode().splitlines() == [
        "# HELP a Of a.",
        "# TYPE a counter",
        'a_total{process="1"} 1.0',
        'a_created{process="1"} 5.0',
        'a_total{process="2"} 7.0',
        "# HELP b Of b.",
        "# TYPE b gauge",
        'b{process="1",x="y z"} 2.0',
        "# HELP c Of c.",
        "# TYPE c gauge",
        'c{process="2"} 1.0',
    ]
