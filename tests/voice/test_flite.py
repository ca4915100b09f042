"""The light voice: real where it is installed, and what becomes of a program that fails."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from appliance.errors import ProgramMissingError, SpeechError
from appliance.voice.asr.protocol import Cancel, Cancelled
from appliance.voice.tts.flite import FliteSynthesiser, find_flite

needs_flite = pytest.mark.skipif(find_flite() is None and not os.environ.get("CI"), reason="flite is not installed")


@needs_flite
def test_it_speaks_each_sentence_at_the_rate_that_is_asked_for() -> None:
    voice = FliteSynthesiser(22_050)
    pieces = list(voice.stream("The lights are on. It is warm.", Cancel()))
    assert len(pieces) == 2
    for piece in pieces:
        assert piece.dtype == np.float32
        assert 0.3 < piece.size / voice.rate_hz < 4.0
        assert 0.05 < np.abs(piece).max() <= 1.0


@needs_flite
def test_a_text_is_never_taken_for_an_option_and_without_a_word_there_is_no_sound() -> None:
    voice = FliteSynthesiser(16_000)
    assert len(list(voice.stream("-o /tmp/x --help", Cancel()))) == 1
    assert list(voice.stream("… !", Cancel())) == []


@needs_flite
def test_it_stops_between_sentences() -> None:
    cancel = Cancel()
    pieces = FliteSynthesiser(16_000).stream("One. Two.", cancel)
    next(pieces)
    cancel.cancel()
    with pytest.raises(Cancelled):
        next(pieces)


def _program(folder: Path, script: str) -> str:
    path = folder / "fake-flite"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_program_that_fails_hangs_or_is_silent_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.voice.tts.flite.TIMEOUT_S", 0.2)
    for script, message in (("exit 3", "exit status 3"), ("exec sleep 5", "timed out"), ("exit 0", "gave no sound")):
        voice = FliteSynthesiser(16_000, _program(tmp_path, script))
        with pytest.raises(SpeechError, match=message):
            list(voice.stream("hello", Cancel()))
    with pytest.raises(ProgramMissingError, match="apt-get install flite"):
        list(FliteSynthesiser(16_000, str(tmp_path / "none")).stream("hello", Cancel()))
