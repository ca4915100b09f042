"""Where Wren has told of itself: what is noted, and what counts as a ghost."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.mqtt.client_topics import matches, overlap
from appliance.mqtt.places import FILE, MAX_FORMER, Place, former_places, ghost_filters, keep_place, known_places

DEVICE = "wren-0123abcd"
OLD, NOW = Place("wren", "homeassistant"), Place("house/wren", "homeassistant")


def test_a_start_knows_where_those_before_it_were(tmp_path: Path) -> None:
    assert former_places(tmp_path, OLD) == ()
    assert former_places(tmp_path, OLD) == ()
    assert former_places(tmp_path, NOW) == (OLD,)
    assert former_places(tmp_path, NOW) == (OLD,), "until it is said that nothing stands there any more"
    keep_place(tmp_path, NOW)
    assert known_places(tmp_path) == [NOW]
    for number in range(20):
        former_places(tmp_path, Place(f"p{number}", "homeassistant"))
    assert len(known_places(tmp_path)) <= MAX_FORMER + 1


@pytest.mark.parametrize("text", ["", "{", "[1]", '[["a"]]', '[["a", "#"]]', '[["a/+", "b"]]', "[[1, 2]]", "[" * 4000])
def test_a_file_that_was_meddled_with_costs_nothing_else(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert former_places(tmp_path, NOW) == ()
    assert known_places(tmp_path) == [NOW]


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert former_places(tmp_path / "file", NOW) == ()


def test_what_both_places_share_is_no_ghost() -> None:
    assert ghost_filters((OLD,), NOW, DEVICE) == (f"wren/{DEVICE}/#",)
    assert ghost_filters((Place("wren", "ha"),), OLD, DEVICE) == (
        f"ha/device/{DEVICE}/config",
        f"ha/+/{DEVICE}/+/config",
    )
    assert ghost_filters((NOW,), NOW, DEVICE) == ()


PREFIX = st.lists(st.sampled_from(["wren", "ha", DEVICE, "command"]), min_size=1, max_size=3).map("/".join)
PLACE = st.builds(Place, PREFIX, PREFIX)


LEVEL = st.sampled_from(["a", "b", "+"])
FILTER = st.builds(
    lambda levels, rest: "/".join([*levels, *rest]),
    st.lists(LEVEL, min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
)


@given(FILTER, FILTER)
def test_filters_that_overlap_share_a_topic(one: str, other: str) -> None:
    topics = ["/".join(levels) for length in range(1, 5) for levels in itertools.product("ab", repeat=length)]
    assert overlap(one, other) == any(matches(one, topic) and matches(other, topic) for topic in topics)


@given(st.lists(PLACE, max_size=4), PLACE)
def test_nothing_of_where_it_is_now_is_ever_taken_for_a_ghost(former: list[Place], now: Place) -> None:
    base = now.base(DEVICE)
    kept = [f"{base}/availability", f"{base}/state/volume", f"{base}/command/say"]
    kept += [f"{now.discovery_prefix}/device/{DEVICE}/config", f"{now.discovery_prefix}/sensor/{DEVICE}/state/config"]
    ghosts = ghost_filters(former, now, DEVICE)
    assert len(set(ghosts)) == len(ghosts)
    for topic in kept:
        assert not [one for one in ghosts if matches(one, topic)], topic
