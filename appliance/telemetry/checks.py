"""What `wren doctor` asks of this machine. Each check answers with facts, never raises, and says what to do."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Final, Literal

from appliance.errors import ApplianceError
from models import Store
from models.errors import ModelsError

if TYPE_CHECKING:
    from appliance.app import Wren
    from appliance.engines import EngineOpener
    from appliance.settings import Settings

__all__ = ["Check", "check_denoiser", "check_settings", "environment", "run_checks"]

Status = Literal["ok", "warn", "fail"]

LEAST_MEMORY_BYTES: Final = 700 << 20
"""What the loop takes with every engine open, and some air."""
LEAST_DISK_BYTES: Final = 200 << 20
SELF_TEST: Final = "turn on the kitchen lights"
LIBRARIES: Final = ("onnxruntime", "numpy", "hassil", "home-assistant-intents", "pymicro-wakeword", "soundfile", "soxr")
PROGRAM_TIMEOUT_S: Final = 10.0
DENOISE_TEST_SAMPLES: Final = 16_000
LEAST_DENOISED_DB: Final = 10.0
"""Of steady noise; DTLN takes some 30 dB off."""


@dataclass(frozen=True, slots=True)
class Check:
    """One answer."""

    name: str
    status: Status
    detail: str
    fix: str | None = None
    """What to do about it; None where nothing is wrong."""

    def record(self) -> dict[str, object]:
        """As `wren doctor --json` prints it."""
        return asdict(self)


def check_settings() -> tuple[Settings, tuple[Check, ...]]:
    """The settings that hold, and what is to be said of their file; the defaults where it cannot be used, so that all
    else is still looked at."""
    from appliance.settings import Settings, load_settings

    try:
        loaded = load_settings()
    except ApplianceError as error:
        fix = "mend that line (wren config check says when it is right); until then the defaults are checked here"
        return Settings(), (Check("settings", "fail", str(error), fix),)
    if loaded.warnings:
        told = tuple(Check("settings", "warn", warning, f"see: {loaded.path}") for warning in loaded.warnings)
        return loaded.settings, told
    detail = str(loaded.path) if loaded.exists else f"the defaults: there is no {loaded.path}"
    return loaded.settings, (Check("settings", "ok", detail),)


def run_checks(store: Store, settings: Settings, open_wren: Callable[[], Wren]) -> Iterator[Check]:
    """All checks, cheap ones first; `open_wren` is called once, for the self-test."""
    yield _python()
    yield _cores()
    yield _memory()
    yield from _libraries()
    yield _espeak()
    yield _flite()
    yield _disk(store)
    yield from _packs(store, settings.models.recogniser)
    yield from _machine()
    yield _scheduling()
    yield _front_end(settings)
    yield from _mqtt(settings)
    yield from _self_test(open_wren, settings)


def _python() -> Check:
    return Check("python", "ok", f"{platform.python_version()} on {platform.machine()}, {platform.platform()}")


def _cores() -> Check:
    from hw.cpu import usable_cores

    cores = usable_cores()
    if cores < 2:
        return Check("cores", "warn", f"{cores} usable", "Wren wants two cores; with one, replies come later")
    return Check("cores", "ok", f"{cores} usable")


def _memory() -> Check:
    pages, size = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    available = pages * size
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - a pseudo-file
            kilobytes = next(line.split()[1] for line in file if line.startswith("MemAvailable"))
        available = int(kilobytes) * 1024
    except (OSError, StopIteration, ValueError):
        pass  # the sysconf figure stands: it leaves the page cache out and so errs on the careful side
    detail = f"{available >> 20} MiB available"
    if available < LEAST_MEMORY_BYTES:
        return Check("memory", "warn", detail, f"close something: Wren takes up to {LEAST_MEMORY_BYTES >> 20} MiB")
    return Check("memory", "ok", detail)


def _libraries() -> Iterator[Check]:
    found, missing = [], []
    for name in LIBRARIES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    yield Check("libraries", "ok" if not missing else "fail", ", ".join(found), _fix_missing(missing))


def _fix_missing(missing: list[str]) -> str | None:
    return f"missing: {', '.join(missing)}; run: make setup" if missing else None


def _espeak() -> Check:
    path = shutil.which("espeak-ng")
    if path is None:
        return Check("espeak-ng", "fail", "not installed", "run: sudo apt-get install espeak-ng")
    try:
        run = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check("espeak-ng", "fail", str(error), "run: sudo apt-get install --reinstall espeak-ng")
    return Check("espeak-ng", "ok", run.stdout.strip().split("  ")[0])


def _flite() -> Check:
    """Optional."""
    from appliance.voice.asr.protocol import Cancel
    from appliance.voice.tts.flite import RATE_HZ, FliteSynthesiser, find_flite

    path = find_flite()
    if path is None:
        fix = "for a voice to fall back to: sudo apt-get install flite (28 MB)"
        return Check("flite", "warn", "not installed (optional)", fix)
    try:
        samples = sum(piece.size for piece in FliteSynthesiser(RATE_HZ).stream("hello", Cancel()))
    except ApplianceError as error:
        return Check("flite", "warn", str(error), "run: sudo apt-get install --reinstall flite")
    return Check("flite", "ok", f"{path}, the voice to fall back to; {samples / RATE_HZ:.2f} s of speech")


def _disk(store: Store) -> Check:
    folder = next((p for p in (store.root, *store.root.parents) if p.is_dir()), store.root)
    free = shutil.disk_usage(folder).free
    detail = f"{free >> 20} MiB free for models in {store.root}"
    if free < LEAST_DISK_BYTES:
        return Check("disk", "warn", detail, "make room, or set WREN_MODELS_DIR to another disk")
    return Check("disk", "ok", detail)


def _packs(store: Store, recogniser: str | None) -> Iterator[Check]:
    """Those that Wren runs on, and the recogniser that was chosen where it is another."""
    for pack in (*store.catalogue.pack, *(pack for pack in store.catalogue.extra if pack.id == recogniser)):
        name = f"pack {pack.id}"
        licence = f"{pack.task}, {pack.licence}"
        if pack.is_library:
            yield Check(name, "ok", f"{licence}, comes with Wren")
            continue
        try:
            store.open(pack.id)
        except ModelsError as error:
            yield Check(name, "fail", str(error), f"run: wren models fetch {pack.id}")
        else:
            yield Check(name, "ok", f"{licence}, every checksum right")


def _machine() -> Iterator[Check]:
    """What runs here and why; heat; what would make it faster."""
    from hw.power import advise_power, read_power
    from hw.probe import Root, probe
    from hw.thermal import LIMIT_C, UP_AFTER, Heat, HeatState, advise, read_zones, step

    machine = probe()
    for warning in machine.warnings:
        yield Check("machine", "warn", warning, "see: wren probe --verbose")
    zones = read_zones(Root())
    state = HeatState()
    for _ in range(UP_AFTER):  # one reading alone may be a glitch, and changes no level
        state = step(state, zones.readings, zones.limit_c)
    hottest = max((row.value for row in zones.readings), default=None)
    if hottest is not None:
        cool = state.heat is Heat.NORMAL
        detail = f"{hottest:.0f} °C, slowed down by the kernel from {zones.limit_c or LIMIT_C:.0f} °C"
        yield Check("heat", "ok" if cool else "warn", detail, None if cool else advise(state.heat).text)
    for row in advise_power(machine, read_power(Root())):
        yield Check("power", "warn", row.text, None if row.command is None else f"run: {row.command}")


def _scheduling() -> Check:
    from appliance.audio.realtime import may_be_realtime

    found = may_be_realtime()
    if found.how == "usual":
        return Check("scheduling", "warn", str(found), "install rtkit, or run Wren with LimitRTPRIO=10 (systemd)")
    return Check("scheduling", "ok", f"sound's threads run with {found}")


def _front_end(settings: Settings) -> Check:
    """Whether Wren's own voice can be taken out of what its microphone hears."""
    from appliance.audio.frontend import FrontEndMissingError, open_processors

    if not settings.audio.echo_cancelling:
        return Check("front end", "ok", "off (see: wren config show audio.echo_cancelling)")
    try:
        open_processors()
    except FrontEndMissingError as error:
        return Check("front end", "warn", str(error), "run: make setup")
    return Check("front end", "ok", "echo is cancelled while Wren sounds")


def check_denoiser(settings: Settings, opener: EngineOpener) -> Iterator[Check]:
    """Whether what the settings ask for takes noise away; nothing is said where nothing is asked for."""
    import numpy as np

    from appliance.audio.frame import RATE_HZ, level_dbfs
    from appliance.audio.frontend import DenoiserMissingError
    from appliance.denoising import denoiser_for
    from appliance.recording import samples_frames

    opened = denoiser_for(opener, settings.audio.denoise)
    if opened is None:
        return
    noise = np.random.default_rng(0).normal(0.0, 0.01, DENOISE_TEST_SAMPLES).astype(np.float32)
    frames = list(samples_frames(noise))
    try:
        denoiser = opened()
        for frame in frames:  # it gets used to the noise
            denoiser.push(frame)
        started_s = time.thread_time()
        left = [denoiser.push(frame).samples for frame in frames]
        share = (time.thread_time() - started_s) / (noise.size / RATE_HZ)
    except (DenoiserMissingError, ModelsError) as error:
        fix = f"run: wren models fetch {settings.audio.denoise}, or: wren config set audio.denoise off"
        yield Check("denoiser", "warn", f"{error}; the sound goes on undenoised", fix)
        return
    gone_db = level_dbfs(noise) - level_dbfs(np.concatenate(left))
    detail = f"{settings.audio.denoise} takes {gone_db:.0f} dB off noise, for {share:.1%} of a core"
    if gone_db < LEAST_DENOISED_DB:
        yield Check("denoiser", "warn", detail, f"run: wren models verify {settings.audio.denoise}")
    else:
        yield Check("denoiser", "ok", detail)


def _mqtt(settings: Settings) -> Iterator[Check]:
    """Where Wren speaks MQTT, and how to look at it. Connects to nothing: the page says whether the link is up."""
    from appliance.mqtt.broker import EmbeddedBroker, find_mosquitto
    from appliance.mqtt.client_id import state_folder

    mqtt = settings.mqtt
    if not mqtt.enabled or (mqtt.host is None and not mqtt.embedded):
        yield Check("mqtt", "ok", "off (see: wren config show mqtt)")
    elif mqtt.host is not None:
        yield Check("mqtt", "ok", f"broker {mqtt.host}, topics under {mqtt.prefix}/; to look: wren mqtt status")
    elif find_mosquitto() is None:
        fix = "sudo apt-get install mosquitto, or: wren config set mqtt.host YOUR-BROKER"
        yield Check("mqtt", "warn", "no broker is set, and mosquitto, to run one, is not installed", fix)
    else:
        look = EmbeddedBroker(state_folder(), port=mqtt.port).state().subscribe
        yield Check("mqtt", "ok", f"a broker of Wren's own, for this machine alone; to look at it: {look}")


def _engines(wren: Wren) -> Iterator[Check]:
    """What runs each task, and where that is less than planned."""
    from appliance.engines import PARTS_SERVED
    from models.engines.rungs import quarantine_of

    for task, choice in wren.plan.tasks.items():
        if task in PARTS_SERVED and task not in wren.opener.settled:
            continue  # what could not be opened, and was told of
        runs = wren.opener.settled.get(task, choice)
        how = " ".join(part for part in (runs.backend, runs.precision, runs.scheme) if part)
        origin = f"measured: {choice.ms:.0f} ms" if choice.ms is not None else "by rule"
        yield Check(f"engine {task}", "ok", f"{how}, {runs.threads} thread{'s' * (runs.threads > 1)}; {origin}")
    yield from _fallbacks(wren)
    lost = wren.lost_sentences
    for sentence in lost:
        yield Check("home", "warn", sentence, "correct it in the home file")
    for sentence in (*(told for told in wren.degraded if told not in lost), *wren.plan.warnings):
        yield Check("engines", "warn", sentence, "see: wren plan --explain")
    for entry in quarantine_of(wren.store).entries():
        fault = f"{entry.task} on {entry.rung}: {entry.kind}, {entry.count} times ({entry.reason})"
        yield Check("quarantine", "warn", fault, "to try it again: wren engines prune --faults")


def _fallbacks(wren: Wren) -> Iterator[Check]:
    """What Wren does without, step by step, when it cannot keep up, and what it cannot do here."""
    yield Check("fallbacks", "ok", "where too much is asked: " + ", ".join(step.name for step in wren.strain.steps))
    for sentence in wren.advice:
        yield Check("fallbacks", "ok", sentence)


def _self_test(open_wren: Callable[[], Wren], settings: Settings) -> Iterator[Check]:
    """Speak a sentence, recognise it and understand it, with the engines that serve."""
    started_s = time.perf_counter()
    try:
        wren = open_wren()
    except (ApplianceError, ModelsError) as error:
        yield Check("start", "fail", str(error), "see the checks above")
        return
    yield Check("start", "ok", f"ready after {time.perf_counter() - started_s:.2f} s")
    with wren:
        # First: what it opens is among the engines then.
        yield from check_denoiser(settings, wren.opener)
        yield from _engines(wren)
        try:
            yield from _speak_and_hear(wren)
        except (ApplianceError, ModelsError) as error:
            yield Check("self-test", "fail", str(error), "see the checks above")


def _speak_and_hear(wren: Wren) -> Iterator[Check]:
    import numpy as np

    from appliance.audio.frame import RATE_HZ
    from appliance.audio.resample import MonoResampler

    started_s = time.perf_counter()
    synthesiser = wren.synthesiser()
    speech = synthesiser.whole(SELF_TEST)
    made_s, long_s = time.perf_counter() - started_s, speech.size / synthesiser.rate_hz
    yield Check("speech", "ok", f"{long_s:.2f} s of speech in {made_s:.2f} s (real-time factor {made_s / long_s:.2f})")

    resampler = MonoResampler(synthesiser.rate_hz)
    recogniser = wren.recogniser()
    recogniser.push_samples(np.concatenate((resampler.push(speech), resampler.flush())))
    started_s = time.perf_counter()
    text = recogniser.flush().text
    heard_s = time.perf_counter() - started_s
    factor = heard_s / (recogniser.samples / RATE_HZ)
    intent = wren.assistant.match(text).intent
    detail = f"heard “{text}” in {heard_s:.2f} s (real-time factor {factor:.2f}), intent {intent}"
    if intent != "HassTurnOn":
        yield Check("hearing", "fail", detail, f"“{SELF_TEST}” was spoken; run: wren models verify")
    else:
        yield Check("hearing", "ok", detail)


def environment() -> dict[str, str]:
    """Facts for a bug report."""
    return {"wren": metadata.version("wren"), "python": sys.version.split()[0], "machine": platform.machine()}
