"""Recordings in: WAV, FLAC, OGG and headerless PCM as 16 kHz mono blocks; reply out as WAV.

Files are read block by block: a recording of three hours costs no more memory than one of three seconds.
"""

from __future__ import annotations

import os
import struct
import tempfile
import wave
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import soundfile

from appliance.audio.frame import Samples
from appliance.audio.resample import MonoResampler, mix_to_mono
from appliance.errors import AudioFormatError

__all__ = ["RawFormat", "read_blocks", "write_wav"]

BLOCK_FRAMES: Final = 16_384
"""Sample frames read at a time: a third of a second at 48 kHz."""
MIN_RATE_HZ: Final = 4_000
MAX_RATE_HZ: Final = 384_000
MAX_CHANNELS: Final = 32

RAW_SUFFIXES: Final = frozenset({".raw", ".pcm", ".s16"})
_RAW_SUBTYPES: Final = {
    "s8": "PCM_S8",
    "u8": "PCM_U8",
    "s16le": "PCM_16",
    "s24le": "PCM_24",
    "s32le": "PCM_32",
    "f32le": "FLOAT",
}
_MAGIC: Final = (b"RIFF", b"RIFX", b"RF64", b"riff", b"fLaC", b"OggS", b"FORM", b"caff", b".snd", b"ID3")
_INT16_SCALE: Final = 32767.0
# What a program writes into the length fields when it streams a WAV and cannot know the length.
_UNKNOWN_LENGTHS: Final = frozenset({0, 0x7FFFFFFF, 0x7FFFF000, 0xFFFFFFFF, 0xFFFFF000})


@dataclass(frozen=True, slots=True)
class RawFormat:
    """How headerless samples are to be read."""

    rate_hz: int = 16_000
    channels: int = 1
    encoding: str = "s16le"

    @classmethod
    def parse(cls, text: str) -> RawFormat:
        """Read `RATE[:CHANNELS[:ENCODING]]`, for instance `48000:2:s16le`.

        Raises `AudioFormatError` naming what is wrong.
        """
        parts = text.split(":")
        try:
            rate_hz = int(parts[0])
            channels = int(parts[1]) if len(parts) > 1 else 1
        except ValueError:
            raise AudioFormatError(
                f"raw format {text!r}: give RATE[:CHANNELS[:ENCODING]], such as 48000:2:s16le"
            ) from None
        encoding = parts[2] if len(parts) > 2 else "s16le"
        if encoding not in _RAW_SUBTYPES or len(parts) > 3:
            known = ", ".join(_RAW_SUBTYPES)
            raise AudioFormatError(f"raw format {text!r}: the encoding must be one of {known}")
        return cls(rate_hz, channels, encoding)


def read_blocks(path: Path, raw: RawFormat | None = None) -> Iterator[Samples]:
    """Read a recording as mono float32 blocks at 16 kHz.

    `raw` (or a name ending in .raw, .pcm, .s16) says that the file has no header. Raises `AudioFormatError`
    for a file that is missing, empty, truncated, not audio, or that holds samples which are not numbers;
    what came before a late fault has been yielded by then.
    """
    if raw is None and path.suffix.lower() in RAW_SUFFIXES:
        raw = RawFormat()
    _check_file(path, raw)
    try:
        with _open(path, raw) as source:
            _check_header(path, source)
            yield from _resampled(path, source)
    except soundfile.LibsndfileError as error:
        raise AudioFormatError(
            f"{path}: not audio that can be read ({error.error_string}); give a WAV, FLAC or OGG file"
        ) from None


def write_wav(path: Path, chunks: Iterable[Samples], rate_hz: int) -> float:
    """Write 16-bit mono WAV: beside the target first, then renamed over it. Returns its length in seconds."""
    total = 0
    folder = path.parent
    try:
        handle, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".part", dir=folder)
    except OSError as error:
        raise AudioFormatError(f"{path}: cannot be written ({error.strerror}); choose another place with -o") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            # The standard library's writer: libsndfile's prints tracebacks of its own when the disk is full.
            with wave.open(file, "wb") as sink:
                sink.setnchannels(1)
                sink.setsampwidth(2)
                sink.setframerate(rate_hz)
                for chunk in chunks:
                    sink.writeframes(np.rint(np.clip(chunk, -1.0, 1.0) * _INT16_SCALE).astype("<i2").tobytes())
                    total += chunk.size
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise AudioFormatError(
            f"{path}: cannot be written ({error.strerror}); make room or choose another place"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return total / rate_hz


def _check_file(path: Path, raw: RawFormat | None) -> None:
    try:
        if path.is_dir():
            raise AudioFormatError(f"{path}: is a folder; give a recording")
        size = path.stat().st_size
        if size == 0 and path.is_file():
            raise AudioFormatError(f"{path}: the file is empty; record it again")
        if raw is None and path.is_file():
            with path.open("rb") as file:
                _check_magic(path, file.read(12))
                file.seek(0)
                _check_riff_length(path, file, size)
    except FileNotFoundError:
        raise AudioFormatError(f"{path}: no such file") from None
    except OSError as error:
        raise AudioFormatError(f"{path}: cannot be read ({error.strerror})") from None


def _check_magic(path: Path, head: bytes) -> None:
    """Refuse what is plainly no sound here: some decoders complain to the terminal before they refuse."""
    mpeg = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0
    if not head.startswith(_MAGIC) and not mpeg:
        raise AudioFormatError(
            f"{path}: not audio that can be read; give a WAV, FLAC or OGG file (or --raw for bare samples)"
        )


def _check_riff_length(path: Path, file: BinaryIO, size: int) -> None:
    """Refuse a WAV whose sound chunk promises more bytes than the file has: libsndfile would shorten it silently."""
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return
    at = 12
    while at + 8 <= size:
        file.seek(at)
        name, length = struct.unpack("<4sI", file.read(8))
        if name == b"data":
            have = size - at - 8
            if length not in _UNKNOWN_LENGTHS and length > have:
                raise AudioFormatError(
                    f"{path}: truncated, {have} of {length} bytes of sound are there; copy or record it again"
                )
            return
        at += 8 + length + (length & 1)
    raise AudioFormatError(f"{path}: truncated before any sound; copy or record it again")


def _open(path: Path, raw: RawFormat | None) -> soundfile.SoundFile:
    if raw is None:
        return soundfile.SoundFile(path)
    _check_shape(path, raw.rate_hz, raw.channels)
    return soundfile.SoundFile(
        path,
        samplerate=raw.rate_hz,
        channels=raw.channels,
        format="RAW",
        subtype=_RAW_SUBTYPES[raw.encoding],
        endian="LITTLE",
    )


def _check_header(path: Path, source: soundfile.SoundFile) -> None:
    _check_shape(path, source.samplerate, source.channels)
    if source.frames == 0:
        raise AudioFormatError(f"{path}: holds no sound; record it again")


def _check_shape(path: Path, rate_hz: int, channels: int) -> None:
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise AudioFormatError(f"{path}: {rate_hz} Hz is outside {MIN_RATE_HZ}..{MAX_RATE_HZ} Hz")
    if not 1 <= channels <= MAX_CHANNELS:
        raise AudioFormatError(f"{path}: {channels} channels are outside 1..{MAX_CHANNELS}")


def _resampled(path: Path, source: soundfile.SoundFile) -> Iterator[Samples]:
    resampler = MonoResampler(source.samplerate)
    done = 0
    while True:
        block = source.read(BLOCK_FRAMES, dtype="float32", always_2d=True)
        if not len(block):
            break
        if not np.isfinite(block).all():
            at_s = (done + int(np.argmin(np.isfinite(block).all(axis=1)))) / source.samplerate
            raise AudioFormatError(
                f"{path}: a sample at {at_s:.3f} s is not a number (NaN or infinite); export it again"
            )
        done += len(block)
        yield resampler.push(mix_to_mono(block))
    if done < source.frames:
        raise AudioFormatError(
            f"{path}: truncated, {done} of {source.frames} samples could be read; copy or record it again"
        )
    yield resampler.flush()
