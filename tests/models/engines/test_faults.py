"""Faults in the middle of an utterance on the real recogniser: the words are those of an engine that did not fail."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from models import Store
from models.convert import open_artefact
from models.engines.base import Engine
from models.engines.ladder import LadderEngine, Rung, RungChanged, TimeLimits
from models.engines.numpy import NumpyEngine
from models.engines.onnx_cpu import OrtCpuEngine
from models.engines.onnx_cuda import OrtCudaEngine, Target
from models.errors import EngineError
from models.quantize import open_quantised
from tests.models.conftest import StoreOf
from tests.models.engines.choices import PACK
from tests.models.engines.fakes import Break, FakeFaults, FakeFaultyEngine, rung
from tests.models.engines.hearing import CLIPS, clip, hear, tokens

pytestmark = [pytest.mark.models, pytest.mark.shared]

PATIENT = TimeLimits(open_s=60, first_s=60, run_s=3)
"""A hang is waited for; a busy machine must not look like one."""
STATES = Store().catalogue.get(PACK).state_tensors("decoder")
HOST_AS_DEVICE = Target("CPUExecutionProvider", "cpu", (("CPUExecutionProvider", {}),))


@pytest.fixture(scope="module")
def fp32(real_store: Store) -> Iterator[dict[str, Engine]]:
    artefact = open_artefact(real_store, PACK)
    engines: dict[str, Engine] = {
        "encoder": OrtCpuEngine(artefact.path("encoder", "fp32")),
        "decoder": OrtCpuEngine(artefact.path("decoder", "fp32"), STATES),
        "numpy": NumpyEngine(artefact.path("decoder", "fp32"), STATES),
        "numpy encoder": NumpyEngine(artefact.path("encoder", "fp32")),
    }
    yield engines
    for engine in engines.values():
        engine.close()


class Uncloseable:
    """An engine that a ladder may close, and others go on using."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.inputs = engine.inputs  # type: ignore[attr-defined]
        self.states = engine.states  # type: ignore[attr-defined]
        self.stream = engine.stream

    def close(self) -> None:
        return None


def _ladder(
    upper: Engine, faults: FakeFaults, lower: Engine, events: list[RungChanged], limits: TimeLimits | None = PATIENT
) -> LadderEngine:
    rungs: list[Rung] = [
        rung("faulty", lambda: FakeFaultyEngine(Uncloseable(upper), faults), limits=limits),
        rung("lower", lambda: Uncloseable(lower), limits=None),
    ]
    return LadderEngine("asr.decoder", rungs, STATES, listener=events.append)


@pytest.mark.parametrize("lower", ["decoder", "numpy"])
@pytest.mark.parametrize(("how", "lose_state"), [("raise", False), ("raise", True), ("nan", False), ("hang", False)])
def test_the_words_are_the_same_when_the_decoder_fails_in_the_middle(
    real_store: Store, shared: Path, fp32: dict[str, Engine], how: Break, lose_state: bool, lower: str
) -> None:
    sound = clip(shared, CLIPS[0])
    right = hear(real_store, fp32["encoder"], fp32["decoder"], sound)
    assert len(right) > 5
    faults, events = FakeFaults(at=4, how=how, lose_state=lose_state), []
    ladder = _ladder(fp32["decoder"], faults, fp32[lower], events)
    try:
        assert hear(real_store, fp32["encoder"], ladder, sound) == right
    finally:
        faults.release.set()
    assert [e.carried for e in events] == ["replay" if how == "hang" or lose_state else "state"]
    # And the next utterance is heard by the rung below from its start.
    before = faults.runs
    assert hear(real_store, fp32["encoder"], ladder, sound) == right
    assert faults.runs == before
    ladder.close()


def test_an_encoder_that_fails_is_no_matter_either(real_store: Store, shared: Path, fp32: dict[str, Engine]) -> None:
    sound = clip(shared, CLIPS[0])
    right = hear(real_store, fp32["encoder"], fp32["decoder"], sound)
    upper = FakeFaultyEngine(Uncloseable(fp32["encoder"]), FakeFaults(at=0, how="nan"))
    lower = rung("b", lambda: Uncloseable(fp32["encoder"]), limits=None)
    encoder = LadderEngine("asr.encoder", [rung("a", lambda: upper, limits=PATIENT), lower])
    assert hear(real_store, encoder, fp32["decoder"], sound) == right
    encoder.close()


def test_from_half_to_full_precision_in_mid_utterance(
    real_store: Store, store_of: StoreOf, shared: Path, fp32: dict[str, Engine]
) -> None:
    """FP16 encoder and decoder (through the GPU engine's binding, on the CPU): states and keys change their width."""
    halves, _ = open_quantised(store_of(PACK), PACK)
    paths = {part: halves.path(part, "fp16") for part in ("encoder", "decoder")}
    encoder = OrtCudaEngine(paths["encoder"], target=HOST_AS_DEVICE)
    decoder = OrtCudaEngine(paths["decoder"], STATES, target=HOST_AS_DEVICE)
    assert {s.dtype for s in decoder.states} == {"float16"}
    sound = clip(shared, CLIPS[0])
    right = hear(real_store, encoder, decoder, sound)
    for how in ("raise", "nan"):
        events: list[RungChanged] = []
        faults = FakeFaults(at=3, how=how)  # type: ignore[arg-type]
        ladder = _ladder(decoder, faults, fp32["decoder"], events)
        assert hear(real_store, encoder, ladder, sound) == right
        assert [e.carried for e in events] == ["state"]
        ladder.close()
    encoder.close()
    decoder.close()


def test_infinite_sound_is_refused_by_all_and_blamed_on_none(fp32: dict[str, Engine]) -> None:
    ladder = LadderEngine(
        "asr.encoder",
        [rung(name, lambda name=name: Uncloseable(fp32[name]), limits=None) for name in ("encoder", "numpy encoder")],
    )
    with pytest.raises(EngineError, match=r"asr\.encoder on encoder: output cross_k\.0 is not finite"):
        ladder.stream().run({"audio": np.full((1, 16_000), np.nan, np.float32)})
    assert ladder.state().serving == "encoder"
    ladder.close()


# ---- all rungs say the same -------------------------------------------------------------------------


def test_numpy_hears_what_onnxruntime_hears(real_store: Store, shared: Path, fp32: dict[str, Engine]) -> None:
    for name in CLIPS[:2]:
        sound = clip(shared, name)
        right = hear(real_store, fp32["encoder"], fp32["decoder"], sound)
        assert hear(real_store, fp32["numpy encoder"], fp32["numpy"], sound) == right


@pytest.mark.slow
def test_every_rung_hears_the_same_words(real_store: Store, shared: Path, fp32: dict[str, Engine]) -> None:
    artefact = open_artefact(real_store, PACK)
    int8 = (OrtCpuEngine(artefact.path("encoder", "int8")), OrtCpuEngine(artefact.path("decoder", "int8"), STATES))
    bound = (
        OrtCudaEngine(artefact.path("encoder", "fp32"), target=HOST_AS_DEVICE),
        OrtCudaEngine(artefact.path("decoder", "fp32"), STATES, target=HOST_AS_DEVICE),
    )
    pairs = {"ort-cpu int8": int8, "binding": bound, "numpy fp32": (fp32["numpy encoder"], fp32["numpy"])}
    for name in CLIPS:
        sound = clip(shared, name)
        right = hear(real_store, fp32["encoder"], fp32["decoder"], sound)
        assert {rung_: hear(real_store, *pair, sound) for rung_, pair in pairs.items()} == dict.fromkeys(pairs, right)


# ---- memory -----------------------------------------------------------------------------------------


def _rss_mb() -> float:
    return psutil.Process().memory_info().rss / 1e6


def _streams(
    store: Store, engines: tuple[Engine, Engine], sound: np.ndarray[Any, Any], count: int
) -> Callable[[], list[object]]:
    """Opens a session's hearing so many times and lets each hear a command."""

    def work() -> list[object]:
        held: list[object] = []
        for _ in range(count):
            encoder, decoder = (engine.stream() for engine in engines)
            tokens(store, encoder, decoder, sound)
            held += [encoder, decoder]
        return held

    return work


@pytest.mark.parametrize("kind", ["ort-cpu", "numpy", "ladder"])
def test_a_further_session_takes_less_than_ten_megabytes(
    real_store: Store, shared: Path, fp32: dict[str, Engine], kind: str
) -> None:
    engines = (fp32["encoder"], fp32["decoder"]) if kind != "numpy" else (fp32["numpy encoder"], fp32["numpy"])
    if kind == "ladder":
        rungs = [rung("a", lambda: Uncloseable(fp32["encoder"]), limits=None)]
        engines = (
            LadderEngine("asr.encoder", rungs),
            _ladder(fp32["decoder"], FakeFaults(), fp32["numpy"], [], limits=None),
        )
    sound, sessions = clip(shared, CLIPS[2])[:, :24_000], 5
    work = _streams(real_store, engines, sound, sessions)
    work()  # what is taken once is taken now
    gc.collect()
    before_mb = _rss_mb()
    held = work()
    gc.collect()
    assert (_rss_mb() - before_mb) / sessions < 10
    assert len(held) == 2 * sessions


@pytest.mark.parametrize("kind", ["ort-cpu", "numpy"])
def test_fifty_sessions_opened_and_let_go_leave_nothing(
    real_store: Store, shared: Path, fp32: dict[str, Engine], kind: str
) -> None:
    base = fp32["decoder"] if kind == "ort-cpu" else fp32["numpy"]
    ladder = LadderEngine("asr.decoder", [rung("a", lambda: Uncloseable(base), limits=PATIENT)], STATES)
    cross = fp32["encoder"].stream().run({"audio": clip(shared, CLIPS[2])})
    feed = {"ids": np.array([[1]]), "rows": np.zeros(1, np.int64), **cross}

    def sessions(count: int) -> None:
        for _ in range(count):
            stream = ladder.stream()
            for _ in range(2):
                stream.run(feed)

    sessions(8)
    gc.collect()
    before_mb = _rss_mb()
    sessions(50)
    gc.collect()
    assert _rss_mb() - before_mb < 5
    assert ladder._ladder.watchdog.workers == 1
    ladder.close()
