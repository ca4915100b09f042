"""How many threads NumPy multiplies with. Its OpenBLAS takes all cores, and on a busy machine waits for them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

__all__ = ["set_blas_threads"]

_SETTERS: Final = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")
"""As NumPy's own wheels name it, and as OpenBLAS does."""


def set_blas_threads(count: int) -> bool:
    """Let matrix products of this process take so many threads; whether a BLAS that can be told was found.

    Two threads on two cores that others use too made a decoder's step take half a second instead of 20 ms (measured):
    the threads spin for each other. It holds for the whole process, whose other products are small.
    """
    told = False
    for path in _loaded("openblas"):
        library = ctypes.CDLL(path)
        for name in _SETTERS:
            setter = getattr(library, name, None)
            if setter is not None:
                setter(ctypes.c_int(count))
                told = True
                break
    return told


def _loaded(word: str) -> set[str]:
    """Libraries of this process with a word in their file's name."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:  # no Linux: the BLAS stays as it is
        return set()
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6}
    return {path for path in paths if word in Path(path).name and Path(path).is_file()}
