"""Recordings in every usual and unusual form, and everything that is not one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio.files import RawFormat, read_blocks, write_wav
from appliance.audio.floor import FloorMeter, noise_blocks
from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, level_dbfs
from appliance.audio.resample import MonoResampler, mix_to_mono
from appliance.errors import AudioFormatError


def _tone(rate_hz: int, seconds: float = 0.5, hz: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(int(rate_hz * seconds)) / rate_hz)).astype(np.float32)


def _read(path: Path, raw: RawFormat | None = None) -> np.ndarray:
    return np.concatenate(list(read_blocks(path, raw)))


@pytest.mark.parametrize(
    ("rate_hz", "channels", "subtype", "container"),
    [
        (16_000, 1, "PCM_16", "WAV"),
        (8_000, 1, "PCM_U8", "WAV"),
        (96_000, 2, "PCM_16", "WAV"),
        (44_100, 2, "PCM_24", "WAV"),
        (48_000, 6, "FLOAT", "WAV"),
        (22_050, 1, "DOUBLE", "WAV"),
        (16_000, 1, "ULAW", "WAV"),
        (48_000, 2, "PCM_24", "FLAC"),
        (48_000, 1, "VORBIS", "OGG"),
        (16_000, 1, "PCM_16", "W64"),
        (16_000, 1, "PCM_16", "RF64"),
    ],
)
def test_usual_and_unusual_formats_are_heard(
    tmp_path: Path, rate_hz: int, channels: int, subtype: str, container: str
) -> None:
    path = tmp_path / f"tone.{container.lower()}"
    sound = np.repeat(_tone(rate_hz)[:, None], channels, axis=1)
    soundfile.write(path, sound, rate_hz, subtype, format=container)
    heard = _read(path)
    assert heard.dtype == np.float32
    assert abs(heard.size - RATE_HZ // 2) < 80
    middle = heard[2000:6000]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(middle.size)))
    assert np.argmax(spectrum) * RATE_HZ / middle.size == pytest.approx(440, abs=5)
    assert np.abs(middle).max() == pytest.approx(0.5, abs=0.05)


def test_raw_samples_are_read_as_told(tmp_path: Path) -> None:
    path = tmp_path / "tone.pcm"
    tone = (_tone(16_000) * 32767).astype("<i2")
    path.write_bytes(tone.tobytes())
    assert np.array_equal(np.rint(_read(path) * 32768).astype(int), tone)
    other = tmp_path / "tone.bin"
    other.write_bytes(np.repeat((_tone(48_000) * 32767).astype("<i2")[:, None], 2, axis=1).tobytes())
    assert abs(_read(other, RawFormat.parse("48000:2:s16le")).size - 8000) < 20


@pytest.mark.parametrize("text", ["", "fast", "16000:two", "16000:1:mp3", "1:2:3:4", "16000:0", "16000:99", "7"])
def test_a_wrong_raw_format_is_refused_with_a_reason(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"\0" * 100)
    with pytest.raises(AudioFormatError, match=r"raw format|channels|Hz"):
        _read(path, RawFormat.parse(text))


def _wav(path: Path, samples: np.ndarray, rate_hz: int = 16_000, subtype: str = "PCM_16") -> Path:
    soundfile.write(path, samples, rate_hz, subtype)
    return path


def test_bad_files_say_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "text.wav").write_text("this is no sound at all, only words " * 20)
    (tmp_path / "noise.flac").write_bytes(os.urandom(5000))
    (tmp_path / "header.wav").write_bytes(b"RIFF\x24\0\0\0WAVE")
    no_sound = _wav(tmp_path / "nothing.wav", np.empty(0, np.float32))
    whole = _wav(tmp_path / "whole.wav", _tone(16_000))
    (tmp_path / "cut.wav").write_bytes(whole.read_bytes()[:8000])
    flac = tmp_path / "whole.flac"
    soundfile.write(flac, _tone(16_000, 3.0), 16_000)
    (tmp_path / "cut.flac").write_bytes(flac.read_bytes()[: flac.stat().st_size // 2])
    bad = _tone(16_000)
    bad[4000] = np.nan
    nan = _wav(tmp_path / "nan.wav", bad, subtype="FLOAT")
    inf = _tone(16_000)
    inf[100] = np.inf
    infinite = _wav(tmp_path / "inf.wav", inf, subtype="FLOAT")
    expected = {
        tmp_path / "absent.wav": "no such file",
        tmp_path: "folder",
        tmp_path / "empty.wav": "empty",
        tmp_path / "text.wav": "not audio",
        tmp_path / "noise.flac": "not audio",
        tmp_path / "header.wav": "truncated",
        no_sound: "no sound",
        tmp_path / "cut.wav": "truncated",
        tmp_path / "cut.flac": "truncated|not audio",
        nan: "0.250 s is not a number",
        infinite: "not a number",
    }
    for path, words in expected.items():
        with pytest.raises(AudioFormatError, match=words) as caught:
            _read(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_streamed_wav_of_unknown_length_is_heard(tmp_path: Path) -> None:
    data = bytearray(_wav(tmp_path / "whole.wav", _tone(16_000)).read_bytes())
    data[4:8] = data[40:44] = b"\xff\xff\xff\xff"
    path = tmp_path / "streamed.wav"
    path.write_bytes(data)
    assert _read(path).size == 8000


@given(st.binary(max_size=300))
@settings(max_examples=60)
def test_any_bytes_are_heard_or_refused_but_never_crash(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "x.wav"
    path.write_bytes(b"RIFF" + data[:4].ljust(4, b"\0") + b"WAVE" + data)
    try:
        _read(path)
    except AudioFormatError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right


@given(st.sampled_from([8_000, 22_050, 44_100, 48_000, 96_000]), st.lists(st.integers(1, 3000), max_size=8))
@settings(max_examples=25, deadline=None)
def test_resampling_does_not_depend_on_chunking(rate_hz: int, cuts: list[int]) -> None:
    sound = _tone(rate_hz, 0.25)
    whole = MonoResampler(rate_hz)
    expected = np.concatenate((whole.push(sound), whole.flush()))
    chunked, at, got = MonoResampler(rate_hz), 0, []
    for cut in cuts:
        got.append(chunked.push(sound[at : at + cut]))
        at += cut
    got += [chunked.push(sound[at:]), chunked.flush()]
    assert np.allclose(np.concatenate(got), expected, atol=1e-6)


def test_channels_are_averaged() -> None:
    assert np.array_equal(mix_to_mono(np.array([[1, 0], [0.5, 0.5]], np.float32)), np.array([0.5, 0.5], np.float32))


def test_a_wav_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    assert write_wav(path, [_tone(22_050), _tone(22_050)], 22_050) == pytest.approx(1.0)
    sound, rate_hz = soundfile.read(path)
    assert (rate_hz, sound.size) == (22_050, 22_050)
    before = path.read_bytes()

    def breaking() -> object:
        yield _tone(22_050)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(AudioFormatError, match="cannot be written"):
        write_wav(path, breaking(), 22_050)  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(AudioFormatError, match="cannot be written"):
        write_wav(tmp_path / "no" / "where.wav", [], 22_050)


def test_tail_noise_follows_the_floor_within_bounds() -> None:
    meter = FloorMeter()
    assert meter.floor_dbfs() == -120
    generator = np.random.default_rng(3)
    for _ in range(100):
        meter.push(generator.standard_normal(FRAME_SAMPLES, dtype=np.float32) * np.float32(10 ** (-60 / 20)))
    for _ in range(300):
        meter.push(_tone(16_000, 0.01))
    assert meter.floor_dbfs() == pytest.approx(-60, abs=1.5)
    for asked, given_dbfs in ((-60.0, -60.0), (-20.0, -50.0), (-120.0, -80.0)):
        noise = np.concatenate(list(noise_blocks(asked, 1.0, seed=5)))
        assert noise.size == RATE_HZ
        assert level_dbfs(noise) == pytest.approx(given_dbfs, abs=0.3)
