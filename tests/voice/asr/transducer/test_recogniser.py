from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, Frame, Samples
from appliance.errors import SpeechError
from appliance.intent.phrase_graph import END, GraphBuilder
from appliance.voice.asr.bias import LetterBias
from appliance.voice.asr.protocol import Bias, Cancel, Cancelled, Extension, Hypothesis, Recogniser
from appliance.voice.asr.transducer.features import samples_for
from appliance.voice.asr.transducer.files import read_folder
from appliance.voice.asr.transducer.networks import Encoder
from appliance.voice.asr.transducer.recogniser import TransducerLimits, TransducerRecogniser
from models.engines.base import Array, Engine, State, Stream
from models.engines.onnx_cpu import OrtCpuEngine
from models.errors import EngineError, StreamLostError
from tests.voice.asr.transducer.hearing import heard, model_of


def look(recogniser: TransducerRecogniser, until: int | None = None, bias: Bias | None = None) -> Hypothesis:
    return recogniser.hypothesise(recogniser.samples if until is None else until, bias, Cancel())


def grammar(*phrases: str) -> LetterBias:
    builder = GraphBuilder()
    return LetterBias(builder.graph(1, builder.words([(p, END) for p in phrases])))


def test_it_is_a_recogniser(folder: Path, sound: Samples) -> None:
    recogniser: Recogniser = TransducerRecogniser(model_of(folder))
    partials = []
    for at in range(0, sound.size - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        partials += recogniser.push(Frame(sound[at : at + FRAME_SAMPLES], at / RATE_HZ, at // FRAME_SAMPLES))
    assert recogniser.samples == sound.size // FRAME_SAMPLES * FRAME_SAMPLES
    assert partials
    assert all(partial.until_sample <= recogniser.samples for partial in partials)
    assert recogniser.flush().text


@settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 9000), min_size=1, max_size=6))
def test_any_chunking_gives_the_same_text(sizes: list[int], folder: Path, sound: Samples) -> None:
    model = model_of(folder)
    whole, pieces = TransducerRecogniser(model), TransducerRecogniser(model)
    texts = heard(whole, sound, [sound.size])
    assert heard(pieces, sound, sizes) == texts
    assert pieces.flush() == whole.flush()


@settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(looks=st.lists(st.tuples(st.integers(0, 36_800), st.booleans()), min_size=1, max_size=5))
def test_looking_changes_nothing(looks: list[tuple[int, bool]], folder: Path, sound: Samples) -> None:
    model = model_of(folder)
    looked, left = TransducerRecogniser(model), TransducerRecogniser(model)
    texts, at = [], 0
    for until, biased in sorted(looks):
        texts += heard(looked, sound[at:until])
        look(looked, until, grammar("turn on the light") if biased else None)
        at = max(at, until)
    texts += heard(looked, sound[at:])
    assert texts == heard(left, sound)
    assert look(looked) == look(left)


def test_a_look_back_hears_what_was_heard_then(folder: Path, sound: Samples) -> None:
    model = model_of(folder)
    late = TransducerRecogniser(model)
    heard(late, sound)
    until = 0
    for until in (0, 100, 7_000, 12_345, 20_000, 30_000, sound.size):
        early = TransducerRecogniser(model)
        heard(early, sound[:until])
        assert look(late, until) == look(early), until
    assert look(late, until + 10_000) == look(late, until)


def test_a_look_back_beyond_the_states_kept_hears_up_to_the_oldest(folder: Path, sound: Samples) -> None:
    model = model_of(folder, TransducerLimits(kept_windows=2))
    recogniser = TransducerRecogniser(model)
    heard(recogniser, sound)
    oldest = look(recogniser, 0)
    assert oldest.text
    assert oldest == look(recogniser, 1_000)
    assert oldest != look(recogniser)


def test_the_end_of_the_sound_is_read_though_no_window_is_full(folder: Path, sound: Samples) -> None:
    meta = read_folder(folder).metadata
    recogniser = TransducerRecogniser(model_of(folder))
    short = samples_for(meta.window) - 1
    assert heard(recogniser, sound[:short]) == []
    assert recogniser.flush().text


def test_a_new_utterance_knows_nothing_of_the_one_before(folder: Path, sound: Samples) -> None:
    model = model_of(folder)
    used, fresh = TransducerRecogniser(model), TransducerRecogniser(model)
    heard(used, sound[::-1].copy())
    look(used)
    used.reset()
    assert used.samples == 0
    assert heard(used, sound) == heard(fresh, sound)
    assert used.flush() == fresh.flush()


def test_sound_beyond_the_longest_utterance_is_counted(folder: Path, sound: Samples) -> None:
    recogniser = TransducerRecogniser(model_of(folder, TransducerLimits(max_utterance_s=1.0)))
    heard(recogniser, sound)
    assert recogniser.samples == RATE_HZ
    assert recogniser.dropped_samples == sound.size - RATE_HZ
    assert recogniser.flush().text


def test_a_look_that_is_cancelled_ends(folder: Path, sound: Samples) -> None:
    recogniser = TransducerRecogniser(model_of(folder))
    heard(recogniser, sound)
    cancel = Cancel()
    cancel.cancel()
    with pytest.raises(Cancelled):
        recogniser.hypothesise(sound.size, None, cancel)
    fresh = TransducerRecogniser(model_of(folder))
    heard(fresh, sound)
    assert look(recogniser) == look(fresh)


def test_looks_on_another_thread_hear_the_same_while_sound_comes_in(folder: Path, sound: Samples) -> None:
    model = model_of(folder)
    calm, busy = TransducerRecogniser(model), TransducerRecogniser(model)
    untils = (6_000, 9_000, 14_000)
    expected = {}
    heard(calm, sound)
    for until in untils:
        expected[until] = look(calm, until)
    heard(busy, sound[: untils[-1]])
    found: dict[int, list[Hypothesis]] = {until: [] for until in untils}

    def work() -> None:
        for _ in range(3):
            for until in untils:
                found[until].append(look(busy, until))

    worker = threading.Thread(target=work)
    worker.start()
    texts = heard(busy, sound[untils[-1] :])
    worker.join()
    assert texts
    assert all(hypothesis == expected[until] for until in untils for hypothesis in found[until])
    assert look(busy) == look(calm)


def test_a_phrase_that_is_near_what_was_heard_is_offered(folder: Path, sound: Samples) -> None:
    """What the model writes, with another word at its end: near enough to be found beside the free text."""
    model = model_of(folder)
    recogniser = TransducerRecogniser(model)
    heard(recogniser, sound)
    free = look(recogniser)
    exact = look(recogniser, bias=grammar(free.text, "turn off the kitchen light"))
    assert (exact.text, exact.logp) == (free.text, free.logp)
    assert (exact.phrase, exact.phrase_logp) == (free.text, free.logp)
    assert exact.complete
    assert exact.phrase_reach is not None
    assert exact.phrase_reach.extension is Extension.NONE
    far = look(recogniser, bias=grammar("zzz"))
    assert (far.text, far.phrase, far.complete) == (free.text, None, False)


def test_a_second_look_costs_only_what_is_new(folder: Path, sound: Samples) -> None:
    """The search goes on from where it was: the joiner is run for the end of the sound alone."""
    model = model_of(folder)
    counting = FakeCounter(model.joiner)
    recogniser = TransducerRecogniser(replace(model, joiner=counting))
    bias = grammar("turn on the light")
    heard(recogniser, sound)
    counting.runs = 0
    first = look(recogniser, bias=bias)
    cost, counting.runs = counting.runs, 0
    assert look(recogniser, bias=bias) == first
    assert 0 < counting.runs < 0.75 * cost


def test_a_device_that_takes_the_state_with_it_costs_no_word(folder: Path, sound: Samples) -> None:
    model = model_of(folder)
    calm = TransducerRecogniser(model)
    texts = heard(calm, sound)
    losing = FakeLosingEngine(model.encoder, at={2, 6})
    shaken = TransducerRecogniser(replace(model, encoder=losing))
    assert heard(shaken, sound) == texts
    assert losing.lost == 2
    losing.at.add(losing.runs)
    assert look(shaken) == look(calm)
    assert losing.lost == 3


def test_an_engine_that_fails_while_sound_comes_in_is_told_when_it_is_asked(folder: Path, sound: Samples) -> None:
    failing = FakeLosingEngine(model_of(folder).encoder, at={1}, error=EngineError)
    recogniser = TransducerRecogniser(replace(model_of(folder), encoder=failing))
    heard(recogniser, sound)
    assert recogniser.samples == sound.size
    assert failing.runs == 2
    for _ in range(2):
        with pytest.raises(SpeechError, match="recognition failed: gone"):
            look(recogniser)
    recogniser.reset()
    heard(recogniser, sound)
    assert look(recogniser).text


def test_an_engine_that_fails_as_an_utterance_begins_is_told_when_it_is_asked(
    folder: Path, sound: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: Encoder) -> State:
        raise EngineError("gone")

    recogniser = TransducerRecogniser(model_of(folder))
    with monkeypatch.context() as patched:
        patched.setattr(Encoder, "snapshot", gone)
        recogniser.reset()
    assert heard(recogniser, sound) == []
    assert recogniser.samples == sound.size
    with pytest.raises(SpeechError, match="recognition failed: gone"):
        look(recogniser)
    recogniser.reset()
    assert heard(recogniser, sound)
    assert look(recogniser).text


def test_an_engine_that_fails_in_a_look_leaves_what_was_heard(folder: Path, sound: Samples) -> None:
    failing = FakeLosingEngine(model_of(folder).encoder, at=set(), error=EngineError)
    recogniser = TransducerRecogniser(replace(model_of(folder), encoder=failing))
    heard(recogniser, sound)
    failing.at.add(failing.runs)
    with pytest.raises(SpeechError, match="recognition failed: gone"):
        look(recogniser)
    fresh = TransducerRecogniser(model_of(folder))
    heard(fresh, sound)
    assert look(recogniser) == look(fresh)


def test_a_model_of_capitals_writes_small_letters(folder: Path, sound: Samples) -> None:
    recogniser = TransducerRecogniser(model_of(folder))
    heard(recogniser, sound)
    text = recogniser.flush().text
    assert text == text.lower() != ""


class FakeCounter:
    """An engine that counts its runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.runs = 0

    def stream(self) -> Stream:
        return FakeStream(self._engine.stream(), self._counted)

    def close(self) -> None:
        self._engine.close()

    def _counted(self) -> None:
        self.runs += 1


class FakeLosingEngine(FakeCounter):
    """An engine that loses a stream's state in the runs of these numbers."""

    def __init__(self, engine: Engine, at: set[int], error: type[Exception] = StreamLostError) -> None:
        super().__init__(engine)
        self.at, self.error, self.lost = at, error, 0

    def _counted(self) -> None:
        number, self.runs = self.runs, self.runs + 1
        if number in self.at:
            self.lost += 1
            raise self.error("gone")


class FakeStream:
    """A stream that tells of each run before it is made; one that is lost forgets its state."""

    def __init__(self, stream: Stream, tell: Any) -> None:
        self._stream, self._tell = stream, tell

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        try:
            self._tell()
        except StreamLostError:
            self._stream.reset()
            raise
        return self._stream.run(inputs)

    def snapshot(self) -> State:
        return self._stream.snapshot()

    def restore(self, state: State) -> None:
        self._stream.restore(state)

    def reset(self) -> None:
        self._stream.reset()


def test_the_fakes_states_are_real(folders: dict[str, Path]) -> None:
    """A lost state would be heard, or the test above shows nothing."""
    files = read_folder(folders["zipformer2"])
    stream = OrtCpuEngine(files.graphs["encoder"], files.metadata.states).stream()
    x = np.zeros((1, files.metadata.window, 80), dtype=np.float32)
    first = stream.run({"x": x})["encoder_out"].copy()
    assert np.abs(stream.run({"x": x})["encoder_out"] - first).max() > 0.1
