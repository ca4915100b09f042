"""A fake device with the fake TensorRT on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from models.engines.base import StateTensor
from models.engines.tensorrt.engine import EngineOptions, TensorRtEngine
from models.engines.tensorrt.pool import Pool, PoolSizes
from models.engines.tensorrt.profiles import Padding, Profile
from tests.models.engines import fake_tensorrt
from tests.models.engines.tensorrt.made import cache_graph, plan_of, sum_graph


@pytest.fixture
def fake() -> Iterator[Any]:
    """The fake TensorRT, without faults before and after."""
    module: Any = fake_tensorrt
    module.faults = module.Faults()
    yield module
    module.faults = module.Faults()


@pytest.fixture
def fake_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of ours find the fake under TensorRT's name; the builder hands `sys.path` on."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "tensorrt.py").write_text(
        "from tests.models.engines.fake_tensorrt import *\nfrom tests.models.engines.fake_tensorrt import __version__\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delenv("WREN_FAKE_TENSORRT", raising=False)


@pytest.fixture
def device(fake: Any) -> Any:
    return fake.FakeDevice()


@pytest.fixture
def pool(device: Any) -> Pool:
    return Pool(device, PoolSizes(limit=64 << 20, keep=1 << 20))


@pytest.fixture
def sum_onnx(tmp_path: Path) -> Path:
    return sum_graph(tmp_path / "sum.onnx")


@pytest.fixture
def cache_onnx(tmp_path: Path) -> Path:
    return cache_graph(tmp_path / "cache.onnx")


MakeEngine = Callable[..., TensorRtEngine]


@pytest.fixture
def make_engine(fake: Any, pool: Pool) -> Iterator[MakeEngine]:
    """Builds and opens engines; every one must have given everything back when it is closed."""
    made: list[TensorRtEngine] = []

    def make(
        onnx_path: Path,
        states: Sequence[StateTensor] = (),
        profiles: Sequence[Profile] = (),
        padding: Padding | None = None,
        graphs: int = 8,
    ) -> TensorRtEngine:
        engine = TensorRtEngine(
            plan_of(onnx_path, profiles),
            states,
            trt=fake,
            pool=pool,
            name=onnx_path.stem,
            padding=padding,
            options=EngineOptions(graphs=graphs),
        )
        made.append(engine)
        return engine

    yield make
    device: Any = pool.device
    device.broken = None
    for engine in made:
        engine.close()
    assert pool.used_bytes == 0
    assert pool.pinned_bytes == 0
    assert device.handles == 0
