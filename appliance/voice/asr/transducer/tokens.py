"""The labels of a sherpa-onnx model, `tokens.txt`: a piece and its number a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.errors import SpeechError
from appliance.voice.asr.tokenizer import Tokenizer

__all__ = ["Labels", "read_tokens"]

_BLANKS: Final = ("<blk>", "<blank>", "<eps>")
"""What exporters call it."""


_UNKNOWN: Final = "<unk>"


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of a model."""

    tokenizer: Tokenizer
    unknown: int | None
    """Number of the label for what no piece can write; it stands for no text."""


def read_tokens(path: Path, vocabulary: int, blank: int) -> Labels:
    """Read and check. Raises `SpeechError` where the labels are not those of a model of so many, blank included."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SpeechError(f"{path}: cannot be read as text ({error}); fetch the model again") from None
    pieces: dict[int, str] = {}
    for row, line in enumerate(lines, start=1):
        *parts, number = line.rsplit(maxsplit=1) if line.strip() else [""]
        if not number.isdecimal() or int(number) in pieces:
            raise SpeechError(f"{path}, line {row}: {line!r} is no piece with a number of its own")
        pieces[int(number)] = parts[0] if parts else " "  # a label may be the space itself
    if sorted(pieces) != list(range(vocabulary)):
        raise SpeechError(f"{path}: has {len(pieces)} labels, the model has {vocabulary}; it belongs to another model")
    if pieces[blank] not in _BLANKS:
        raise SpeechError(f"{path}: label {blank} is {pieces[blank]!r}, and the model's blank is that number")
    unknown = next((number for number, piece in pieces.items() if piece == _UNKNOWN), None)
    return Labels(Tokenizer(pieces[number].encode() for number in range(vocabulary)), unknown)
