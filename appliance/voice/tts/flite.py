"""flite as a light voice: a separate program (a few milliseconds a sentence), for when the planned voice cannot keep up
or does not work. Optional: where it is not installed, Wren does without this step.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final

import numpy as np

from appliance.audio.frame import Samples
from appliance.audio.resample import MonoResampler
from appliance.errors import ProgramMissingError, SpeechError
from appliance.voice.asr.protocol import Cancel
from appliance.voice.tts.phonemes import clauses
from appliance.voice.tts.spoken import spoken

__all__ = ["PROGRAM", "FliteSynthesiser", "find_flite"]

PROGRAM: Final = "flite"
VOICE: Final = "slt"
TIMEOUT_S: Final = 5.0
RATE_HZ: Final = 16_000
_HEADER_BYTES: Final = 44
_INT16_SCALE: Final = 32767.0
_MAX_CHARS: Final = 400


def find_flite() -> str | None:
    """Where the program is; None where it is not installed."""
    return shutil.which(PROGRAM)


class FliteSynthesiser:
    """Text to sound, a sentence at a time; one program run each. Holds nothing."""

    def __init__(self, rate_hz: int, program: str = PROGRAM) -> None:
        """`rate_hz` is what the sound is resampled to, so that it can stand in for another voice."""
        self._rate_hz = rate_hz
        self._program = program

    @property
    def rate_hz(self) -> int:
        """Rate of the sound."""
        return self._rate_hz

    def stream(self, text: str, cancel: Cancel) -> Iterator[Samples]:
        """Speak sentence by sentence, each [n] float32. Raises `Cancelled`, `SpeechError`, `ProgramMissingError`."""
        for sentence in _sentences(spoken(text)):
            cancel.check()
            yield self._speak(sentence)

    def _speak(self, sentence: str) -> Samples:
        path = shutil.which(self._program)
        if path is None:
            raise ProgramMissingError(f"{self._program} is not installed; run: sudo apt-get install {PROGRAM}")
        # It goes back in its output to mend the header, so that must be a file; this one is in memory, as is the text,
        # which would be for all to see among the arguments.
        asked, made = os.memfd_create("wren-text"), os.memfd_create("wren-sound")
        try:
            os.write(asked, f"{sentence}\n".encode())
            command = [path, "-voice", VOICE, "-f", f"/dev/fd/{asked}", "-o", f"/dev/fd/{made}"]
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=(asked, made),
                timeout=TIMEOUT_S,
                check=True,
            )
            sound = os.pread(made, os.fstat(made).st_size, 0)
        except (OSError, subprocess.SubprocessError) as error:
            raise SpeechError(f"{self._program} cannot speak ({error}); try `{self._program} -t hello`") from None
        finally:
            os.close(asked)
            os.close(made)
        if len(sound) <= _HEADER_BYTES or sound[:4] != b"RIFF":
            raise SpeechError(f"{self._program} gave no sound for {len(sentence)} characters")
        pcm = np.frombuffer(sound[_HEADER_BYTES : len(sound) // 2 * 2], dtype="<i2")
        resampler = MonoResampler(RATE_HZ, self._rate_hz)
        heard = resampler.push(pcm.astype(np.float32) / np.float32(_INT16_SCALE))
        return np.concatenate((heard, resampler.flush()))


def _sentences(text: str) -> Iterator[str]:
    """Whole sentences, bounded in length: what the program takes at once."""
    held = ""
    for clause, mark in clauses(text):
        if held and len(held) + len(clause) > _MAX_CHARS:
            yield held
            held = ""
        held = f"{held} {clause}{mark}".strip()
        if mark in {".", "!", "?"}:
            yield held
            held = ""
    if held:
        yield held
