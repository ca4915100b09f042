"""Our own graphs on the fake TensorRT: golden checks, the same words, and what a further session costs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.voice.asr.moonshine import MoonshineModel, MoonshineRecogniser
from appliance.voice.asr.tokenizer import Tokenizer
from models import Store
from models.engines.base import Engine
from models.engines.tensorrt.build_process import BuildReport, BuildRequest, build
from models.engines.tensorrt.builder import BuildLimits
from models.engines.tensorrt.cache import EngineCache
from models.engines.tensorrt.engine import TensorRtEngine
from models.engines.tensorrt.key import BuildSettings
from models.engines.tensorrt.pool import Pool, PoolSizes
from models.engines.tensorrt.provide import BuildAt, Provider
from models.engines.tensorrt.sources import PARTS, PRECISIONS, golden, reference_engines, spec_for
from models.progress import Progress
from models.quantize.sound import read_wav
from tests.models.conftest import StoreOf

pytestmark = pytest.mark.models

MB = 1 << 20
ASR = "moonshine-base-en"


@pytest.fixture
def provider(fake: Any, tmp_path: Path) -> Iterator[Provider]:
    def in_process(
        request: BuildRequest, limits: BuildLimits, progress: Progress, cancelled: Callable[[], bool]
    ) -> BuildReport:
        return build(request, fake, lambda message: None, threading.Event())

    device = fake.FakeDevice()
    pool = Pool(device, PoolSizes(limit=1 << 30, keep=16 << 20))
    at = BuildAt(fake, device, module=None, l4t=None)
    yield Provider(at, EngineCache(tmp_path / "engines"), pool, runner=in_process)
    pool.trim()
    assert device.handles == 0


def _engine(provider: Provider, store: Store, pack_id: str, part: str, precision: str) -> TensorRtEngine:
    spec = spec_for(store, pack_id, part, precision, BuildSettings())
    return provider.get(spec, golden(store, pack_id, part, precision))


QUICK = {("silero-vad", "vad", "fp32"), ("silero-vad", "vad", "fp16"), ("piper-en-us-joe", "flow", "fp32")}
ALL = [(pack, part, precision) for pack, parts in PARTS.items() for part in parts for precision in PRECISIONS]


@pytest.mark.parametrize(
    ("pack_id", "part", "precision"),
    [pytest.param(*row, marks=() if row in QUICK else pytest.mark.slow) for row in ALL],
)
def test_every_graph_passes_its_self_check(
    store_of: StoreOf, provider: Provider, pack_id: str, part: str, precision: str
) -> None:
    """Against the FP32 graph on the CPU, with states, beams, padding and graphs on the way."""
    with contextlib.closing(_engine(provider, store_of(pack_id), pack_id, part, precision)):
        found = [row for row in provider.cache.rows() if row.status == "ready"]
        assert found


def _hear(store: Store, engines: dict[str, Engine]) -> str:
    pack = store.open(ASR)
    tokenizer = Tokenizer.load(pack.path("tokenizer.bin"))
    recogniser = MoonshineRecogniser(MoonshineModel(engines["encoder"], engines["decoder"], tokenizer))
    recogniser.push_samples(read_wav(pack.path("beckett.wav"))[: 5 * 16_000])
    return recogniser.flush().text


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_recogniser_hears_the_same_words_and_copies_an_utterances_keys_once(
    store_of: StoreOf, provider: Provider, precision: str
) -> None:
    store = store_of(ASR)
    references = reference_engines(store, ASR)
    wanted = _hear(store, references)
    assert len(wanted.split()) > 5
    engines: dict[str, Engine] = {
        part: _engine(provider, store, ASR, part, precision) for part in ("encoder", "decoder")
    }
    device: Any = provider.pool.device
    before = device.copied_in
    assert _hear(store, engines) == wanted
    frames, width = 5.5 * 16_000 / 384, 4 if precision == "fp32" else 2
    cross = 16 * 8 * frames * 52 * width
    assert device.copied_in - before < 1.1 * cross + 5.5 * 16_000 * 4 + 100_000
    for engine in (*engines.values(), *references.values()):
        engine.close()


@pytest.mark.slow
def test_a_further_session_costs_less_than_10_mb(store_of: StoreOf, provider: Provider) -> None:
    """State, inputs and outputs of all five graphs in 16 bits, for a command of 3 s; without activations, which all
    sessions share, and without what a driver takes for itself."""
    rows = [(pack, part) for pack, parts in PARTS.items() for part in parts]
    engines = {row: _engine(provider, store_of(row[0]), *row, "fp16") for row in rows}
    streams = []
    costs: list[dict[str, int]] = []
    for _ in range(2):
        cost = {}
        for (pack, part), engine in engines.items():
            before = provider.pool.used_bytes
            streams.append(engine.stream())
            # The encoder's first is of 2 s; the decoder's last are beams, which no session of today asks for.
            for feed in golden(store_of(pack), pack, part, "fp16").feeds[: {"encoder": 1, "decoder": 6}.get(part)]:
                streams[-1].run(feed)
            cost[part] = provider.pool.used_bytes - before
        costs.append(cost)
    print({part: f"{cost / MB:.1f} MB" for part, cost in costs[1].items()})
    assert sum(costs[1].values()) < 10 * MB
    for engine in engines.values():
        engine.close()
