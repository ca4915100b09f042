"""What to run on a machine: `make_plan(machine, needs, timings, user) -> Plan`."""

from __future__ import annotations

from hw.plan.make import make_plan, thread_counts
from hw.plan.types import (
    Affinity,
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
    Workers,
)
from hw.plan.workers import rule_count

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
    "make_plan",
    "rule_count",
    "thread_counts",
]
