"""Keeps ALSA and JACK from writing to stderr whenever PortAudio looks around: dozens of lines that mean nothing.

Their own error hooks are used, so that nothing of ours, or of other threads, is hidden with it.
"""

from __future__ import annotations

import ctypes
import logging
import os
from typing import Any, Final

__all__ = ["quieten"]

_LOG = logging.getLogger(__name__)

_ALSA_HANDLER: Final = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p
)
_JACK_HANDLER: Final = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


def _ignore(*_: Any) -> None:
    """Called from any thread, with the GIL taken by ctypes."""


# Kept for the life of the process: the libraries keep the pointers.
_ALSA_IGNORE: Final = _ALSA_HANDLER(_ignore)
_JACK_IGNORE: Final = _JACK_HANDLER(_ignore)


def quieten() -> None:
    """Silence the libraries that are loaded (PortAudio loads them); with debug messages on, leave them loud."""
    os.environ.setdefault("JACK_NO_START_SERVER", "1")  # looking for devices must not start a server
    if _LOG.isEnabledFor(logging.DEBUG):
        return
    alsa = _loaded("libasound.so.2")
    if alsa is not None:
        alsa.snd_lib_error_set_handler(_ALSA_IGNORE)
    jack = _loaded("libjack.so.0")
    if jack is not None:
        jack.jack_set_error_function(_JACK_IGNORE)
        jack.jack_set_info_function(_JACK_IGNORE)


def _loaded(name: str) -> ctypes.CDLL | None:
    """A library that this process has loaded already; None where it has not."""
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except (OSError, AttributeError):  # AttributeError: no RTLD_NOLOAD, so no Linux either
        return None
