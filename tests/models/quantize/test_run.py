"""The whole of it on a small real model, and NVIDIA's own parser on the results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from models import Store
from models.engines.base import Engine
from models.errors import CatalogueError, PackMissingError
from models.quantize import VARIANTS, Material, Options, Score, open_quantised, quantisable, quantise
from tests.models.conftest import StoreOf
from tests.models.engines.nvidia import needed

pytestmark = pytest.mark.models

STATIC = tuple(v for v in VARIANTS if v.name in ("fp16", "int8-trt"))


class FakeJudge:
    """Gives scores in turn; the first is FP32's."""

    def __init__(self, *scores: float) -> None:
        self.scores = list(scores)
        self.engines: list[set[str]] = []

    def __call__(self, engines: Mapping[str, Engine]) -> Score:
        self.engines.append(set(engines))
        value = self.scores.pop(0) if len(self.scores) > 1 else self.scores[0]
        return Score("made", value, True, 1)


@pytest.fixture
def store(real_store: Store, tmp_path: Path) -> Store:
    """The real packs, with room of its own for what is made of them."""
    for name in ("packs", "artefacts"):
        (tmp_path / name).symlink_to(real_store.root / name)
    return Store(tmp_path)


def test_variants_that_pass_are_kept_with_their_report(store: Store) -> None:
    judge = FakeJudge(0.10)
    (report,) = quantise(store, "silero-vad", {"vad": judge}, Material(), options=Options(repeats=1, variants=STATIC))
    assert [v.variant for v in report.variants] == ["fp16", "int8-trt"]
    assert all(v.passed for v in report.variants)
    assert report.chosen == {"cpu": "fp32", "tensorrt": "int8-trt"}
    assert report.variants[0].parts[0].snr_db > 40
    artefact, reports = open_quantised(store, "silero-vad")
    assert reports == (report,)
    artefact.verify()
    assert artefact.path("vad", "int8-trt").stat().st_size == report.variants[1].parts[0].bytes


@pytest.mark.slow
def test_a_variant_that_fails_the_gate_gets_more_float_and_is_refused_in_the_end(store: Store) -> None:
    judge = FakeJudge(0.10, 0.50)
    int8 = tuple(v for v in VARIANTS if v.name == "int8-trt")
    (report,) = quantise(store, "silero-vad", {"vad": judge}, Material(), options=Options(repeats=1, variants=int8))
    (variant,) = report.variants
    assert not variant.passed
    assert variant.parts[0].kept_float
    assert next(iter(variant.parts[0].sensitivity_db)) in variant.parts[0].kept_float
    assert report.chosen["tensorrt"] == "fp32"
    assert not open_quantised(store, "silero-vad")[0].manifest.files


def test_what_was_not_quantised_says_so(store: Store) -> None:
    with pytest.raises(PackMissingError, match="wren models quantize silero-vad"):
        open_quantised(store, "silero-vad")
    with pytest.raises(CatalogueError, match="cannot be quantised"):
        quantise(store, "wake-alexa", {}, Material())


@pytest.mark.parametrize("pack_id", quantisable())
def test_nvidias_parser_takes_what_is_meant_for_tensorrt(store_of: StoreOf, pack_id: str) -> None:
    """TensorRT-RTX parses without a GPU."""
    trt = needed("tensorrt_rtx")
    artefact, _ = open_quantised(store_of(pack_id), pack_id)
    meant = [f for f in artefact.manifest.files if f.precision in ("fp16", "int8-trt")]
    assert {f.precision for f in meant} == {"fp16", "int8-trt"}
    # The voice's front end has sizes that depend on its values; it stays on the CPU.
    for file in (f for f in meant if f.part != "frontend"):
        logger = trt.Logger(trt.Logger.ERROR)
        builder = trt.Builder(logger)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, logger)
        parsed = parser.parse(artefact.path(file.part, file.precision).read_bytes())
        assert parsed, f"{file.name}: {parser.get_error(0)}"
