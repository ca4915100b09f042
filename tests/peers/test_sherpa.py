"""Our streaming transducers against sherpa-onnx on the same files and sound, and their features against its library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kaldi_native_fbank
import numpy as np
import pytest
import sherpa_onnx
import soundfile

from appliance.audio.frame import RATE_HZ, Samples
from appliance.voice.asr.transducer.features import FeatureKind, frames_of
from appliance.voice.asr.transducer.files import PARTS
from appliance.voice.asr.transducer.networks import Encoder, Predictor
from appliance.voice.asr.transducer.recogniser import TransducerModel, TransducerRecogniser
from tests.voice.asr.transducer.hearing import model_of
from tests.voice.asr.transducer.small_models import changing_sound, write_nemo, write_zipformer

WRITERS = {"zipformer2": write_zipformer, "nemo": write_nemo}
PATHS = {"greedy_search": 1, "modified_beam_search": 4}
CLIPS = ("rht_turn_off_garage_light", "rh3_set_timer")
SPACE = "▁"


def our_pieces(model: TransducerModel, sound: Samples) -> list[str]:
    """Pieces of the whole windows of a sound, which is all that sherpa-onnx reads of it too."""
    meta = model.metadata
    encoder = Encoder(meta, model.encoder)
    search = model.searching(Predictor(meta, model.decoder, model.joiner), None)
    features = frames_of(sound, 0, "kaldi" if meta.family == "zipformer2" else "nemo", meta.bins)
    state = search.start()
    for at in range(0, len(features) - meta.window, meta.shift):  # sherpa-onnx wants one frame more than a window
        state = search.advance_all(state, encoder.run(features[at : at + meta.window]))
    texts = list(model.labels.tokenizer.texts())
    return [text for label in search.best(state).ids if (text := texts[label]) is not None]


def their_pieces(folder: Path, method: str, sound: Samples) -> list[str]:
    recogniser: Any = sherpa_onnx.OnlineRecognizer.from_transducer(
        tokens=str(folder / "tokens.txt"),
        **{part: str(folder / f"{part}.onnx") for part in PARTS},
        num_threads=1,
        decoding_method=method,
    )
    stream = recogniser.create_stream()
    stream.accept_waveform(RATE_HZ, sound)
    while recogniser.is_ready(stream):
        recogniser.decode_stream(stream)
    return [piece.replace(SPACE, " ") for piece in recogniser.tokens(stream)]


@pytest.mark.parametrize("method", sorted(PATHS))
@pytest.mark.parametrize("family", sorted(WRITERS))
@pytest.mark.parametrize("seed", [1, 3, 4, 5])
def test_the_same_files_write_the_same_pieces(tmp_path: Path, family: str, method: str, seed: int) -> None:
    folder = WRITERS[family](tmp_path, seed)
    sound = changing_sound(2.0 + seed / 3)
    ours = our_pieces(model_of(folder, paths=PATHS[method]), sound)
    assert ours == their_pieces(folder, method, sound)
    assert ours


@pytest.mark.parametrize("family", sorted(WRITERS))
@pytest.mark.parametrize("clip", CLIPS)
def test_recorded_speech_gives_the_same_pieces(shared: Path, tmp_path: Path, family: str, clip: str) -> None:
    folder = WRITERS[family](tmp_path, 7)
    sound, rate_hz = soundfile.read(shared / "speech" / "commands" / f"{clip}.flac", dtype="float32")
    assert rate_hz == RATE_HZ
    for method, paths in PATHS.items():
        assert our_pieces(model_of(folder, paths=paths), sound) == their_pieces(folder, method, sound)


def test_the_recogniser_writes_what_sherpa_does(tmp_path: Path) -> None:
    """The same through `push`, with the text as it is shown."""
    folder = write_zipformer(tmp_path, 3)
    sound = changing_sound(3.05)
    recogniser = TransducerRecogniser(model_of(folder, paths=PATHS["modified_beam_search"]))
    partials = recogniser.push_samples(sound)
    theirs = "".join(their_pieces(folder, "modified_beam_search", sound))
    assert partials[-1].text == " ".join(theirs.split()).lower()


@pytest.mark.parametrize("kind", ["kaldi", "nemo"])
def test_features_are_those_of_kaldi_native_fbank(kind: FeatureKind) -> None:
    """Set up as sherpa-onnx sets it up for each family."""
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = False
    options.mel_opts.num_bins = 80
    if kind == "kaldi":
        options.mel_opts.high_freq = -400
    else:
        options.mel_opts.low_freq, options.mel_opts.high_freq = 0, RATE_HZ / 2
        options.mel_opts.is_librosa = True
        options.frame_opts.remove_dc_offset = False
        options.frame_opts.window_type = "hann"
    sound = changing_sound(1.5)
    theirs = kaldi_native_fbank.OnlineFbank(options)
    theirs.accept_waveform(RATE_HZ, sound.tolist())
    ours = frames_of(sound, 0, kind, 80)
    assert theirs.num_frames_ready == len(ours)
    np.testing.assert_allclose(ours, [theirs.get_frame(i) for i in range(len(ours))], atol=1e-3)
