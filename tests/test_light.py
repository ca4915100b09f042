"""The lighter recogniser: opened in the background when it is wanted, let go of later; and what Wren does with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from appliance.app import Wren, WrenSettings
from appliance.audio.resample import MonoResampler
from appliance.light import LightRecogniser
from appliance.measuring import LIGHT_ASR
from appliance.voice.asr.moonshine import MoonshineModel
from appliance.voice.asr.protocol import Cancel
from appliance.voice.asr.tokenizer import Tokenizer
from appliance.voice.relief import LIGHT_RECOGNISER
from models import Store
from models.convert import prepare
from models.engines.ladder import LadderEngine
from models.errors import EngineError
from tests.fakes import FakeVadEngine

WAIT_S = 20.0


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@dataclass
class FakeOpening:
    """Opens when it is let, or fails; remembers where."""

    go: threading.Event = field(default_factory=threading.Event)
    fail: bool = False
    threads: list[str] = field(default_factory=list)
    closed: int = 0

    @contextmanager
    def __call__(self) -> Iterator[MoonshineModel]:
        self.threads.append(threading.current_thread().name)
        self.go.wait(WAIT_S)
        if self.fail:
            raise EngineError("the fake engine was told to fail")
        engine = FakeVadEngine()
        try:
            yield MoonshineModel(engine, engine, Tokenizer([b"<s>"]))
        finally:
            self.closed += 1


def test_it_is_opened_only_when_it_is_wanted_on_a_thread_of_its_own_and_nobody_waits() -> None:
    opening = FakeOpening()
    light = LightRecogniser(opening)
    assert light.recogniser() is None
    assert opening.threads == []
    light.want(True)
    light.want(True)
    assert light.recogniser() is None
    opening.go.set()
    until(lambda: light.open)
    assert light.recogniser() is not light.recogniser(), "a session's own"
    assert opening.threads == ["light recogniser"]
    light.close()
    assert opening.closed == 1
    light.want(True)
    assert opening.threads == ["light recogniser"], "closed for good"


def test_it_is_let_go_of_some_time_after_it_was_wanted_and_opened_again() -> None:
    opening = FakeOpening()
    opening.go.set()
    light = LightRecogniser(opening, kept_s=0.05)
    for times in (1, 2):
        light.want(True)
        until(lambda: light.open)
        time.sleep(0.1)
        assert light.open, "as long as it is wanted"
        light.want(False)
        until(lambda: not light.open)
        until(lambda times=times: opening.closed == times)  # type: ignore[misc]
    assert light.recogniser() is None


def test_strain_that_comes_back_soon_finds_it_open() -> None:
    opening = FakeOpening()
    opening.go.set()
    light = LightRecogniser(opening, kept_s=WAIT_S)
    light.want(True)
    until(lambda: light.open)
    light.want(False)
    assert light.recogniser() is not None
    light.want(True)
    assert light.open
    light.close()
    assert len(opening.threads) == opening.closed == 1


def test_what_cannot_be_opened_is_said_while_it_is_wanted_and_tried_with_the_next_wish() -> None:
    opening = FakeOpening(fail=True)
    opening.go.set()
    light = LightRecogniser(opening)
    light.want(True)
    until(lambda: light.trouble)
    assert light.trouble == "the lighter recogniser cannot be opened: the fake engine was told to fail"
    assert light.recogniser() is None
    light.want(False)
    assert light.trouble is None
    opening.fail = False
    light.want(True)
    until(lambda: light.open)
    assert light.trouble is None
    light.close()


# ---- with the real packs


@pytest.fixture(scope="module")
def light_wren() -> Iterator[Wren]:
    """Wren where the lighter recogniser is installed."""
    store = Store()
    store.ensure(LIGHT_ASR)
    prepare(store, LIGHT_ASR)
    with Wren.open(WrenSettings()) as opened:
        yield opened


def _take(wren: Wren, *, taken: bool) -> None:
    wren.strain.floor("test", LIGHT_RECOGNISER if taken else None)


@pytest.mark.models
def test_the_step_is_there_where_the_pack_is_and_its_weights_are_not_loaded_at_the_start(light_wren: Wren) -> None:
    assert LIGHT_RECOGNISER in [step.name for step in light_wren.strain.steps]
    assert light_wren.light is not None
    assert not light_wren.light.open
    assert not any("light recogniser" in sentence for sentence in light_wren.advice)


@pytest.mark.models
def test_a_step_down_has_the_lighter_one_hear_what_is_said(light_wren: Wren) -> None:
    assert light_wren.light is not None
    _take(light_wren, taken=True)
    until(lambda: light_wren.light is not None and light_wren.light.open)
    recogniser = light_wren.light.recogniser()
    assert recogniser is not None
    synthesiser = light_wren.synthesiser()
    resampler = MonoResampler(synthesiser.rate_hz)
    recogniser.push_samples(
        np.concatenate((resampler.push(synthesiser.whole("turn on the kitchen lights")), resampler.flush()))
    )
    heard = recogniser.hypothesise(recogniser.samples, None, Cancel()).text
    assert light_wren.assistant.match(heard).intent == "HassTurnOn", heard
    light, planned = recogniser._model.encoder, light_wren.plan.tasks["asr"]
    assert isinstance(light, LadderEngine)
    assert light.state().serving == f"{planned.backend} {planned.precision}"
    assert light_wren.light.trouble is None
    _take(light_wren, taken=False)


@pytest.mark.models
def test_chosen_by_hand_it_is_what_is_planned_and_nothing_lighter_is_offered() -> None:
    store = Store()
    store.ensure(LIGHT_ASR)
    with Wren.open(WrenSettings(recogniser=LIGHT_ASR), store=store) as wren:
        assert wren.plan.tasks["asr"].model == LIGHT_ASR
        assert wren.light is None
        assert not any("light recogniser" in sentence for sentence in wren.advice)
        assert wren.degraded == ()
        recogniser = wren.recogniser()
        recogniser.push_samples(np.zeros(32000, dtype=np.float32))
        assert recogniser.flush().text == ""


@pytest.mark.models
def test_where_it_is_not_installed_the_step_is_left_out_and_one_line_says_what_would_help(
    light_wren: Wren, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a start: the store is asked then."""
    monkeypatch.setattr("appliance.app.forms", lambda *_: ())
    bare = Wren(light_wren.settings, light_wren.opener, light_wren._hearing, light_wren._voice)
    assert bare.light is None
    assert LIGHT_RECOGNISER in [step.name for step in bare.strain.skipped]
    (sentence,) = [sentence for sentence in bare.advice if "light recogniser" in sentence]
    assert sentence.endswith("to install one: wren models fetch moonshine-tiny-en")
    assert bare.degraded == light_wren.degraded
