"""TensorRT: builds engines in a process of their own, keeps them, checks them, and runs them as streams.

Nothing here loads TensorRT or CUDA when it is imported; `docs/tensorrt.md` tells how the modules belong together.
"""

from __future__ import annotations
