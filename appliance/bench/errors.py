"""What can go wrong while measuring."""

from __future__ import annotations

from appliance.errors import ApplianceError

__all__ = ["BaselineError", "BenchError", "MaterialError"]


class BenchError(ApplianceError):
    """Base of the bench's errors."""

    code = "bench"


class MaterialError(BenchError):
    """The recordings, or the list that describes them, are absent or not of the agreed shape."""

    code = "bench.material"


class BaselineError(BenchError):
    """The program that Wren is compared with cannot be set up, failed, or wrote something else than agreed."""

    code = "bench.baseline"
