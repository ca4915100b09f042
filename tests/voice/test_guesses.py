from __future__ import annotations

import pytest

from appliance.intent.types import Understanding
from appliance.voice.asr.acceptance import Accepted
from appliance.voice.asr.protocol import Extension
from appliance.voice.guesses import Steadiness


def _taken(intent: str | None, **slots: str) -> Accepted:
    whole = intent is not None
    return Accepted(Understanding("text", intent, slots), "text", "free", 0.0, whole, Extension.NONE)


def test_the_same_sentence_three_times_is_steady_since_the_first() -> None:
    steady = Steadiness()
    for number in range(3):
        assert steady.lasted_s(number) == 0.0
        steady.add(_taken("HassTurnOn", area="Kitchen"), float(number))
    assert steady.lasted_s(2.5) == pytest.approx(2.5)


@pytest.mark.parametrize(
    "other", [_taken("HassTurnOn", area="Office"), _taken("HassTurnOff", area="Kitchen"), _taken(None)]
)
def test_another_meaning_or_none_starts_over(other: Accepted) -> None:
    steady = Steadiness()
    for number in range(4):
        steady.add(_taken("HassTurnOn", area="Kitchen"), float(number))
    steady.add(other, 4.0)
    assert steady.lasted_s(5.0) == 0.0


def test_what_means_nothing_is_never_steady() -> None:
    steady = Steadiness()
    for number in range(9):
        steady.add(_taken(None), float(number))
    assert steady.lasted_s(10.0) == 0.0
