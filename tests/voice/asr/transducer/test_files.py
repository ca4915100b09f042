from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.errors import SpeechError
from appliance.voice.asr.transducer.files import PARTS, read_folder
from appliance.voice.asr.transducer.onnx_file import read_onnx_file
from models.engines.onnx_cpu import OrtCpuEngine


def test_the_head_of_a_file_is_what_the_onnx_library_reads(folder: Path) -> None:
    for part in PARTS:
        path = folder / f"{part}.onnx"
        model, head = onnx.load(path), read_onnx_file(path)
        assert head.metadata == {entry.key: entry.value for entry in model.metadata_props}
        for tensors, values in ((head.inputs, model.graph.input), (head.outputs, model.graph.output)):
            assert [tensor.name for tensor in tensors] == [value.name for value in values]
            for tensor, value in zip(tensors, values, strict=True):
                dims = value.type.tensor_type.shape.dim
                assert tensor.dims == tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)


def test_weights_that_an_old_exporter_lists_as_inputs_are_none(tmp_path: Path, folders: dict[str, Path]) -> None:
    model = onnx.load(folders["zipformer2"] / "joiner.onnx")
    given_inputs = [value.name for value in model.graph.input]
    weight = model.graph.initializer[0]
    model.graph.input.append(onnx.helper.make_tensor_value_info(weight.name, weight.data_type, list(weight.dims)))
    onnx.save(model, tmp_path / "old.onnx")
    assert [tensor.name for tensor in read_onnx_file(tmp_path / "old.onnx").inputs] == given_inputs


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_that_is_cut_or_mangled_is_refused_or_read_and_nothing_else(
    data: st.DataObject, tmp_path: Path, folders: dict[str, Path]
) -> None:
    whole = bytearray((folders["zipformer2"] / "joiner.onnx").read_bytes())
    if data.draw(st.booleans()):
        whole = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        whole[data.draw(st.integers(0, 200))] = data.draw(st.integers(0, 255))
    (tmp_path / "mangled.onnx").write_bytes(whole)
    try:
        head = read_onnx_file(tmp_path / "mangled.onnx")
    except SpeechError:
        return
    assert head.inputs
    assert head.outputs


def test_a_zipformer_says_how_it_is_driven(folders: dict[str, Path]) -> None:
    meta = read_folder(folders["zipformer2"]).metadata
    assert (meta.family, meta.window, meta.shift, meta.bins, meta.subsampling) == ("zipformer2", 45, 32, 80, 4)
    assert (meta.blank, meta.vocabulary, meta.context, meta.max_symbols) == (0, 18, 2, 1)
    shapes = {state.input: state.shape for state in meta.states}
    assert len(shapes) == 3 * 6 + 2  # three layers in all
    assert shapes["cached_key_0"] == (12, 1, 8)  # left context, batch, heads x query width
    assert shapes["cached_nonlin_attn_2"] == (1, 1, 6, 18)  # three quarters of the encoder's width
    assert shapes["cached_val2_1"] == (6, 1, 6)
    assert shapes["cached_conv1_0"] == (1, 16, 4)  # half the kernel
    assert shapes["embed_states"] == (1, 128, 3, 19)
    assert meta.states[-1].dtype == "int64"
    assert [state.output for state in meta.states] == [f"new_{state.input}" for state in meta.states]


def test_a_nemo_model_says_how_it_is_driven(folders: dict[str, Path]) -> None:
    meta = read_folder(folders["nemo"]).metadata
    assert (meta.family, meta.window, meta.shift, meta.bins, meta.subsampling) == ("nemo", 57, 48, 80, 8)
    assert (meta.blank, meta.vocabulary, meta.context, meta.decoder_state) == (17, 18, 1, (1, 12))
    assert [(s.input, s.output, s.shape) for s in meta.states] == [
        ("cache_last_channel", "cache_last_channel_next", (1, 2, 10, 20)),
        ("cache_last_time", "cache_last_time_next", (1, 2, 20, 4)),
        ("cache_last_channel_len", "cache_last_channel_next_len", (1,)),
    ]


def test_the_states_are_those_that_the_runtime_finds_in_the_file(folder: Path) -> None:
    files = read_folder(folder)
    engine = OrtCpuEngine(files.graphs["encoder"], files.metadata.states)
    names = files.metadata.encoder
    assert engine.inputs.keys() == {name for name in (names.features, names.length) if name}
    assert names.frames in engine.outputs


def test_the_fp32_files_are_taken_unless_int8_is_asked_for(tmp_path: Path, folders: dict[str, Path]) -> None:
    for part in PARTS:
        for kind in ("", ".int8"):
            shutil.copy(folders["zipformer2"] / f"{part}.onnx", tmp_path / f"{part}-epoch-99-avg-1{kind}.onnx")
    shutil.copy(folders["zipformer2"] / "tokens.txt", tmp_path)
    assert read_folder(tmp_path).precision == "fp32"
    assert read_folder(tmp_path).graphs["decoder"].name == "decoder-epoch-99-avg-1.onnx"
    assert read_folder(tmp_path, int8=True).precision == "int8"
    (tmp_path / "decoder-epoch-99-avg-1.int8.onnx").unlink()  # as sherpa-onnx ships some: the decoder in FP32 only
    assert read_folder(tmp_path, int8=True).graphs["decoder"].name == "decoder-epoch-99-avg-1.onnx"
    (tmp_path / "encoder-epoch-99-avg-1.onnx").unlink()
    assert read_folder(tmp_path).precision == "int8"


def _metadata(part: str, key: str, value: str | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        model = onnx.load(folder / f"{part}.onnx")
        entries = {entry.key: entry.value for entry in model.metadata_props} | (
            {key: value} if value is not None else {}
        )
        if value is None:
            del entries[key]
        del model.metadata_props[:]
        onnx.helper.set_model_props(model, entries)
        onnx.save(model, folder / f"{part}.onnx")

    return change


def _tokens(change: Callable[[str], str]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        path = folder / "tokens.txt"
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")

    return changed


def _swap(one: str, other: str) -> Callable[[Path], None]:
    return lambda folder: (folder / f"{one}.onnx").write_bytes((folder / f"{other}.onnx").read_bytes())  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("family", "spoil", "says"),
    [
        ("zipformer2", _metadata("encoder", "model_type", "conformer"), "model_type is 'conformer'"),
        ("zipformer2", _metadata("encoder", "T", None), "metadata T is None"),
        (
            "zipformer2",
            _metadata("encoder", "decode_chunk_len", "0"),
            "decode_chunk_len is '0', wanted a number above 0",
        ),
        ("zipformer2", _metadata("encoder", "decode_chunk_len", "900"), "decode_chunk_len is 900, more than T"),
        ("nemo", _metadata("encoder", "chunk_shift", "900"), "chunk_shift is 900, more than window_size"),
        ("zipformer2", _metadata("encoder", "num_heads", "2,three"), "num_heads is '2,three', wanted 2 numbers"),
        ("zipformer2", _metadata("encoder", "num_encoder_layers", "1,1"), "has 20 states in, its metadata wants 14"),
        ("zipformer2", _metadata("encoder", "feature", "whisper"), "'whisper'"),
        ("zipformer2", _metadata("decoder", "vocab_size", "500"), "has 18 labels, the model has 500"),
        ("zipformer2", _swap("joiner", "decoder"), "has 1 inputs, its metadata wants 2"),
        ("nemo", _metadata("encoder", "normalize_type", "per_feature"), "cannot be streamed"),
        ("nemo", _metadata("encoder", "pred_hidden", ""), "pred_hidden"),
        ("nemo", _tokens(lambda text: text.replace("<blk> 17", "x 17")), "label 17 is 'x'"),
        ("nemo", _tokens(lambda text: text.replace("<blk> 17", "<blk> 16")), "is no piece with a number of its own"),
        ("nemo", lambda folder: (folder / "tokens.txt").unlink(), "tokens.txt"),
        ("nemo", lambda folder: (folder / "joiner.onnx").unlink(), "wanted one joiner"),
        ("nemo", lambda folder: (folder / "joiner.onnx").write_text(""), "is no ONNX model"),
        ("nemo", lambda folder: (folder / "encoder-2.onnx").write_text("x"), "encoder-2.onnx, encoder.onnx"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(
    tmp_path: Path, folders: dict[str, Path], family: str, spoil: Callable[[Path], object], says: str
) -> None:
    spoilt = tmp_path / family
    shutil.copytree(folders[family], spoilt)
    read_folder(spoilt)
    spoil(spoilt)
    with pytest.raises(SpeechError) as refusal:
        read_folder(spoilt)
    assert says in str(refusal.value)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SpeechError, match="no such folder"):
        read_folder(tmp_path / "absent")


def test_a_label_may_be_a_space_and_case_and_marks_stay(tmp_path: Path, folders: dict[str, Path]) -> None:
    copy = tmp_path / "model"
    shutil.copytree(folders["nemo"], copy)
    _tokens(lambda text: text.replace("▁ 11", " 11"))(copy)
    tokenizer = read_folder(copy).labels.tokenizer
    assert tokenizer.decode([1, 11, 6]) == "TURN GHT"
    assert tokenizer.decode([0, 1, 17]) == "TURN"  # the unknown label and the blank write nothing
