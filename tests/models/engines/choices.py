"""Plans' choices, made by hand."""

from __future__ import annotations

from hw.plan import Choice, Fallback

PACK = "moonshine-base-en"
PARTS = ("encoder", "decoder")


def choice(
    backend: str = "ort-cpu",
    precision: str = "int8",
    scheme: str | None = None,
    *,
    task: str = "asr",
    model: str = PACK,
    fallback: Fallback | None = None,
) -> Choice:
    """A plan's choice for a task."""
    if precision == "int8" and scheme is None:
        scheme = "qdq" if backend == "tensorrt" else "s8-dynamic"
    return Choice(
        task=task, model=model, backend=backend, precision=precision, scheme=scheme, threads=1, measured=False,
        reason="", rule="", ms=None, times_faster_than_worst=None, chunks=None, memory_mb=0, fallback=fallback,
        candidates=(), passed_over=(),
    )  # type: ignore[arg-type]  # fmt: skip
