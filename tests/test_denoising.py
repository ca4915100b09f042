"""DTLN itself, over engines opened by the plan: what it takes away and leaves, and what is said where it is absent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from appliance.app import Wren, WrenSettings
from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, Samples, level_dbfs
from appliance.audio.frontend import Denoiser, DenoiserMissingError, Ears, PlayedTap
from appliance.audio.frontend.denoise import DELAY_FRAMES, HOP_SAMPLES, WINDOW_SAMPLES
from appliance.audio.resample import MonoResampler
from appliance.bench.sound import read_sound
from appliance.denoising import denoiser_for, open_denoiser
from appliance.engines import EngineOpener
from appliance.planning import current_plan
from appliance.recording import hear, samples_frames
from appliance.running import LocalAudio
from appliance.service import Service
from appliance.settings import Settings
from appliance.telemetry.checks import check_denoiser
from appliance.voice.session import Session
from appliance.voice.wake import WakeDetector, WakeSettings
from hw.probe import Machine
from models import Store
from models.catalogue import DenoiseParameters
from models.errors import FetchError

pytestmark = pytest.mark.models

MACHINE = Machine(arch="x86_64", chip="x86_64", cpu={"name": "x", "avx2": True}, cpu_cores=4, usable_cores=4)
WANTED = Settings.model_validate({"audio": {"denoise": "dtln"}})


@pytest.fixture(scope="module")
def packs() -> Path:
    """Where the store keeps the packs, DTLN's among them."""
    store = Store()
    try:
        store.ensure("dtln")
    except FetchError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"DTLN's pack is not here and cannot be fetched: {error}")
    return store.root / "packs"


@pytest.fixture
def store(packs: Path, tmp_path: Path) -> Store:
    """The real pack, with a quarantine of our own."""
    (tmp_path / "packs").symlink_to(packs)
    return Store(tmp_path)


@pytest.fixture
def without(tmp_path: Path) -> Store:
    """A store with every pack but DTLN's."""
    real = Store()
    (tmp_path / "packs").mkdir()
    for pack in (real.root / "packs").iterdir():
        if pack.name != "dtln":
            (tmp_path / "packs" / pack.name).symlink_to(pack)
    for name in ("artefacts", "quantised"):
        (tmp_path / name).symlink_to(real.root / name)
    return Store(tmp_path)


def opener(store: Store) -> EngineOpener:
    return EngineOpener(store, current_plan(store, MACHINE, denoise=True))


@pytest.fixture
def opened(store: Store) -> Iterator[EngineOpener]:
    made = opener(store)
    yield made
    made.close()


def _denoised(denoiser: Denoiser, sound: Samples) -> Samples:
    """Each sample in its place; as much as went in, up to a whole frame."""
    out = [denoiser.push(frame) for frame in samples_frames(sound)][DELAY_FRAMES:] + list(denoiser.flush())
    return np.concatenate([frame.samples for frame in out])


def _si_sdr_db(reference: Samples, estimate: Samples) -> float:
    target = reference * (np.dot(estimate, reference) / np.dot(reference, reference))
    left = estimate - target
    return float(10 * np.log10(np.dot(target, target) / np.dot(left, left)))


def test_it_is_planned_for_only_where_it_is_wanted(store: Store) -> None:
    assert "denoise" not in current_plan(store, MACHINE).tasks
    choice = current_plan(store, MACHINE, denoise=True).tasks["denoise"]
    assert (choice.model, choice.backend, choice.precision, choice.threads) == ("dtln", "ort-cpu", "fp32", 1)
    assert denoiser_for(opener(store), "off") is None


def test_frames_are_those_that_the_pack_names(store: Store) -> None:
    parameters = store.catalogue.get("dtln").parameters_as(DenoiseParameters)
    assert (parameters.window_samples, parameters.hop_samples) == (WINDOW_SAMPLES, HOP_SAMPLES)


def test_steady_noise_is_nearly_gone(opened: EngineOpener) -> None:
    noise = np.random.default_rng(0).normal(0.0, 0.03, 3 * RATE_HZ).astype(np.float32)
    out = _denoised(open_denoiser(opened), noise)
    assert level_dbfs(out[RATE_HZ:]) < level_dbfs(noise) - 25.0
    assert opened.settled["denoise"].backend == "ort-cpu"


@pytest.mark.shared
def test_speech_in_kitchen_noise_comes_nearer_to_the_clean_recording(opened: EngineOpener, shared: Path) -> None:
    speech = read_sound(shared / "speech" / "commands" / "oww_turn_on_the_office_lights.flac")
    noise = np.resize(read_sound(shared / "speech" / "noise" / "kitchen_a.flac"), speech.size)
    said = slice(round(0.52 * RATE_HZ), round(2.11 * RATE_HZ))
    noise *= np.sqrt(np.mean(speech[said] ** 2) / np.mean(noise**2) * 10**-0.5)
    mixed = (speech + noise).astype(np.float32)
    out = _denoised(open_denoiser(opened), mixed)
    # In its place, too: a sample earlier or later costs most of it.
    assert _si_sdr_db(speech[said], out[said]) > _si_sdr_db(speech[said], mixed[said]) + 3.0


@pytest.mark.shared
def test_a_wake_word_has_the_same_time_with_a_denoiser(opened: EngineOpener, shared: Path) -> None:
    sound = read_sound(next(iter(sorted((shared / "speech" / "wake" / "alexa").glob("*.flac")))))
    sound = np.concatenate((np.zeros(RATE_HZ, np.float32), sound, np.zeros(RATE_HZ // 2, np.float32)))
    times = []
    for ears in (Ears(PlayedTap()), Ears(PlayedTap(), denoiser=lambda: open_denoiser(opened))):
        detector = WakeDetector(WakeSettings(("alexa",)))
        hits = [hit for frame in samples_frames(sound) for hit in detector.push(ears.push(frame).wake)]
        assert len(hits) == 1
        times.append(hits[0].time_s)
    assert times[1] == pytest.approx(times[0], abs=0.06)


class _Listening:
    """Wren whose sessions hear through a front end with DTLN, as `LocalAudio`'s do."""

    def __init__(self, wren: Wren) -> None:
        self._wren = wren

    def session(self, *arguments: Any, **options: Any) -> Session:
        ears = Ears(PlayedTap(), denoiser=denoiser_for(self._wren.opener, "dtln"))
        return self._wren.session(*arguments, **options, ears=ears)


@pytest.mark.slow
def test_an_utterance_begins_and_ends_at_the_times_it_does_without(store: Store) -> None:
    """Wake word, command and reply, on the simulated clock: detectors that hear late must not tell late times."""
    with Wren.open(WrenSettings(denoise=True)) as wren:
        wren.wait_for_bias()
        voice = wren.synthesiser()
        resampler = MonoResampler(voice.rate_hz)
        said = np.concatenate((resampler.push(voice.whole("Okay nabu! What time is it?")), resampler.flush()))
        sound = np.random.default_rng(0).normal(0.0, 5e-4, said.size + RATE_HZ).astype(np.float32)
        sound[RATE_HZ:] += np.float32(0.3) * said
        plain, denoised = (
            hear(cast(Wren, one), "it", samples_frames(sound), wake=True, clock=time.thread_time)
            for one in (wren, _Listening(wren))
        )
        assert plain.error is denoised.error is None
        assert plain.wake == denoised.wake == "okay_nabu"
        one, other = plain.utterances[0], denoised.utterances[0]
        assert other.text == one.text
        assert one.speech_start_s is not None
        assert other.speech_start_s == pytest.approx(one.speech_start_s, abs=0.035)  # a window of voice activity
        ends = [trace.times_ms()["end_of_speech"] for trace in (one, other)]
        assert ends[1] == pytest.approx(ends[0], abs=20)


def test_two_microphones_share_the_weights_and_not_the_sound(opened: EngineOpener) -> None:
    sound = np.random.default_rng(1).normal(0.0, 0.05, 50 * FRAME_SAMPLES).astype(np.float32)
    alone = _denoised(open_denoiser(opened), sound)
    one, other = open_denoiser(opened), open_denoiser(opened)
    assert opened.opened("denoise") is opened.opened("denoise")
    out = []
    for frame in samples_frames(sound):
        out.append(one.push(frame))
        other.push(replace(frame, samples=np.zeros(FRAME_SAMPLES, np.float32)))
    out = [*out[DELAY_FRAMES:], *one.flush()]
    assert np.array_equal(np.concatenate([frame.samples for frame in out]), alone)


def test_numpy_gives_the_same_and_takes_over_in_the_middle_of_the_sound(
    store: Store, opened: EngineOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    from models.engines.onnx_cpu import OrtCpuStream
    from models.errors import EngineError

    sound = np.random.default_rng(2).normal(0.0, 0.05, 60 * FRAME_SAMPLES).astype(np.float32)
    wanted = _denoised(open_denoiser(opened), sound)
    made, run, left = opener(store), OrtCpuStream.run, [40]

    def failing(self: OrtCpuStream, inputs: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise EngineError("ONNX Runtime fell over")
        return run(self, inputs)  # type: ignore[arg-type]

    denoiser = open_denoiser(made)
    monkeypatch.setattr(OrtCpuStream, "run", failing)
    np.testing.assert_allclose(_denoised(denoiser, sound), wanted, atol=1e-5)
    assert made.settled["denoise"].backend == "numpy"
    assert any("fell over" in sentence for sentence in made.degraded)
    made.close()


def test_a_missing_pack_says_how_to_fetch_it(without: Store) -> None:
    with pytest.raises(DenoiserMissingError, match="wren models fetch dtln"):
        open_denoiser(opener(without))


def test_a_damaged_pack_is_not_used(store: Store, packs: Path, tmp_path: Path) -> None:
    (tmp_path / "packs").unlink()
    whole = store.catalogue.get("dtln")
    folder = tmp_path / "packs" / "dtln" / next((packs / "dtln").iterdir()).name
    folder.mkdir(parents=True)
    for file in whole.files:
        (folder / file.name).write_bytes(b"\0" * file.size)
    with pytest.raises(DenoiserMissingError, match="damaged"):
        open_denoiser(opener(store))


def test_the_doctor_says_what_it_takes_away_and_costs(opened: EngineOpener) -> None:
    (check,) = check_denoiser(WANTED, opened)
    assert check.status == "ok"
    assert "dB off noise" in check.detail
    assert list(check_denoiser(Settings(), opened)) == []


def test_the_doctor_warns_where_it_is_not_here(without: Store) -> None:
    (check,) = check_denoiser(WANTED, opener(without))
    assert check.status == "warn"
    assert "undenoised" in check.detail
    assert check.fix is not None
    assert "wren models fetch dtln" in check.fix


def test_wren_runs_without_its_pack_and_the_page_says_so(without: Store) -> None:
    with Wren.open(WrenSettings(denoise=True), store=without, fetch=False) as wren:
        service = Service(wren)
        local = LocalAudio(service, WANTED)
        try:
            told = [sentence for sentence in local.state().degraded if "not denoised" in sentence]
            assert len(told) == 1
            assert "wren models fetch dtln" in told[0]
        finally:
            local.close()
            service.close()
