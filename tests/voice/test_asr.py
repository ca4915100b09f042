from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.app import ASR_PACK, Wren
from appliance.audio.frame import Framer, Samples
from appliance.errors import SpeechError
from appliance.voice.asr.moonshine import DecodingLimits, MoonshineModel, MoonshineRecogniser, repeats
from appliance.voice.asr.protocol import Cancel, Cancelled
from appliance.voice.asr.tokenizer import Tokenizer
from models.engines.base import Array
from models.errors import StreamLostError
from tests.fakes import silence, speech


def _words(text: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def _heard(recogniser: MoonshineRecogniser, sound: Samples, cuts: list[int] | None = None) -> str:
    framer, at = Framer(), 0
    recogniser.reset()
    for cut in [*(cuts or []), sound.size]:
        for frame in framer.push(sound[at : at + cut]):
            recogniser.push(frame)
        at += cut
    for frame in framer.flush():
        recogniser.push(frame)
    return recogniser.flush().text


@pytest.mark.models
def test_a_sentence_is_recognised(wren: Wren, spoken: Samples) -> None:
    recogniser = wren.recogniser()
    assert "turn on the kitchen lights" in _words(_heard(recogniser, spoken))
    hypothesis = recogniser.flush()
    assert hypothesis.cut is None
    assert hypothesis.tokens > 5
    assert -20 < hypothesis.logp < 0


@pytest.mark.models
@settings(deadline=None, max_examples=4)
@given(cuts=st.lists(st.integers(1, 9000), max_size=6))
def test_any_chunking_gives_the_same_text(wren: Wren, spoken: Samples, cuts: list[int]) -> None:
    assert _heard(wren.recogniser(), spoken, cuts) == _heard(wren.recogniser(), spoken)


@pytest.mark.models
def test_hypothesising_looks_and_consumes_nothing(wren: Wren, spoken: Samples) -> None:
    recogniser = wren.recogniser()
    recogniser.push_samples(spoken[: spoken.size // 2])
    half = recogniser.samples
    first = recogniser.hypothesise(half, None, Cancel())
    recogniser.push_samples(spoken[spoken.size // 2 :])
    assert recogniser.hypothesise(half, None, Cancel()) == first
    assert "kitchen lights" in _words(recogniser.flush().text)


@pytest.mark.models
@pytest.mark.parametrize("losses", [1, 2])
def test_a_stream_lost_with_its_device_is_begun_again_once(
    wren: Wren, spoken: Samples, losses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recogniser = wren.recogniser()
    stream, left = recogniser._decoder, [losses]
    run = stream.run

    def losing(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        if left[0] > 0:
            left[0] -= 1
            raise StreamLostError("the device is gone")
        return run(inputs)

    monkeypatch.setattr(recogniser, "_decoder", SimpleNamespace(run=losing, reset=stream.reset))
    recogniser.push_samples(spoken)
    if losses == 1:
        assert "kitchen lights" in _words(recogniser.flush().text)
    else:
        with pytest.raises(SpeechError):
            recogniser.flush()


@pytest.mark.models
@pytest.mark.parametrize("sound", [np.empty(0, np.float32), np.zeros(300, np.float32), np.zeros(48_000, np.float32)])
def test_nothing_is_made_of_silence(wren: Wren, sound: Samples) -> None:
    assert _heard(wren.recogniser(), sound) == ""


@pytest.mark.models
def test_noise_ends_within_the_length_limit(wren: Wren) -> None:
    recogniser = wren.recogniser()
    for sound in (speech(3.0), silence(3.0) * 5):
        recogniser.reset()
        recogniser.push_samples(sound)
        assert recogniser.flush().tokens <= 3.5 * 6.5 + 5


@pytest.mark.models
def test_a_cancelled_recognition_stops(wren: Wren, spoken: Samples) -> None:
    recogniser, cancel = wren.recogniser(), Cancel()
    recogniser.push_samples(spoken)
    cancel.cancel()
    with pytest.raises(Cancelled):
        recogniser.hypothesise(recogniser.samples, None, cancel)


@pytest.mark.models
def test_sound_beyond_the_cap_is_counted_not_kept(wren: Wren) -> None:
    model = wren._need().asr
    short = MoonshineModel(
        model.encoder, model.decoder, model.tokenizer, model.bos_id, model.eos_id, DecodingLimits(max_utterance_s=1.0)
    )
    recogniser = MoonshineRecogniser(short)
    recogniser.push_samples(speech(1.5))
    assert recogniser.samples == 16_000
    assert recogniser.dropped_samples == 8_000


def test_a_loop_in_the_tokens_is_noticed() -> None:
    assert repeats([1, 2, 3, 4, 5], 12, 4) == 0
    assert repeats([9, 7, 7, 7, 7], 12, 4) == 1
    assert repeats([5, *[1, 2, 3] * 4], 12, 4) == 3
    assert repeats([1, 2] * 3, 12, 4) == 0


@given(st.lists(st.integers(0, 3), max_size=40))
def test_what_is_called_a_loop_is_one(ids: list[int]) -> None:
    length = repeats(ids, 6, 3)
    if length:
        assert ids[-length:] * 3 == ids[-3 * length :]


def _table(pieces: list[bytes]) -> bytes:
    out = b""
    for piece in pieces:
        length = len(piece)
        out += (bytes([length]) if length < 128 else bytes([128 + length % 128, length // 128])) + piece
    return out


def test_pieces_become_text(tmp_path: Path) -> None:
    pieces = [b"<unk>", b"<s>", b"</s>", "▁turn".encode(), "▁on".encode(), b"<0xC3>", b"<0xA9>", b"x" * 300]
    (tmp_path / "tokenizer.bin").write_bytes(_table(pieces))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.bin")
    assert len(tokenizer) == 8
    assert tokenizer.decode([1, 3, 4, 2]) == "turn on"
    assert tokenizer.decode([3, 5, 6]) == "turné"
    assert tokenizer.decode([7]) == "x" * 300


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("t") / "tokenizer.bin"
    path.write_bytes(data)
    try:
        Tokenizer.load(path)
    except SpeechError as error:
        assert "wren models verify" in str(error)  # noqa: PT017 - either outcome is right


@pytest.mark.models
def test_the_shipped_table_is_read_and_ids_beyond_it_are_control_tokens(wren: Wren) -> None:
    tokenizer = Tokenizer.load(wren.store.open(ASR_PACK).path("tokenizer.bin"))
    assert len(tokenizer) == 32_000
    assert tokenizer.decode([1, 2, 32_000, 32_767]) == ""
