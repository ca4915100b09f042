"""What must be seen to with the sound libraries themselves before PortAudio looks around.

ALSA and JACK write dozens of lines to stderr that mean nothing: their own error hooks are set, so that nothing of ours
is hidden with it. And PortAudio ends the whole process (an assertion) where ALSA's configuration is missing.
"""

from __future__ import annotations

import ctypes
import logging
import os
from typing import Any, Final

__all__ = ["alsa_is_configured", "quieten"]

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


def alsa_is_configured() -> bool:
    """Whether PortAudio can be started: it asserts that ALSA has a PCM named `default` or `dmix`."""
    alsa = _loaded("libasound.so.2")
    if alsa is None:
        return True  # no ALSA on this system: PortAudio asks another
    found = ctypes.c_void_p()
    alsa.snd_config_update()
    top = ctypes.c_void_p.in_dll(alsa, "snd_config")
    return any(alsa.snd_config_search(top, name, ctypes.byref(found)) == 0 for name in (b"pcm.default", b"pcm.dmix"))


def _loaded(name: str) -> ctypes.CDLL | None:
    """A library that this process has loaded already; None where it has not."""
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except (OSError, AttributeError):  # AttributeError: no RTLD_NOLOAD, so no Linux either
        return None
