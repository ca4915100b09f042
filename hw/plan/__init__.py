"""What to run on a machine: `make_plan(machine, needs, timings, user) -> Plan`."""

from __future__ import annotations

from hw.plan.make import make_plan, thread_counts
from hw.plan.types import (
    Backend,
    Candidate,
    Choice,
    Chunks,
    Fallback,
    Memory,
    Override,
    Overrides,
    Plan,
    Precision,
    Scheme,
    TaskNeed,
    Timing,
    Timings,
)

__all__ = [
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
    "make_plan",
    "thread_counts",
]
