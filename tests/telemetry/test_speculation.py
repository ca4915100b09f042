from __future__ import annotations

import pytest

from appliance import events
from appliance.telemetry.speculation import SpeculationTotals, SpeculationWatch


def _told(recognitions: int, hit: bool, spent_s: float, wasted_s: float) -> events.SpeculationEnded:
    return events.SpeculationEnded(1.0, "s", "u", recognitions, int(hit), hit, spent_s, wasted_s)


def test_hits_and_waste_are_summed_up() -> None:
    watch = SpeculationWatch()
    assert watch.totals == SpeculationTotals()
    assert watch.totals.waste == 0.0
    for event in (_told(3, True, 0.4, 0.1), _told(1, False, 0.2, 0.2), events.FirstAudio(1.0, "s", "u")):
        watch(event)
    totals = watch.totals
    assert (totals.utterances, totals.recognitions, totals.replies, totals.hits) == (2, 4, 1, 1)
    assert totals.waste == pytest.approx(0.5)


def test_an_utterance_in_which_nobody_spoke_does_not_count() -> None:
    watch = SpeculationWatch()
    watch(_told(0, False, 0.0, 0.0))
    assert watch.totals.utterances == 0
