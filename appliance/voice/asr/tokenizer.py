"""Moonshine's token pieces: ids to text.

File layout (as shipped in moonshine-cpp's `tokenizer.bin`): for each id in order a length, one byte, or two where
the first is 128 or more (low seven bits first), then that many bytes of UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from appliance.errors import SpeechError

__all__ = ["Tokenizer"]

_WORD_START: Final = "\u2581"
_MAX_PIECES: Final = 1 << 20


class Tokenizer:
    """Piece table of one model. Immutable; shared by all sessions."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = tuple(pieces)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read `tokenizer.bin`. Raises `SpeechError` where it is not one."""
        return cls(_parse(path.read_bytes(), str(path)))

    def __len__(self) -> int:
        return len(self._pieces)

    def texts(self) -> Iterator[str | None]:
        """Text of each id with its spaces; None for control pieces and for bytes that are no character alone."""
        for piece in self._pieces:
            control = len(piece) > 2 and piece[:1] == b"<" and piece[-1:] == b">"
            try:
                yield None if control else piece.decode("utf-8").replace(_WORD_START, " ")
            except UnicodeDecodeError:
                yield None

    def decode(self, ids: Iterable[int]) -> str:
        """Text of a run of ids; control pieces such as `<s>` are left out, `<0xNN>` pieces are bytes.

        The model's vocabulary (32,768) is larger than the table (32,000): ids beyond it are control tokens too.
        """
        text = b"".join(_bytes_of(self._pieces[i]) for i in ids if i < len(self._pieces))
        return text.decode("utf-8", "replace").replace(_WORD_START, " ").strip()


def _bytes_of(piece: bytes) -> bytes:
    if len(piece) > 2 and piece[:1] == b"<" and piece[-1:] == b">":
        if piece.startswith(b"<0x") and len(piece) == 6:
            return bytes([int(piece[3:5], 16)])
        return b""
    return piece


def _parse(data: bytes, name: str) -> list[bytes]:
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        length = data[at]
        at += 1
        if length >= 128:
            if at >= len(data):
                raise SpeechError(f"{name}: ends inside a length; run `wren models verify`")
            length = length - 128 + data[at] * 128
            at += 1
        if at + length > len(data) or len(pieces) >= _MAX_PIECES:
            raise SpeechError(f"{name}: is no token table; run `wren models verify`")
        pieces.append(data[at : at + length])
        at += length
    return pieces
