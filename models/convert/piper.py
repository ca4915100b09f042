"""Recipe: a Piper voice (VITS) cut into a front end and a streamable decoder, FP32.

frontend  phonemes [1, n] i64, lengths [1] i64, scales [3] f32 (noise, length, noise_w)
          -> latent [1, 192, frames] f32, mask [1, 1, frames] f32
decoder   latent, mask -> audio [1, 1, 1, 256 * frames] f32

The front end keeps everything random or of a length that depends on the data (text encoder, duration predictor,
expansion, sampling); what follows, the flow and HiFi-GAN, is convolutions only, so it can run on a slice of frames
with a margin on both sides and give the same samples.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto
from onnx.helper import make_tensor_value_info

from models.catalogue import TtsParameters
from models.convert.piper_check import check
from models.convert.prepare import Build
from models.convert.surgery import cut
from models.store import InstalledPack

VERSION = 1
BYTES = 70_000_000

_NAMES = {
    "input": "phonemes",
    "input_lengths": "lengths",
    "/Add_output_0": "latent",  # z_p in the VITS paper: the prior's sample, a frame every 256 samples
    "/Cast_2_output_0": "mask",
    "output": "audio",
}


def convert(pack: InstalledPack, work: Path, build: Build) -> None:
    """See `models.convert.prepare.Recipe`."""
    p = pack.pack.parameters_as(TtsParameters)
    voice = pack.path("en_US-joe-medium.onnx")
    build.steps = 2
    text = [
        make_tensor_value_info("phonemes", TensorProto.INT64, [1, "phonemes_length"]),
        make_tensor_value_info("lengths", TensorProto.INT64, [1]),
        make_tensor_value_info("scales", TensorProto.FLOAT, [3]),
    ]
    frames = [
        make_tensor_value_info("latent", TensorProto.FLOAT, [1, p.channels, "frames"]),
        make_tensor_value_info("mask", TensorProto.FLOAT, [1, 1, "frames"]),
    ]
    audio = [make_tensor_value_info("audio", TensorProto.FLOAT, [1, 1, 1, "samples"])]
    with build.stage("cut the voice in two"):
        model = onnx.load(voice)
        onnx.save(cut(model, text, frames, _NAMES, "piper_frontend"), build.target("frontend", "fp32"))
        onnx.save(cut(model, frames, audio, _NAMES, "piper_decoder"), build.target("decoder", "fp32"))
        del model
    with build.stage("compare with the original"):
        figures, parameters = check(pack, build.folder)
        build.checks |= figures
        build.parameters |= parameters
