"""What goes into a plan and what comes out: needs, timings, overrides, choices. Plain data, ready for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "Affinity",
    "Backend",
    "Candidate",
    "Choice",
    "Chunks",
    "Fallback",
    "Memory",
    "Override",
    "Overrides",
    "Plan",
    "Precision",
    "Scheme",
    "TaskNeed",
    "Timing",
    "Timings",
    "Workers",
]

Backend = Literal["tensorrt", "ort-cuda", "ort-cpu", "numpy", "tflite"]
Precision = Literal["fp32", "fp16", "int8"]
Scheme = Literal["qdq", "u8s8", "s8-dynamic", "reduce-range"]
"""How INT8 is done. `qdq`: symmetric Q/DQ nodes, TensorRT's. `u8s8`: static, u8 activations and s8 weights, what VNNI
multiplies. `s8-dynamic`: s8 weights, activations quantised at each call. `reduce-range`: weights of 7 bits. Without
VNNI usual weights may saturate; ours, of every kind, are scaled so that they cannot."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a task."""

    backend: Backend
    precision: Precision
    scheme: Scheme | None
    """None unless INT8."""
    threads: int

    def __str__(self) -> str:
        how = f" {self.scheme}" if self.scheme else ""
        return f"{self.backend} {self.precision}{how}, {self.threads} thread{'s' if self.threads > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Timing:
    """What a candidate took on this machine."""

    candidate: Candidate
    ms: float
    """Time of a usual job of the task (see `TaskNeed.job`)."""
    frame_ms: float | None = None
    """Time a frame of sound made, for a voice."""
    waits: float | None = None
    """Seconds in which its threads waited for each second in which they computed; None where nobody looked."""
    at_once: tuple[tuple[int, float], ...] = ()
    """(how many of them ran at once, jobs that were done a second), where that was measured."""


Timings = Mapping[str, tuple[Timing, ...]]
"""Task -> what was measured here. Empty where nothing was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNeed:
    """What a task asks of a machine."""

    task: str
    model: str
    """Its model pack."""
    backends: tuple[Backend, ...] = ("tensorrt", "ort-cuda", "ort-cpu", "numpy")
    """What can run it at all."""
    weights_mb: Mapping[Precision, float] = field(default_factory=dict)
    """Size of the weights; where a precision is missing it is estimated from another."""
    int8_schemes: tuple[Scheme, ...] = ()
    """INT8 artefacts that exist already; others would have to be made."""
    int8_failed: tuple[Scheme, ...] = ()
    """Kinds of INT8 that did not pass the model's accuracy gate, while others did."""
    int8_gate: bool | None = None
    """Whether INT8 passed the model's accuracy gate; None: nobody has looked, and so it is not used."""
    fixed: Candidate | None = None
    """The one way in which it comes, where there is no choice."""
    max_threads: int = 4
    why: str = ""
    """A reason that lies in the model, for the plan: of its `fixed` way, or of no INT8 whatever its gate said."""
    job: str = ""
    """What `Timing.ms` is the time of."""
    hop_ms: float | None = None
    """Sound in one frame that a voice makes."""
    overlap_frames: int = 0
    """Frames that each chunk makes again, for its margins."""
    window_samples: int | None = None
    """Samples taken at a time, for what listens all the time."""


@dataclass(frozen=True, slots=True)
class Override:
    """What the user has set for one task; None leaves the choice to the plan."""

    backend: Backend | None = None
    precision: Precision | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the user has set."""

    tasks: Mapping[str, Override] = field(default_factory=dict)
    max_threads: int | None = None
    """For every engine: heat may ask for it (see `hw.thermal`)."""
    memory_mb: int | None = None
    """What Wren may take in all."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """How much is done at a time."""

    unit: Literal["frames", "samples"]
    sizes: tuple[int, ...]
    """The first ones; the last holds for all that follow."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """What runs when the choice cannot be built or fails."""

    backend: Backend
    precision: Precision
    scheme: Scheme | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How one task is to run, and why."""

    task: str
    model: str
    backend: Backend
    precision: Precision
    scheme: Scheme | None
    threads: int
    measured: bool
    """Whether this very way was timed on this machine; else it is chosen by rule."""
    reason: str
    rule: str
    """Name of the row of the table that decided."""
    ms: float | None
    """What it took, where measured."""
    times_faster_than_worst: float | None
    """Against the slowest candidate measured."""
    chunks: Chunks | None
    memory_mb: int
    fallback: Fallback | None
    candidates: tuple[Timing, ...]
    """Everything that was measured."""
    passed_over: tuple[str, ...]
    """Better rungs of the ladder and why they are not taken."""
    cores: tuple[int, ...] = ()
    """Cores that its threads are kept on; empty: any."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The budget. Estimates, in MB."""

    budget_mb: int | None
    """What Wren may take; None where the machine's memory is unknown."""
    planned_mb: int
    """What the choices and the program itself take."""
    fits: bool | None


@dataclass(frozen=True, slots=True)
class Workers:
    """How many recognitions may run at once."""

    recognitions: int
    """At least 1."""
    waits: float
    """Seconds of wait for each second of compute that it was reckoned with."""
    measured: bool
    """Whether so many were tried on this machine; else by rule."""
    reason: str


@dataclass(frozen=True, slots=True)
class Affinity:
    """Which cores do what; both empty where the kernel may put every thread anywhere."""

    engines: tuple[int, ...]
    """Cores that engines' threads are kept on."""
    sound: tuple[int, ...]
    """Cores that the threads of the sound devices are kept on."""
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How every task is to run on a machine."""

    tasks: Mapping[str, Choice]
    memory: Memory
    machine: str
    """Digest of the machine that it is for."""
    warnings: tuple[str, ...]
    workers: Workers
    affinity: Affinity

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return dataclasses.asdict(self)
