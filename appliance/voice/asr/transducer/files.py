"""A streaming transducer as a folder: encoder, decoder, joiner (ONNX) and tokens.txt, as sherpa-onnx publishes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from appliance.errors import SpeechError
from appliance.voice.asr.transducer.metadata import TransducerMetadata, read_metadata
from appliance.voice.asr.transducer.onnx_file import read_onnx_file
from appliance.voice.asr.transducer.tokens import Labels, read_tokens

__all__ = ["PARTS", "TransducerFiles", "read_folder"]

PARTS: Final = ("encoder", "decoder", "joiner")
TOKENS: Final = "tokens.txt"


@dataclass(frozen=True, slots=True)
class TransducerFiles:
    """What was found in a folder, read and checked; no weights are loaded."""

    folder: Path
    graphs: Mapping[str, Path]
    """Part -> its file."""
    precision: Literal["fp32", "int8"]
    """Of the encoder, which is nearly all of the model."""
    metadata: TransducerMetadata
    labels: Labels

    @property
    def mb(self) -> float:
        """Size of all graphs."""
        return round(sum(path.stat().st_size for path in self.graphs.values()) / 1e6, 1)


def read_folder(folder: Path, *, int8: bool = False) -> TransducerFiles:
    """Find and check the model's files. Raises `SpeechError`, which says what is missing or does not fit.

    sherpa-onnx publishes each graph twice, as FP32 and as INT8 (`*.int8.onnx`). FP32 is taken where it is there, for
    nobody has judged the other's words here; `int8` asks for the other.
    """
    if not folder.is_dir():
        raise SpeechError(f"{folder}: there is no such folder; the recogniser is set by models.recogniser")
    graphs = {part: _graph(folder, part, int8) for part in PARTS}
    heads = {part: read_onnx_file(path) for part, path in graphs.items()}
    metadata = read_metadata(heads["encoder"], heads["decoder"], heads["joiner"])
    labels = read_tokens(folder / TOKENS, metadata.vocabulary, metadata.blank)
    precision: Literal["fp32", "int8"] = "int8" if _is_int8(graphs["encoder"]) else "fp32"
    return TransducerFiles(folder, graphs, precision, metadata, labels)


def _graph(folder: Path, part: str, int8: bool) -> Path:
    found = sorted(path for path in folder.glob("*.onnx") if part in path.stem.replace(".", "-").split("-"))
    kind = [path for path in found if _is_int8(path) is int8] or found
    if len(kind) != 1:
        names = ", ".join(path.name for path in kind) or "none"
        raise SpeechError(f"{folder}: wanted one {part}, as {part}.onnx or {part}-….onnx, found {names}")
    return kind[0]


def _is_int8(path: Path) -> bool:
    return path.name.endswith(".int8.onnx")
