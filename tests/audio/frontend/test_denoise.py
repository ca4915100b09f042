"""Denoised sound keeps its times, however late it comes; it is for wake words alone; a fault costs no sound."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, Frame, Samples
from appliance.audio.frontend import Denoiser, DenoiserMissingError, Ears, PlayedTap
from appliance.audio.frontend.cleaning import Cleaner, EarFrames
from appliance.audio.frontend.denoise import DELAY_FRAMES, DELAY_S, SHARE, DtlnTensors, QuietPath, dtln
from appliance.audio.frontend.webrtc import open_processors
from tests.audio.frontend.rooms import LEAD_MS, babble, echo_of, frames_of, hum

NAMES = DtlnTensors()
START_S, FIRST = 100.0, 7
"""Of a microphone that has been on for a while."""


class FakeMask:
    """A fake first network: takes nothing away."""

    def run(self, inputs: Mapping[str, npt.NDArray[np.float32]]) -> Mapping[str, npt.NDArray[np.float32]]:
        assert inputs[NAMES.magnitudes].shape == (1, 1, 257)
        return {NAMES.share: np.ones((1, 1, 257), dtype=np.float32)}

    def reset(self) -> None:
        return None


class FakeWave:
    """A fake second network: each frame's quarter of the sound, times `loudness`; its own frames count."""

    def __init__(self, *, loudness: float = 1.0, fails_after: int | None = None, grows: float = 0.0) -> None:
        self.loudness, self.fails_after, self.grows = loudness, fails_after, grows
        self.runs = self.heard = 0

    def run(self, inputs: Mapping[str, npt.NDArray[np.float32]]) -> Mapping[str, npt.NDArray[np.float32]]:
        if self.fails_after is not None and self.runs >= self.fails_after:
            raise RuntimeError("it fell over")
        self.runs += 1
        self.heard += 1
        share = np.float32(0.25 * self.loudness * (1.0 + self.grows * self.heard))
        return {NAMES.mended: inputs[NAMES.wave] * share}

    def reset(self) -> None:
        self.heard = 0


def fake_denoiser(**how: float) -> Denoiser:
    return Denoiser(FakeMask(), FakeWave(**how))  # type: ignore[arg-type]


def _frames(sound: Samples, first: int = FIRST, start_s: float = START_S) -> list[Frame]:
    return [Frame(one, start_s + at * FRAME_S, first + at) for at, one in enumerate(frames_of(sound))]


def _times(frames: list[Frame]) -> list[tuple[int, float]]:
    return [(frame.seq, round(frame.time_s, 6)) for frame in frames]


def _joined(frames: list[Frame]) -> Samples:
    return np.concatenate([frame.samples for frame in frames])


# ---- the denoiser -----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(size=st.integers(0, 4000), sizes=st.lists(st.integers(1, 700), min_size=1, max_size=6))
def test_any_chunking_gives_the_same_sound_bit_for_bit(size: int, sizes: list[int]) -> None:
    """With networks whose state grows from frame to frame, so that a frame more or less would be heard."""
    sound = babble(0.25)[:size]

    def made(cuts: list[int]) -> Samples:
        part, out, at, number = dtln(FakeMask(), FakeWave(grows=0.1)), [], 0, 0
        while at < sound.size:
            step = cuts[number % len(cuts)]
            out.append(part.push(sound[at : at + step]))
            at, number = at + step, number + 1
        return np.concatenate([*out, part.flush()])

    whole = made([max(1, size)])
    assert whole.shape == sound.shape
    assert np.array_equal(made(sizes), whole)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 17, 100])
def test_each_frame_comes_out_thirty_milliseconds_later_with_its_own_time_and_number(count: int) -> None:
    denoiser, frames = fake_denoiser(), _frames(babble(1.0)[: count * FRAME_SAMPLES])
    out = [denoiser.push(frame) for frame in frames]
    before, denoised = out[:DELAY_FRAMES], [*out[DELAY_FRAMES:], *denoiser.flush()]
    assert all(not frame.samples.any() for frame in before)
    assert _times(before + denoised)[: len(out)] == [
        (FIRST - DELAY_FRAMES + at, round(START_S - DELAY_S + at * FRAME_S, 6)) for at in range(len(out))
    ]
    assert _times(denoised[-count:] if count else []) == _times(frames)
    if count:
        np.testing.assert_allclose(_joined(denoised[-count:]), _joined(frames), atol=1e-5)


def test_a_flush_and_a_reset_leave_nothing_behind() -> None:
    denoiser, frames = fake_denoiser(grows=0.05), _frames(babble(0.3))
    first = [*(denoiser.push(frame) for frame in frames), *denoiser.flush()]
    again = [*(denoiser.push(frame) for frame in frames), *denoiser.flush()]
    denoiser.push(frames[0])
    denoiser.reset()
    third = [*(denoiser.push(frame) for frame in frames), *denoiser.flush()]
    assert np.array_equal(_joined(first), _joined(again))
    assert np.array_equal(_joined(first), _joined(third))


# ---- the path of wake words --------------------------------------------------------------------------------------


def _path(path: QuietPath, frames: list[Frame], *, as_it_is: bool = False) -> list[Frame]:
    return [path.push(frame, as_it_is=as_it_is) for frame in frames]


def test_a_fault_costs_no_sound_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """The times go on without a hole, and what comes after the fault is the microphone's own sound."""
    frames = _frames(babble(0.5))
    path = QuietPath(fake_denoiser(loudness=0.5, fails_after=20), share=1.0)
    wake = _path(path, frames)
    assert path.fault == "it fell over"
    assert "it fell over" in caplog.text
    assert len(caplog.records) == 1
    wanted = [(FIRST - DELAY_FRAMES + at, round(START_S - DELAY_S + at * FRAME_S, 6)) for at in range(len(frames))]
    assert _times(wake) == wanted
    # 20 frames of the networks are 16 of ours.
    np.testing.assert_allclose(_joined(wake[5:15]), 0.5 * _joined(frames[2:12]), atol=1e-5)
    assert np.array_equal(_joined(wake[20:]), _joined(frames[17:-DELAY_FRAMES]))


def test_after_a_fault_and_a_hole_nothing_is_late_any_more() -> None:
    path = QuietPath(fake_denoiser(fails_after=5))
    _path(path, _frames(babble(0.2)))
    later = _frames(babble(0.1, seed=3), first=500, start_s=200.0)
    assert _path(path, later) == later


def test_a_hole_in_the_numbers_begins_anew() -> None:
    """What was heard before a microphone was away is neither given after it nor mixed into it."""
    path, fresh = QuietPath(fake_denoiser(grows=0.01)), QuietPath(fake_denoiser(grows=0.01))
    _path(path, _frames(babble(0.3, seed=5)))
    later = _frames(babble(0.2), first=900, start_s=300.0)
    wake = _path(path, later)
    assert np.array_equal(_joined(wake), _joined(_path(fresh, later)))
    assert _times(wake)[0] == (900 - DELAY_FRAMES, 300.0 - DELAY_S)


def test_what_is_to_be_heard_as_it_is_comes_as_late_and_untouched() -> None:
    frames = _frames(babble(0.3))
    wake = _path(QuietPath(fake_denoiser(loudness=0.0)), frames, as_it_is=True)
    assert wake[DELAY_FRAMES:] == frames[:-DELAY_FRAMES]


def test_between_denoised_and_as_it_is_the_sound_is_faded() -> None:
    tone = (0.1 * np.sin(2 * np.pi * 200 * np.arange(16_000) / 16_000)).astype(np.float32)
    path = QuietPath(fake_denoiser(loudness=0.0), share=1.0)
    wake = [path.push(frame, as_it_is=30 <= at < 60) for at, frame in enumerate(_frames(tone))]
    heard = _joined(wake)
    assert np.abs(np.diff(heard)).max() < 1.2 * np.abs(np.diff(tone)).max()
    assert not _joined(wake[10:33]).any()
    assert np.array_equal(_joined(wake[34:63]), _joined(_frames(tone)[31:60]))
    assert not _joined(wake[64:]).any()


# ---- all of the front end ---------------------------------------------------------------------------------------


def _heard(cleaner: Cleaner, sound: Samples, played: Samples | None = None) -> list[EarFrames]:
    references = [None] * len(frames_of(sound)) if played is None else frames_of(played)
    return [
        cleaner.push(frame, None if far is None or not far.any() else far)
        for frame, far in zip(_frames(sound), references, strict=True)
    ]


@pytest.mark.parametrize("path", ["speech", "voice"])
def test_recogniser_and_voice_activity_hear_the_microphone_bit_for_bit_and_at_once(path: str) -> None:
    sound = babble(1.0) + hum(16_000)
    frames = [getattr(heard, path) for heard in _heard(Cleaner(open_processors(), fake_denoiser(loudness=0.1)), sound)]
    assert np.array_equal(_joined(frames), sound)
    assert _times(frames) == _times(_frames(sound))


@pytest.mark.parametrize("path", ["speech", "voice"])
def test_with_an_echo_they_hear_what_they_heard_without_a_denoiser(path: str) -> None:
    played = babble(3.0, seed=4)
    played[:16_000] = 0.0
    sound = echo_of(played, LEAD_MS + 20.0) + babble(3.0) + hum(48_000)
    plain = _heard(Cleaner(open_processors()), sound, played)
    quiet = _heard(Cleaner(open_processors(), fake_denoiser(loudness=0.1)), sound, played)
    for one, other in zip(plain, quiet, strict=True):
        assert np.array_equal(getattr(one, path).samples, getattr(other, path).samples)


def test_while_wren_sounds_wake_words_are_heard_as_without_a_denoiser_thirty_milliseconds_later() -> None:
    """Without the gain control, which knows another past."""
    played = babble(3.0, seed=4)
    sound = echo_of(played, LEAD_MS + 20.0) + hum(48_000)
    cleaner, plain, sounding = Cleaner(None), [], []
    for frame, far in zip(_frames(sound), frames_of(played), strict=True):
        plain.append(cleaner.push(frame, far if far.any() else None).wake)
        sounding.append(cleaner.cancelling)
    quiet = [heard.wake for heard in _heard(Cleaner(None, fake_denoiser(loudness=0.0)), sound, played)]
    # The first frame of each stretch is faded in.
    inside = [at for at in range(1, len(plain) - DELAY_FRAMES) if sounding[at] and sounding[at - 1]]
    silent = [at for at in range(1, len(plain) - DELAY_FRAMES) if not sounding[at] and not sounding[at - 1]]
    assert len(inside) > 200
    assert len(silent) > 10
    for at in inside:
        assert np.array_equal(quiet[at + DELAY_FRAMES].samples, plain[at].samples)
        assert quiet[at + DELAY_FRAMES].time_s == plain[at].time_s
    for at in silent:
        np.testing.assert_allclose(quiet[at + DELAY_FRAMES].samples, (1 - SHARE) * plain[at].samples, atol=1e-6)


def test_wake_words_hear_it_denoised_by_half() -> None:
    sound = babble(1.0)
    out = [heard.wake for heard in _heard(Cleaner(None, fake_denoiser(loudness=0.5)), sound)]
    assert _times(out)[DELAY_FRAMES:] == _times(_frames(sound))[:-DELAY_FRAMES]
    np.testing.assert_allclose(_joined(out[10:]), 0.75 * sound[7 * 160 : -3 * 160], atol=1e-5)


def test_reset_makes_it_hear_as_for_the_first_time() -> None:
    sound, cleaner = babble(0.5), Cleaner(None, fake_denoiser(grows=0.02))
    first = _joined([heard.wake for heard in _heard(cleaner, sound)])
    cleaner.reset()
    assert np.array_equal(_joined([heard.wake for heard in _heard(cleaner, sound)]), first)


def test_ears_without_echo_cancelling_denoise_all_the_same() -> None:
    ears, sound = Ears(PlayedTap(), wanted=False, denoiser=lambda: fake_denoiser(loudness=0.5)), babble(0.5)
    frames = [ears.push(frame) for frame in _frames(sound)]
    assert np.array_equal(_joined([frame.speech for frame in frames]), sound)
    np.testing.assert_allclose(_joined([frame.wake for frame in frames][10:]), 0.75 * sound[1120:-480], atol=1e-5)
    assert ears.state().noisy is None


def _missing() -> Denoiser:
    raise DenoiserMissingError("no pack here; run: wren models fetch dtln")


def test_a_missing_denoiser_is_told_and_the_sound_goes_on_at_once(caplog: pytest.LogCaptureFixture) -> None:
    ears = Ears(PlayedTap(), wanted=False, denoiser=_missing)
    frame = _frames(babble(0.1))[0]
    assert ears.push(frame).wake is frame
    noisy = ears.state().noisy
    assert noisy is not None
    assert "wren models fetch dtln" in noisy
    assert "not denoised" in caplog.text


def test_a_denoiser_that_fails_is_told() -> None:
    ears = Ears(PlayedTap(), denoiser=lambda: fake_denoiser(fails_after=3))
    for frame in _frames(babble(0.2)):
        ears.push(frame)
    noisy = ears.state().noisy
    assert noisy is not None
    assert "it fell over" in noisy
    assert ears.state().missing is None
