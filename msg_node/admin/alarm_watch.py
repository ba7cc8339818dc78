"""Watches the node and its partners, and says so when an alarm is raised or cleared.

Each is a line of the log, an audit record, an event for operators that listen to `<node>/alarms/status`, and a call of
the webhook, if the settings name one (`alarm_calls.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from msg_node.admin import views
from msg_node.admin.administered import Administered
from msg_node.admin.alarm_calls import AlarmCalls, Call
from msg_node.admin.changes import shown
from msg_node.admin.core.alarms import Alarm, AlarmNews, budget_spent
from msg_node.admin.link_report import link_problem
from msg_node.admin.partner_views import alarm_detail
from msg_node.kernel.service import Event
from msg_node.records.writer import RecordsStatistics, WriterState
from protofly.records import AdminEvent

logger = logging.getLogger("msg_node")

LOOK_SECONDS: Final = 5.0
_HOUR: Final = 60
_FAILED_STUBS: Final = frozenset({"quarantined", "verify-failed", "deployment-failed"})


class AlarmWatch:
    """Looks every few seconds.

    Args:
        node: The parts that are watched.
        records: State of the records.
        expiring: Titles of what expires, or has expired.
        call: Calls the webhook; None: there is none.

    Attributes:
        calls: Those of the webhook.
    """

    def __init__(
        self,
        node: Administered,
        *,
        records: Callable[[], RecordsStatistics],
        expiring: Callable[[], list[str]],
        call: Call | None,
    ) -> None:
        self._node = node
        self._records = records
        self._expiring = expiring
        self.calls = AlarmCalls(call)
        self._lost = 0

    async def run(self) -> None:
        """Look, and call the webhook, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.calls.run)
            while True:
                await trio.sleep(LOOK_SECONDS)
                try:
                    self.look(time.time())
                except Exception:  # a defect of ours may cost an alarm, never the node
                    logger.exception("the alarms were not looked at")

    def look(self, now: float) -> None:
        """Look once, and announce what has changed; `now` is in seconds since the Unix epoch."""
        for one in self._node.alarms.judge(self.figures(), now):
            self._announce(one)

    def figures(self) -> dict[tuple[Alarm, str], float]:
        """The figures of this moment."""
        node, records = self._node, self._records()
        named = set(node.traffic.domains())
        lost, self._lost = records.lost - self._lost, records.lost
        is_failing = records.state is WriterState.DISK_FAILING or lost > 0
        found: dict[tuple[Alarm, str], float] = {(Alarm.RECORDS, ""): float(is_failing)}
        found[Alarm.STATE, ""] = float(bool(node.store.statistics().last_error))
        for link in node.federation.links:
            if link.domain in named:
                found[Alarm.PARTNER, link.domain] = float(bool(link_problem(link)))
                is_failing = link.stub.state in _FAILED_STUBS and not link.events.is_on_the_way
                found[Alarm.STUB, link.domain] = float(is_failing)
        for domain in named:
            window = node.traffic.window(domain, _HOUR, time.time())
            found[Alarm.BUDGET, domain] = budget_spent(window.passed, window.failed)
        for row in views.quotas(node):
            found[Alarm.BOUND, str(row["bound"])] = float(str(row["share"]))
        for title in self._expiring():
            found[Alarm.EXPIRY, title] = 1.0
        return found

    def _announce(self, one: AlarmNews) -> None:
        state = "raised" if one.is_raised else "cleared"
        subject = one.subject or "the node"
        level = logging.WARNING if one.is_raised else logging.INFO
        detail = alarm_detail(self._node, one.alarm, one.subject) if one.is_raised else ""
        text = f"{one.alarm.meaning} {detail}".rstrip()
        logger.log(level, "alarm %s of %s is %s: %s", one.alarm.word, subject, state, text)
        facts = {
            "alarm": one.alarm.word,
            "subject": one.subject,
            "state": state,
            "value": round(one.value, 3),
            "meaning": one.alarm.meaning,
            "detail": detail,
            "domain": self._node.settings().node.domain,
            "time": round(time.time(), 3),
        }
        self._node.record(
            AdminEvent(
                ts_us=time.time_ns() // 1000,
                operation="alarm",
                actor="the node",
                way="node",
                arguments=shown({"alarm": one.alarm.word, "subject": one.subject}) or "{}",
                after=shown({"state": state, "value": facts["value"], "detail": detail}),
            )
        )
        url = self._node.bus.options.node
        self._node.bus.effects.publish_events([Event(url, f"{url}/alarms/status", {"value": facts}, has_id=False)])
        self.calls.add(msgspec.json.encode(facts))
