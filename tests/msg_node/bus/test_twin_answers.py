"""What several nodes say about one thing becomes one answer."""

from __future__ import annotations

from msg_node.bus.core.twin_answers import joined_twins

Json = dict[str, object]


def a_thing(status: str, modified: int, resource: str = "thing://a.example/x/1") -> Json:
    return {"resource": resource, "status": status, "modified": modified, "values": {}}


def test_a_thing_of_a_connected_agent_counts_before_a_newer_one_of_an_agent_that_is_away() -> None:
    live, away = a_thing("live", 1), a_thing("disconnected", 9)
    assert joined_twins([away, live]) == live
    assert joined_twins([a_thing("disconnected", 1), away]) == away


def test_the_newest_value_counts_and_values_of_an_object_are_joined_by_name() -> None:
    old, new = {"value": 1, "received": 5}, {"value": 2, "received": 6}
    assert joined_twins([old, new]) == new
    objects = [{"resource": "o", "values": {"x": old, "y": new}}, {"resource": "o", "values": {"x": new, "z": old}}]
    assert joined_twins(objects) == {"resource": "o", "values": {"x": new, "y": new, "z": old}}


def test_of_values_that_came_at_the_same_time_the_first_counts() -> None:
    first, second = ({"resource": "o", "values": {"x": {"value": value, "received": 5}}} for value in (1, 2))
    assert joined_twins([first, second]) == first


def test_pages_are_joined_and_a_thing_that_two_nodes_have_is_counted_once() -> None:
    live, away, other = a_thing("live", 1), a_thing("disconnected", 9), a_thing("live", 1, "thing://a.example/x/2")
    pages = [
        {"things": [away], "page": 1, "pages": 3, "total": 101},
        {"things": [live, other], "page": 1, "pages": 1, "total": 2},
    ]
    assert joined_twins(pages) == {"things": [live, other], "page": 1, "pages": 3, "total": 102}


def test_answers_of_another_form_have_no_part() -> None:
    live = a_thing("live", 1)
    assert joined_twins([live, 7, {"things": []}, None]) == live
    assert joined_twins([7, 8]) == 7


def test_what_is_no_thing_or_page_or_object_has_no_part_however_new_it_is() -> None:
    away, value = a_thing("disconnected", 5), {"value": 1, "received": 99, "modified": 99}
    assert joined_twins([away, value]) == away
    page: Json = {"things": [away], "page": 1, "pages": 1, "total": 1}
    assert joined_twins([page, {"things": 7, "total": 50}, value]) == page
    an_object: Json = {"resource": "o", "values": {"x": {"value": 1, "received": 1}}}
    assert joined_twins([an_object, {**away, "values": {"x": value}}]) == an_object
