from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.completeness import Completeness, completeness_of_domain, holes_between
from pipeline.core.completeness import completeness_of_nodes as of_stretches
from pipeline.core.stretches import Stretch, Stretches, stretch_of

MINUTE_US = 60_000_000


@dataclass(frozen=True)
class SegmentFact:
    """One accepted segment, and whether other content came under its number."""

    node: str
    boot: int
    segno: int
    sha256: str
    prev_sha256: str
    opened_us: int
    closed_us: int
    missing: int
    is_disputed: bool = False
    uncertain_us: tuple[int, int] = (0, 0)

    def rows(self) -> list[dict[str, object]]:
        """What the ledger says about it."""
        row = {
            **{name: getattr(self, name) for name in ("node", "boot", "segno", "sha256", "prev_sha256")},
            "kind": "mdr",
            "opened_us": self.opened_us,
            "closed_us": self.closed_us,
            "first_seq": self.segno,
            "last_seq": self.segno,
            "verdict": "accepted",
            "findings": [],
            "lost_records": self.missing,
            "rows_quarantined": None,
            "uncertain_from_us": self.uncertain_us[0] or None,
            "uncertain_until_us": self.uncertain_us[1] or None,
        }
        return [row, *([row | {"verdict": "rejected", "findings": ["reused"]}] if self.is_disputed else [])]


def completeness_of_nodes(
    facts: Sequence[SegmentFact], declared: dict[str, int] | None = None
) -> dict[str, Completeness]:
    """What is proved when the ledger is read at once, or segment by segment, with what was known kept as rows."""
    at_once = Stretches()
    at_once.enter(row for fact in facts for row in fact.rows())
    kept: list[Stretch] = []
    for fact in facts:
        stretches = Stretches(stretch_of(one.row()) for one in kept)
        stretches.enter(fact.rows())
        kept = list(stretches)
    assert kept == list(at_once)
    return of_stretches(at_once, declared)


def chain(length: int, *, node: str = "n1", boot: int = 7, first: int = 1, prev: str = "") -> list[SegmentFact]:
    """Segments of a minute each, each naming the one before it."""
    facts = []
    for segno in range(first, first + length):
        sha256 = f"{node}-{boot}-{segno}"
        start = (boot * 100 + segno - 1) * MINUTE_US
        facts.append(SegmentFact(node, boot, segno, sha256, prev, start, start + MINUTE_US, 0))
        prev = sha256
    return facts


def of_node(facts: Sequence[SegmentFact], **declared: int) -> Completeness:
    return completeness_of_nodes(facts, declared)["n1"]


def test_an_unbroken_chain_proves_everything_up_to_its_last_segment() -> None:
    proved = of_node(chain(5))
    assert (proved.from_us, proved.until_us, proved.holes) == (0, chain(5)[-1].closed_us, ())
    assert proved.proof == "node n1 boot 7 segment 5"


def test_nothing_is_proved_after_a_segment_that_is_missing() -> None:
    facts = chain(5)
    proved = of_node([fact for fact in facts if fact.segno != 3])
    assert proved.until_us == facts[1].closed_us
    assert "boot 7 segment 4 does not follow it" in proved.proof


def test_a_segment_is_in_doubt_when_the_one_behind_it_names_another() -> None:
    facts = chain(2)
    other = SegmentFact("n1", 7, 3, "other", "something else", 0, 99 * MINUTE_US, 0)
    proved = of_node([*facts, other])
    assert proved.until_us == facts[0].closed_us
    assert "another one claims its number" in proved.proof


def test_a_segment_whose_number_another_one_claims_proves_nothing_until_the_next_one_names_it() -> None:
    first, second, third = chain(3)
    disputed = replace(second, is_disputed=True)
    assert of_node([first, disputed]).until_us == first.closed_us
    assert of_node([first, disputed, third]).until_us == third.closed_us
    assert of_node([first, disputed, replace(third, prev_sha256="the other")]).until_us == first.closed_us
    restarted = chain(1, boot=8, prev=second.sha256)
    assert of_node([first, disputed, *restarted]).until_us == restarted[-1].closed_us
    restarted_elsewhere = chain(1, boot=8, prev="the other")
    assert of_node([first, disputed, *restarted_elsewhere]).until_us == first.closed_us
    after_a_gap = chain(1, first=4, prev="the missing one")
    assert of_node([first, disputed, *after_a_gap]).until_us == first.closed_us


def test_a_first_segment_in_doubt_proves_nothing_of_its_time() -> None:
    [only] = chain(1)
    assert of_node([replace(only, is_disputed=True)]).until_us == only.opened_us


def test_the_chain_goes_on_over_a_restart() -> None:
    before = chain(3)
    after = chain(2, boot=8, prev=before[-1].sha256)
    assert of_node(before + after).until_us == after[-1].closed_us


def test_a_restart_that_lost_its_chain_proves_nothing_new() -> None:
    before = chain(3)
    assert of_node(before + chain(2, boot=8)).until_us == before[-1].closed_us


def test_a_restart_whose_first_segment_is_missing_proves_nothing_new_whatever_the_second_names() -> None:
    before = chain(3)
    proved = of_node(before + chain(2, boot=8, first=2, prev=before[-1].sha256))
    assert proved.until_us == before[-1].closed_us
    assert "boot 8 segment 2 does not follow it" in proved.proof


def test_a_chain_whose_beginning_is_not_known_proves_nothing_about_the_time_before() -> None:
    facts = chain(3, first=40, prev="known to somebody else")
    assert of_node(facts).from_us == facts[0].opened_us


def test_a_segment_with_lost_records_is_a_hole() -> None:
    first, second, third = chain(3)
    lossy = SegmentFact(
        second.node,
        second.boot,
        second.segno,
        second.sha256,
        second.prev_sha256,
        second.opened_us,
        second.closed_us,
        12,
    )
    proved = of_node([first, lossy, third])
    assert proved.until_us == third.closed_us
    assert proved.holes == ((second.opened_us, second.closed_us),)


def test_the_word_of_the_operator_counts_where_it_goes_further_and_is_reported() -> None:
    facts = chain(2)
    later = facts[-1].closed_us + MINUTE_US
    assert of_node(facts, n1=later).until_us == later
    assert of_node(facts, n1=later).proof.endswith("by the operator's word")
    assert of_node(facts, n1=1).until_us == facts[-1].closed_us
    assert of_node(facts, n1=facts[-1].closed_us) == of_node(facts)
    assert of_node(facts, n1=facts[-1].closed_us).proof == "node n1 boot 7 segment 2"
    silent = completeness_of_nodes(facts, {"silent": later})["silent"]
    assert (silent.from_us, silent.until_us, silent.proof) == (0, later, "no segments, then by the operator's word")


def test_the_word_of_the_operator_leaves_a_hole_where_segments_are_missing_or_in_doubt() -> None:
    facts = chain(5)
    later = facts[-1].closed_us + MINUTE_US
    missing = (facts[1].closed_us, facts[3].opened_us)
    proved = of_node([fact for fact in facts if fact.segno != 3], n1=later)
    assert (proved.until_us, proved.holes) == (later, (missing,))
    lossy = [replace(fact, missing=int(fact.segno == 5)) for fact in facts if fact.segno != 3]
    assert of_node(lossy, n1=later).holes == (missing, (facts[4].opened_us, facts[4].closed_us))
    disputed = [*facts[:4], replace(facts[4], is_disputed=True)]
    assert of_node(disputed, n1=later).holes == ((facts[4].opened_us, facts[4].closed_us),)
    lost_chain = [*facts, *chain(1, boot=8)]
    restarted = of_node(lost_chain, n1=lost_chain[-1].closed_us + 1)
    assert restarted.holes == ((facts[4].closed_us, lost_chain[-1].opened_us),)
    set_back = [*facts[:2], replace(facts[3], opened_us=facts[1].opened_us)]
    assert of_node(set_back, n1=later).holes == ((facts[1].opened_us, facts[1].closed_us),)


def test_the_word_of_the_operator_leaves_crashes_behind_a_break_uncertain() -> None:
    first, second, _, fourth = chain(4)
    crashed = replace(fourth, uncertain_us=(fourth.opened_us + 5, fourth.closed_us))
    assert of_node([first, second, crashed]).crashes == ()
    proved = of_node([first, second, crashed], n1=fourth.closed_us + MINUTE_US)
    assert proved.crashes == ((fourth.opened_us + 5, fourth.closed_us),)


def test_holes_of_a_range_are_those_that_reach_into_it_and_meet_as_one() -> None:
    known = Completeness(0, 99, holes=((1, 5), (5, 9), (20, 22), (21, 30), (40, 41)), crashes=((8, 12), (60, 70)))
    assert holes_between(known, 0, 99) == ((1, 12), (20, 30), (40, 41), (60, 70))
    assert holes_between(known, 12, 20) == ((8, 12), (20, 22))
    assert holes_between(known, 31, 39) == ()


def test_a_domain_is_as_complete_as_the_least_complete_of_its_nodes() -> None:
    proved = completeness_of_nodes([*chain(5), *chain(3, node="n2")])
    domain = completeness_of_domain(["n1", "n2"], proved)
    assert domain.until_us == proved["n2"].until_us
    assert "n1" in domain.proof
    assert "n2" in domain.proof
    assert domain.held_by == proved["n2"].proof
    assert (domain.from_us, domain.seen_us) == (0, proved["n1"].seen_us)


def test_a_domain_is_complete_from_when_the_last_of_its_nodes_is_and_has_the_holes_of_all() -> None:
    lossy = [replace(fact, missing=1) for fact in chain(2, node="n2", first=3, prev="earlier")]
    proved = completeness_of_nodes([*chain(5), *lossy])
    domain = completeness_of_domain(["n1", "n2"], proved)
    assert domain.from_us == lossy[0].opened_us
    assert domain.holes == tuple((fact.opened_us, fact.closed_us) for fact in lossy)


def test_a_node_without_segments_proves_nothing_for_its_domain() -> None:
    assert completeness_of_domain(["n1", "silent"], completeness_of_nodes(chain(5))).until_us == 0
    assert completeness_of_domain([], {}).until_us == 0


@given(order=st.permutations(chain(4) + chain(4)))
def test_order_and_repetition_of_segments_do_not_matter(order: list[SegmentFact]) -> None:
    assert of_node(order) == of_node(chain(4))


def test_a_crash_makes_the_time_behind_what_was_sealed_uncertain_whatever_its_manifest_claims() -> None:
    before, second, third = chain(3)
    closed_us = second.closed_us
    for claimed_us, from_us in ((second.opened_us + 5, second.opened_us + 5), (0, before.closed_us)):
        crashed = replace(second, uncertain_us=(claimed_us, closed_us))
        proved = of_node([before, crashed, third])
        assert (proved.crashes, proved.until_us) == (((from_us, closed_us),), third.closed_us)
    assert of_node([replace(before, uncertain_us=(0, before.closed_us))]).crashes == (
        (before.opened_us, before.closed_us),
    )
    domain = completeness_of_domain(["n1"], completeness_of_nodes([before, crashed]))
    assert domain.crashes == ((before.closed_us, closed_us),)


def test_before_a_segment_in_doubt_crashes_count_and_that_of_the_segment_itself_does_not() -> None:
    first, second, third, last = chain(4)
    crashed = [replace(one, uncertain_us=(one.opened_us + 5, one.closed_us)) for one in (second, third, last)]
    proved = of_node([first, *crashed[:2], replace(crashed[2], is_disputed=True)])
    assert proved.until_us == third.closed_us
    assert proved.crashes == tuple((one.opened_us + 5, one.closed_us) for one in (second, third))


def test_a_node_was_seen_at_the_latest_end_of_any_of_its_segments() -> None:
    before = chain(2)
    after = chain(2, boot=8, prev=before[-1].sha256)
    assert of_node([*before, *after]).seen_us == after[-1].closed_us
