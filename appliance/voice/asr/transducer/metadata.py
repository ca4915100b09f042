"""What a streaming transducer's ONNX files say of themselves, typed: how they are driven, and which states they keep.

Sources: icefall's `zipformer/export-onnx-streaming.py` and sherpa-onnx's export scripts for NeMo write the metadata;
sherpa-onnx reads it, and feeds inputs and outputs by their place in the file, so names are taken from the file here
too. The states' shapes follow from the metadata; the backend checks them against the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from appliance.errors import SpeechError
from appliance.voice.asr.transducer.onnx_file import OnnxFile, OnnxTensor
from models.engines.base import StateTensor

__all__ = ["DecoderNames", "EncoderNames", "Family", "JoinerNames", "TransducerMetadata", "read_metadata"]

Family = Literal["zipformer2", "nemo"]

_EMBED_CHANNELS: Final = 128
"""Channels and frames of the state of icefall's `Conv2dSubsampling`: fixed in its `get_init_states`."""
_EMBED_FRAMES: Final = 3
_ZIPFORMER_SUBSAMPLING: Final = 4
"""Feature frames an encoder frame: 2 in `Conv2dSubsampling`, 2 behind the stacks."""
_NEMO_MAX_SYMBOLS: Final = 10
"""Labels in one encoder frame: NeMo's own default (`max_symbols` of its greedy search)."""


@dataclass(frozen=True, slots=True)
class EncoderNames:
    """Names in the encoder's file."""

    features: str
    length: str | None
    """Takes the number of frames; None where it is always the same."""
    frames: str


@dataclass(frozen=True, slots=True)
class DecoderNames:
    """Names in the decoder's file."""

    tokens: str
    length: str | None
    states: tuple[str, ...]
    """Recurrent inputs; a beam search branches them, so they are given to each run and are no state of a stream."""
    output: str
    next_states: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JoinerNames:
    """Names in the joiner's file."""

    encoded: str
    predicted: str
    logits: str


@dataclass(frozen=True, slots=True)
class TransducerMetadata:
    """How a streaming transducer is driven."""

    family: Family
    window: int
    """Feature frames of one encoder run, its look-ahead included."""
    shift: int
    """Feature frames from one run to the next."""
    bins: int
    """Mel bins of a feature frame."""
    subsampling: int
    """Feature frames an encoder frame."""
    vocabulary: int
    """Labels, blank included."""
    blank: int
    context: int
    """Labels that the decoder sees at once; 1 where it is recurrent."""
    max_symbols: int
    """Labels that one encoder frame may give."""
    decoder_state: tuple[int, int] | None
    """Layers and width of a recurrent decoder's state; None where there is none."""
    states: tuple[StateTensor, ...]
    """Recurrent tensors of the encoder."""
    encoder: EncoderNames
    decoder: DecoderNames
    joiner: JoinerNames


def read_metadata(encoder: OnnxFile, decoder: OnnxFile, joiner: OnnxFile) -> TransducerMetadata:
    """Raises `SpeechError` where the files are no streaming transducer that Wren can drive; it says which and why."""
    if "cache_last_channel_dim1" in encoder.metadata:
        return _nemo(encoder, decoder, joiner)
    if encoder.metadata.get("model_type") == "zipformer2":
        return _zipformer(encoder, decoder, joiner)
    kind = encoder.metadata.get("model_type", "none")
    raise SpeechError(
        f"{encoder.path}: model_type is {kind!r}; Wren drives streaming zipformer2 models and NeMo's cache-aware"
        " FastConformer transducers, as sherpa-onnx publishes them"
    )


def _zipformer(encoder: OnnxFile, decoder: OnnxFile, joiner: OnnxFile) -> TransducerMetadata:
    said = _Said(encoder)
    if encoder.metadata.get("feature", "") not in ("", "fbank"):
        raise SpeechError(
            f"{encoder.path}: wants features {encoder.metadata['feature']!r}; Wren has Kaldi's fbank only"
        )
    layers = said.numbers("num_encoder_layers")
    stacks = {
        key: said.numbers(key, len(layers))
        for key in (
            "encoder_dims", "query_head_dims", "value_head_dims", "num_heads", "cnn_module_kernels", "left_context_len",
        )
    }  # fmt: skip
    bins = _fixed(encoder, encoder.inputs[0], -1)
    shapes: list[tuple[int, ...]] = []
    for at, count in enumerate(layers):
        dim, heads = stacks["encoder_dims"][at], stacks["num_heads"][at]
        left, kernel = stacks["left_context_len"][at], stacks["cnn_module_kernels"][at]
        key, value = stacks["query_head_dims"][at] * heads, stacks["value_head_dims"][at] * heads
        attention = [(left, 1, key), (1, 1, left, 3 * dim // 4), (left, 1, value), (left, 1, value)]
        shapes += [*attention, (1, dim, kernel // 2), (1, dim, kernel // 2)] * count
    shapes.append((1, _EMBED_CHANNELS, _EMBED_FRAMES, ((bins - 1) // 2 - 1) // 2))
    shapes.append((1,))  # frames processed
    dtypes = ["float32"] * (len(shapes) - 1) + ["int64"]
    states = _paired(encoder, encoder.inputs[1:], encoder.outputs[1:], shapes, dtypes)
    of_decoder = _Said(decoder)
    _count(decoder, decoder.inputs, 1, "inputs")
    _count(joiner, joiner.inputs, 2, "inputs")
    window, shift = _steps(encoder, "T", "decode_chunk_len")
    return TransducerMetadata(
        family="zipformer2",
        window=window,
        shift=shift,
        bins=bins,
        subsampling=_ZIPFORMER_SUBSAMPLING,
        vocabulary=of_decoder.number("vocab_size"),
        blank=0,
        context=of_decoder.number("context_size"),
        max_symbols=1,
        decoder_state=None,
        states=states,
        encoder=EncoderNames(encoder.inputs[0].name, None, encoder.outputs[0].name),
        decoder=DecoderNames(decoder.inputs[0].name, None, (), decoder.outputs[0].name, ()),
        joiner=_joiner_names(joiner),
    )


def _nemo(encoder: OnnxFile, decoder: OnnxFile, joiner: OnnxFile) -> TransducerMetadata:
    said = _Said(encoder)
    normalise = encoder.metadata.get("normalize_type", "")
    if normalise not in ("", "NA"):
        raise SpeechError(
            f"{encoder.path}: normalize_type is {normalise!r}: it needs the whole utterance before its first frame,"
            " so it cannot be streamed; take a cache-aware export (NA)"
        )
    channel = tuple(said.number(f"cache_last_channel_dim{i}") for i in (1, 2, 3))
    time = tuple(said.number(f"cache_last_time_dim{i}") for i in (1, 2, 3))
    shapes: list[tuple[int, ...]] = [(1, *channel), (1, *time), (1,)]
    states = _paired(encoder, encoder.inputs[2:], encoder.outputs[2:], shapes, ["float32", "float32", "int64"])
    _count(decoder, decoder.inputs, 4, "inputs")
    _count(decoder, decoder.outputs, 4, "outputs")
    _count(joiner, joiner.inputs, 2, "inputs")
    labels = said.number("vocab_size")
    window, shift = _steps(encoder, "window_size", "chunk_shift")
    return TransducerMetadata(
        family="nemo",
        window=window,
        shift=shift,
        bins=_fixed(encoder, encoder.inputs[0], 1),
        subsampling=said.number("subsampling_factor"),
        vocabulary=labels + 1,  # NeMo does not count the blank, which is its last label
        blank=labels,
        context=1,
        max_symbols=_NEMO_MAX_SYMBOLS,
        decoder_state=(said.number("pred_rnn_layers"), said.number("pred_hidden")),
        states=states,
        encoder=EncoderNames(encoder.inputs[0].name, encoder.inputs[1].name, encoder.outputs[0].name),
        decoder=DecoderNames(
            decoder.inputs[0].name,
            decoder.inputs[1].name,
            tuple(tensor.name for tensor in decoder.inputs[2:]),
            decoder.outputs[0].name,
            tuple(tensor.name for tensor in decoder.outputs[2:]),
        ),
        joiner=_joiner_names(joiner),
    )


class _Said:
    """Numbers of a file's metadata: sizes and counts, none of them zero."""

    def __init__(self, file: OnnxFile) -> None:
        self._file = file

    def number(self, key: str) -> int:
        (value,) = self.numbers(key, 1)
        return value

    def numbers(self, key: str, count: int | None = None) -> tuple[int, ...]:
        text = self._file.metadata.get(key)
        try:
            values = tuple(int(part) for part in (text or "").split(","))
        except ValueError:
            values = ()
        if not values or min(values) < 1 or (count is not None and len(values) != count):
            wanted = "numbers" if count is None else f"{count} numbers" if count > 1 else "a number"
            raise SpeechError(
                f"{self._file.path}: metadata {key} is {text!r}, wanted {wanted} above 0; fetch the model again"
            )
        return values


def _steps(encoder: OnnxFile, window_key: str, shift_key: str) -> tuple[int, int]:
    """Window and shift; a wider shift would leave sound out between one window and the next."""
    said = _Said(encoder)
    window, shift = said.number(window_key), said.number(shift_key)
    if shift > window:
        raise SpeechError(
            f"{encoder.path}: metadata {shift_key} is {shift}, more than {window_key}, {window}; another export?"
        )
    return window, shift


def _paired(
    file: OnnxFile,
    inputs: Sequence[OnnxTensor],
    outputs: Sequence[OnnxTensor],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[str],
) -> tuple[StateTensor, ...]:
    _count(file, inputs, len(shapes), "states in")
    _count(file, outputs, len(shapes), "states out")
    rows: Iterator[tuple[OnnxTensor, OnnxTensor, tuple[int, ...], str]]
    rows = zip(inputs, outputs, shapes, dtypes, strict=True)
    return tuple(StateTensor(before.name, after.name, shape, dtype) for before, after, shape, dtype in rows)


def _joiner_names(joiner: OnnxFile) -> JoinerNames:
    return JoinerNames(joiner.inputs[0].name, joiner.inputs[1].name, joiner.outputs[0].name)


def _count(file: OnnxFile, tensors: Sequence[OnnxTensor], wanted: int, what: str) -> None:
    if len(tensors) != wanted:
        raise SpeechError(f"{file.path}: has {len(tensors)} {what}, its metadata wants {wanted}; another export?")


def _fixed(file: OnnxFile, tensor: OnnxTensor, axis: int) -> int:
    size = tensor.dims[axis] if len(tensor.dims) == 3 else None
    if not size:
        raise SpeechError(
            f"{file.path}: {tensor.name} is {list(tensor.dims)}, wanted three with a fixed number of bins"
        )
    return size
