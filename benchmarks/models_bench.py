"""What the models cost on this machine: CPU time of every step, load time, memory.

    python benchmarks/models_bench.py [--fp32] [--repeats N] [--threads N]

Prints Markdown. A time is this process's CPU time in milliseconds, the median of the repeats and, in brackets, the
least and the greatest. Memory is the resident set, each engine in a process of its own. The packs must be in the store
(`wren models fetch`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import wave
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import numpy as np

from models import AsrParameters, Store, TtsParameters, VadParameters
from models.convert import open_artefact
from models.engines import Array, Stream
from models.engines.onnx_cpu import OrtCpuEngine

ENGINES = ("asr encoder", "asr decoder", "tts frontend", "tts decoder", "tts flow", "tts vocoder", "vad")
IN_USE = ("asr encoder", "asr decoder", "tts frontend", "tts flow", "tts vocoder", "vad")
"""What the appliance opens: the decoder's two halves in its place."""
REPLY = "tˈɜːnd ˈɔn ðə lˈaɪts."
"""“Turned on the lights.”"""
LONG_REPLY = (
    "ðə kˈɪtʃən wˈɪndoʊ ænd ðə bˈædɹuːm wˈɪndoʊ ɑːɹ ˈoʊpən, ænd ɪt ɪz twˈɛnti wˈʌn dᵻɡɹˈiːz ɪn ðə lˈɪvɪŋ ɹˈuːm."
)
FIRST_CHUNK = 15
"""Frames of the first chunk of a reply: 174 ms of sound."""
CHUNK = 60


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fp32", action="store_true", help="the recogniser in FP32 too")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(_open_and_weigh(json.loads(arguments.child), arguments.threads)))
        return
    bench = Bench(Store(), arguments.repeats, arguments.threads)
    print(f"{_cpu_name()}; {platform.machine()}, Python {platform.python_version()}", end="")
    print(f", onnxruntime {version('onnxruntime')}; {arguments.threads} thread(s); load {os.getloadavg()[0]:.1f}\n")
    for precision in ("fp32", "int8") if arguments.fp32 else ("int8",):
        _table(f"Recogniser, {precision}", ("step", "CPU ms"), bench.recogniser(precision))
    _table("Voice", ("step", "CPU ms"), bench.voice())
    _table("Voice activity", ("step", "CPU ms"), bench.activity())
    rows: list[tuple[str, ...]] = []
    for name, engines in [(e, [e]) for e in ENGINES] + [("all in use", list(IN_USE))]:
        child = [sys.executable, __file__, "--threads", str(arguments.threads), "--child", json.dumps(engines)]
        got = json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
        times = [f"{got[key]:.2f}" for key in ("load_s", "cpu_s")]
        rows.append((name, *times, *(f"{got[key]:.0f}" for key in ("loaded_mb", "rss_mb", "peak_mb"))))
    _table("Loading", ("engine", "load s", "CPU s", "MB more", "process MB", "at most MB"), rows)
    print("The last row's process has also heard five seconds and said a reply.")


class Bench:
    """The steps, each on real input."""

    def __init__(self, store: Store, repeats: int, threads: int) -> None:
        self._store = store
        self._repeats = repeats
        self._threads = threads

    def recogniser(self, precision: str) -> list[tuple[str, str]]:
        """Encoder by length, decoder by batch, and a command of three seconds with nine steps."""
        p = self._store.catalogue.get("moonshine-base-en").parameters_as(AsrParameters)
        encoder = _engine(self._store, "asr encoder", precision, self._threads).stream()
        decoder = _engine(self._store, "asr decoder", precision, self._threads).stream()
        with wave.open(str(self._store.open("moonshine-base-en").path("beckett.wav")), "rb") as clip:
            pcm = np.frombuffer(clip.readframes(clip.getnframes()), dtype="<i2").astype(np.float32) / 32768

        def encode(seconds: float) -> Mapping[str, Array]:
            return encoder.run({"audio": pcm[None, : int(seconds * p.rate_hz)]})

        rows = [(f"encoder, {s} s", self._measure(partial(encode, s))) for s in (1, 2, 3, 5)]
        cross = encode(3)
        decoder.run(_step([p.begin_token, 5, 6, 7], 1, cross))
        kept = decoder.snapshot()
        for beams in (1, 4, 5, 8):

            def step(beams: int = beams) -> None:
                decoder.run(_step([9], beams, cross))

            name = f"decoder step, {beams} beams" if beams > 1 else "decoder step"
            rows.append((name, self._measure(step, lambda: decoder.restore(kept))))

        def tokens() -> None:
            decoder.reset()
            token = p.begin_token
            for _ in range(9):
                logits = decoder.run(_step([token], 1, cross))["logits"]
                token = int(logits[0, -1].argmax())

        def command() -> None:
            encode(3)
            tokens()

        rows.append(("8 tokens and the end", self._measure(tokens)))
        rows.append(("**command of 3 s, 9 steps**", self._measure(command)))
        return rows

    def voice(self) -> list[tuple[str, str]]:
        """Front end, first chunk, and everything, for a short and a long reply; whole decoder and halves."""
        pack, artefact = self._store.open("piper-en-us-joe"), open_artefact(self._store, "piper-en-us-joe")
        p, margins = pack.pack.parameters_as(TtsParameters), artefact.manifest.parameters
        ids = json.loads(pack.path(p.config).read_text(encoding="utf-8"))["phoneme_id_map"]
        frontend, decoder, flow, vocoder = (
            _engine(self._store, f"tts {part}", "fp32", self._threads).stream()
            for part in ("frontend", "decoder", "flow", "vocoder")
        )
        left, right = int(margins["margin_left_frames"]), int(margins["margin_right_frames"])
        around, near = int(margins["flow_margin_frames"]), int(margins["vocoder_margin_frames"])
        rows = []
        for name, text in (("short reply", REPLY), ("long reply", LONG_REPLY)):
            phonemes = np.array([[1, 0, *(i for c in text for i in (*ids[c], 0)), 2]])
            feed = {
                "phonemes": phonemes,
                "lengths": np.array([phonemes.shape[1]]),
                "scales": np.array([0, 1, 0], dtype=np.float32),
            }
            latent = frontend.run(feed)["latent"]
            frames = latent.shape[2]
            cuts = [0, FIRST_CHUNK, 2 * FIRST_CHUNK, *range(2 * FIRST_CHUNK + CHUNK, frames, CHUNK), frames]

            def whole(start: int, end: int, z: Array = latent) -> None:
                _decode(decoder, z[:, :, max(0, start - left) : end + right])

            def halves(start: int, end: int, z: Array = latent) -> None:
                # Only what this chunk adds to the flow's output: what came before is kept.
                first = 0 if start == 0 else start + near
                spectral = _flow(flow, z[:, :, max(0, first - around) : end + near + around])
                vocoder.run({"spectral": np.resize(spectral, (1, p.channels, min(start, near) + end - start + near))})

            rows += [
                (f"{name} ({frames} frames): front end", self._measure(partial(frontend.run, feed))),
                (f"{name}: offline, decoder", self._measure(partial(_decode, decoder, latent))),
            ]
            for way, chunk in (("decoder", whole), ("halves", halves)):

                def first_audio(chunk: Callable[[int, int], None] = chunk, f: dict[str, Array] = feed) -> None:
                    frontend.run(f)
                    chunk(0, FIRST_CHUNK)

                def everything(chunk: Callable[[int, int], None] = chunk, cuts: list[int] = cuts) -> None:
                    for start, end in pairwise(cuts):
                        chunk(start, end)

                rows.append((f"**{name}: first audio, {way}**", self._measure(first_audio)))
                rows.append((f"{name}: all chunks, {way}", self._measure(everything)))
        return rows

    def activity(self) -> list[tuple[str, str]]:
        """One window a run."""
        p = self._store.catalogue.get("silero-vad").parameters_as(VadParameters)
        stream = _engine(self._store, "vad", "fp32", 1).stream()
        window = np.zeros((1, p.context_samples + p.window_samples), dtype=np.float32)
        ms = 1000 * p.window_samples / p.rate_hz

        def hundred() -> None:
            for _ in range(100):
                stream.run({"input": window})

        return [(f"window of {ms:.0f} ms", self._measure(hundred, share=100))]

    def _measure(self, work: Callable[[], object], before: Callable[[], None] | None = None, share: int = 1) -> str:
        times = []
        for repeat in range(self._repeats + 1):
            if before is not None:
                before()
            started = time.process_time()
            work()
            if repeat:  # the first one warms up
                times.append((time.process_time() - started) * 1000 / share)
        digits = 2 if share > 1 else 1
        return f"{statistics.median(times):.{digits}f} ({min(times):.{digits}f}–{max(times):.{digits}f})"


def _step(ids: list[int], beams: int, cross: Mapping[str, Array]) -> dict[str, Array]:
    return {"ids": np.array([ids] * beams), "rows": np.zeros(beams, dtype=np.int64), **cross}


def _decode(decoder: Stream, latent: Array) -> Array:
    return decoder.run({"latent": latent, "mask": np.ones_like(latent[:, :1])})["audio"]


def _flow(flow: Stream, latent: Array) -> Array:
    return flow.run({"latent": latent, "mask": np.ones_like(latent[:, :1])})["spectral"]


def _engine(store: Store, name: str, precision: str, threads: int) -> OrtCpuEngine:
    task, _, part = name.partition(" ")
    pack_id = {"asr": "moonshine-base-en", "tts": "piper-en-us-joe", "vad": "silero-vad"}[task]
    states = store.catalogue.get(pack_id).state_tensors(part or task)
    if task == "vad":
        return OrtCpuEngine(store.open(pack_id).path("silero_vad.onnx"), states, threads=threads)
    return OrtCpuEngine(open_artefact(store, pack_id).path(part, precision), states, threads=threads)


def _open_and_weigh(names: list[str], threads: int) -> dict[str, float]:
    """In a process of its own: what opening these engines takes."""
    store, before = Store(), _memory_mb("VmRSS")
    started, cpu = time.perf_counter(), time.process_time()
    engines = [_engine(store, name, "int8" if name.startswith("asr") else "fp32", threads) for name in names]
    result = {"load_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}
    result |= {"loaded_mb": _memory_mb("VmRSS") - before, "rss_mb": _memory_mb("VmRSS"), "peak_mb": _memory_mb("VmHWM")}
    if len(names) > 1:
        _exercise({name: engine.stream() for name, engine in zip(names, engines, strict=True)})
        result |= {"rss_mb": _memory_mb("VmRSS"), "peak_mb": _memory_mb("VmHWM")}
    return result


def _exercise(streams: Mapping[str, Stream]) -> None:
    """Five seconds heard, nine steps of five beams, a reply of 120 frames said; the words do not matter."""
    noise = np.random.default_rng(0).standard_normal((1, 80_000), dtype=np.float32) * np.float32(0.1)
    cross = streams["asr encoder"].run({"audio": noise})
    streams["asr decoder"].run(_step([1], 1, cross))
    for _ in range(9):
        streams["asr decoder"].run({"ids": np.full((5, 1), 9), "rows": np.zeros(5, dtype=np.int64), **cross})
    phonemes = np.array([[1, *[0, 20] * 40, 0, 2]])
    scales = np.array([0, 1, 0], dtype=np.float32)
    text = streams["tts frontend"].run({"phonemes": phonemes, "lengths": np.array([83]), "scales": scales})
    spectral = _flow(streams["tts flow"], np.resize(text["latent"], (1, 192, 120)))
    streams["tts vocoder"].run({"spectral": spectral[:, :, :82]})


def _memory_mb(what: str) -> float:
    """`VmRSS` (now) or `VmHWM` (the most so far) of this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":")) * 1024 / 1e6


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    facts = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    flags = facts.get("flags", facts.get("Features", "")).split()
    known = [f for f in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "asimddp", "i8mm") if f in flags]
    return f"{facts.get('model name', 'CPU')} ({', '.join(known)})"


def _table(title: str, head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    print(f"### {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print()


if __name__ == "__main__":
    main()
