"""What a machine is: the result of a probe."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["FIELDS", "AudioDevice", "Cluster", "Core", "Disk", "Machine"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cores of one kind that belong together."""

    name: str | None
    """Kind of the cores, as `Cortex-A76`."""
    cores: tuple[int, ...]
    """Their numbers."""


@dataclass(frozen=True, slots=True)
class Core:
    """A processor as the kernel counts them."""

    number: int
    speed: int | None
    """Beside the machine's fastest core, which has 1024; None where nothing tells."""
    siblings: tuple[int, ...]
    """Numbers of those that share one core's units (SMT), itself among them."""


@dataclass(frozen=True, slots=True)
class AudioDevice:
    """A sound card as ALSA lists it."""

    card: int
    id: str
    name: str
    capture: int | None
    """Streams it can record; None where the list of streams cannot be read."""
    playback: int | None
    """Streams it can play."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk that holds the root file system."""

    device: str
    kind: str | None
    """`nvme`, `ssd`, `hdd`, `card` (SD or eMMC), `virtual`."""
    read_mb_s: float | None
    """Sequential reading past the cache, measured on the living machine only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Facts about a machine. None is unknown, or that there is no such thing: `warnings` says which are unknown.

    The first group has the names and meanings of `shared/boards/*/expected.json`.
    """

    board: str | None = None
    """The board's name in its device tree, as `nvidia,p3768-0000+p3767-0005`."""
    arch: str | None = None
    cpu_cores: int | None = None
    """Cores that run (`/proc/cpuinfo`)."""
    chip: str | None = None
    soc: str | None = None
    module: str | None = None
    carrier: str | None = None
    model: str | None = None
    sm: str | None = None
    """CUDA's compute capability, as `8.7`."""
    gpu: str | None = None
    gpu_memory: str | None = None
    """`shared` on a Jetson, else the card's own, as `12288 MiB`."""
    l4t: str | None = None
    jetpack_from_l4t: str | None = None
    jetpack_metapackage: str | None = None
    cuda: str | None = None
    """The CUDA runtime that is installed."""
    cudnn: str | None = None
    tensorrt: str | None = None
    """Version of the library (libnvinfer) that is installed."""
    driver: str | None = None
    """Version of NVIDIA's driver."""
    system_python: str | None = None
    os: str | None = None
    precision_support: Mapping[str, bool] | None = None
    """fp16, int8, fp8, bf16 on the GPU."""
    tensor_cores: bool | None = None
    dla_count: int | None = None
    ram_total_kib: int | None = None
    ram_nominal_gb: int | None = None
    """What the memory is sold as."""
    power_mode: str | None = None
    """Name of nvpmodel's mode."""
    cpu: Mapping[str, str | bool | None] | None = None
    """Name and the instruction sets that decide about INT8: on ARM dotprod, i8mm, sve, bf16; on x86 avx2, avx512f,
    avx512_vnni, avx_vnni, amx_int8."""

    cpu_clusters: tuple[Cluster, ...] | None = None
    cores: tuple[Core, ...] | None = None
    """Those that are online, and which of them are fast; None where sysfs does not tell."""
    usable_cores: int | None = None
    """Cores this process may use (affinity, control groups); on the living machine only."""
    ram_available_kib: int | None = None
    swap_total_kib: int | None = None
    tensorrt_bindings: str | None = None
    """Version of TensorRT's Python bindings that are installed; may differ from the library's."""
    onnxruntime: str | None = None
    """Version of onnxruntime in this environment; on the living machine only."""
    runtimes: Mapping[str, str | None] | None = None
    """What was tried on the living machine: onnxruntime's providers, each on a tiny model, and `tensorrt`. None means
    that it works, a text what went wrong. None for a machine that is not this one."""
    thermal: Mapping[str, float] | None = None
    """Zone -> degrees Celsius, in the order of the zones; zones without a reading are left out."""
    max_temp_c: float | None = None
    throttled: bool | None = None
    """Whether the kernel is slowing something down to cool it."""
    governors: Mapping[str, str] | None = None
    """CPU frequency policy -> governor."""
    gpu_max_mhz: int | None = None
    disk: Disk | None = None
    audio: tuple[AudioDevice, ...] | None = None

    warnings: tuple[str, ...] = ()
    """Why facts are unknown, and what disagrees, one sentence each."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Fact -> where it came from, or why there is none."""

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return dataclasses.asdict(self)

    @property
    def is_jetson(self) -> bool:
        """Whether it is one of NVIDIA's Tegra modules."""
        return self.chip is not None and self.chip.startswith("tegra")

    @property
    def digest(self) -> str:
        """16 hex digits of what decides about speed and choice; temperatures and free memory are not among it."""
        stable = {name: getattr(self, name) for name in _STABLE}
        text = json.dumps(stable, sort_keys=True, default=dataclasses.asdict)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


FIELDS: Final = tuple(f.name for f in dataclasses.fields(Machine) if f.name not in ("warnings", "sources"))
"""Names of the facts."""

_STABLE: Final = (
    "arch",
    "cpu",
    "cpu_cores",
    "usable_cores",
    "chip",
    "module",
    "sm",
    "gpu",
    "gpu_memory",
    "cuda",
    "tensorrt",
    "tensorrt_bindings",
    "driver",
    "onnxruntime",
    "runtimes",
    "ram_total_kib",
    "power_mode",
    "governors",
)
