"""Recipe: a Piper voice (VITS) cut into a front end and a streamable decoder, FP32.

frontend  phonemes [1, n] i64, lengths [1] i64, scales [3] f32 (noise, length, noise_w)
          -> latent [1, 192, frames] f32, mask [1, 1, frames] f32
decoder   latent, mask -> audio [1, 1, 1, 256 * frames] f32

The front end keeps everything that is random or of a length that depends on the data (text encoder, duration
predictor, expansion, sampling). The decoder (flow and HiFi-GAN) is convolutions only: run on a slice of frames with a
margin on both sides, it gives the samples of the whole.

The decoder also comes as its two halves, for streaming with less done twice: most of its margin is the flow's, most
of its work the vocoder's.

flow      latent, mask -> spectral [1, 192, frames] f32
vocoder   spectral -> audio [1, 1, 1, 256 * frames] f32
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto
from onnx.helper import make_tensor_value_info

from models.catalogue import TtsParameters
from models.convert.build import Build
from models.convert.piper_check import check
from models.convert.surgery import cut
from models.store import InstalledPack

__all__ = ["VOICE", "convert"]

VOICE = "en_US-joe-medium.onnx"
_NAMES = {
    "input": "phonemes",
    "input_lengths": "lengths",
    "/Add_output_0": "latent",  # z_p of the VITS paper (Kim et al. 2021): the prior's sample
    "/Cast_2_output_0": "mask",
    "/Mul_7_output_0": "spectral",  # z, masked
    "output": "audio",
}
_STAGES = 2


def convert(pack: InstalledPack, work: Path, build: Build) -> None:
    """See `models.convert.prepare.Recipe`."""
    del work  # nothing on the way
    channels = pack.pack.parameters_as(TtsParameters).channels
    phonemes = make_tensor_value_info("phonemes", TensorProto.INT64, [1, "length"])
    lengths = make_tensor_value_info("lengths", TensorProto.INT64, [1])
    scales = make_tensor_value_info("scales", TensorProto.FLOAT, [3])
    latent = make_tensor_value_info("latent", TensorProto.FLOAT, [1, channels, "frames"])
    mask = make_tensor_value_info("mask", TensorProto.FLOAT, [1, 1, "frames"])
    spectral = make_tensor_value_info("spectral", TensorProto.FLOAT, [1, channels, "frames"])
    audio = make_tensor_value_info("audio", TensorProto.FLOAT, [1, 1, 1, "samples"])
    parts = {
        "frontend": ([phonemes, lengths, scales], [latent, mask]),
        "decoder": ([latent, mask], [audio]),
        "flow": ([latent, mask], [spectral]),
        "vocoder": ([spectral], [audio]),
    }
    with build.stage(1, _STAGES, "cut the voice"):
        voice = onnx.load(pack.path(VOICE))
        for part, (inputs, outputs) in parts.items():
            onnx.save(cut(voice, inputs, outputs, _NAMES, f"piper_{part}"), build.graph(part, "fp32"))
        del voice
    with build.stage(2, _STAGES, "compare with the original"):
        check(pack, build)
