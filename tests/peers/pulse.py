"""A PulseAudio of the test's own: a virtual microphone `mic_in.monitor`, a virtual speaker `spk`, both unpluggable.

Needs no sound card, no D-Bus and no user session; PortAudio of this process is led to it by the environment.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from appliance.audio.files import write_wav
from appliance.audio.frame import Samples

__all__ = ["MICROPHONE", "MIC_RATE_HZ", "SPEAKER", "SPEAKER_RATE_HZ", "PulseServer", "Recording", "pulse_server"]

MICROPHONE: Final = "pulse:mic_in.monitor"
"""Wren's name for the virtual microphone: what is played into the sink `mic_in`."""
SPEAKER: Final = "pulse:spk"
MIC_RATE_HZ: Final = 16_000
SPEAKER_RATE_HZ: Final = 48_000
START_TIMEOUT_S: Final = 10.0
STEADY_S: Final = 0.05
"""A new sink's first step is two seconds long; until it is over nothing else gets through."""
PROGRAMS: Final = ("pulseaudio", "pactl", "paplay", "parec")
ALSA_PLUGIN: Final = "libasound_module_pcm_pulse.so"
SINKS: Final = {
    "mic_in": f"sink_name=mic_in rate={MIC_RATE_HZ} channels=1",
    "spk": f"sink_name=spk rate={SPEAKER_RATE_HZ} channels=2",
}


def need_pulse() -> None:
    """Skip where PulseAudio is absent; fail in CI, where it must be there."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if not any(Path("/usr/lib").glob(f"*/alsa-lib/{ALSA_PLUGIN}")):
        missing.append("libasound2-plugins")
    if not missing:
        return
    message = f"{', '.join(missing)} missing: install what tools/test-packages.txt lists"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


class Recording:
    """What a sink plays, recorded by the server's own recorder, with the times of the samples."""

    def __init__(self, pulse: PulseServer, source: str, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self._pieces: list[tuple[float, bytes]] = []
        self._process = subprocess.Popen(
            ["parec", f"--device={source}", "--latency-msec=5", f"--rate={rate_hz}", "--channels=1", "--format=s16le"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=pulse.environment,
        )
        self._thread = threading.Thread(target=self._read, name="recording", daemon=True)
        self._thread.start()
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._pieces:
            assert time.monotonic() < deadline_s, f"parec records nothing from {source}"
            time.sleep(0.01)

    def _read(self) -> None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while piece := os.read(descriptor, 1 << 16):
            self._pieces.append((time.monotonic(), piece))

    @property
    def samples(self) -> Samples:
        """All so far, [n] float32."""
        data = b"".join(piece for _, piece in list(self._pieces))
        return np.frombuffer(data[: len(data) // 2 * 2], dtype=np.int16).astype(np.float32) / 32768

    def time_of(self, sample: int) -> float:
        """Monotonic time at which a sample was played, as well as the earliest arrivals tell (some 5 ms late)."""
        best_s, count = np.inf, 0
        for arrival_s, piece in list(self._pieces):
            count += len(piece) // 2
            best_s = min(best_s, arrival_s - count / self.rate_hz)
        return float(best_s + sample / self.rate_hz)

    def close(self) -> Samples:
        """Stop, and give all of it."""
        self._process.terminate()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self.samples


class PulseServer:
    """The server, its two sinks, and the readers that keep their monitors awake."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: subprocess.Popen[bytes] | None = None
        self._keepers: dict[str, subprocess.Popen[bytes]] = {}
        self._playing: list[subprocess.Popen[bytes]] = []
        self._files = 0
        folder.chmod(0o700)
        (folder / "d.pa").write_text(
            f"load-module module-native-protocol-unix auth-anonymous=1 socket={folder}/native\n"
            + "".join(f"load-module module-null-sink {options}\n" for options in SINKS.values())
            + "set-default-sink spk\nset-default-source mic_in.monitor\n"
        )
        (folder / "asound.conf").write_text(
            "pcm.!default { type pulse }\nctl.!default { type pulse }\npcm.pulse { type pulse }\n"
        )
        (folder / "alsa.conf").write_text(f"</usr/share/alsa/alsa.conf>\n<{folder}/asound.conf>\n")
        self.settings = {
            "PULSE_RUNTIME_PATH": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
            "PULSE_SERVER": f"unix:{folder}/native",
            "PULSE_COOKIE": str(folder / "cookie"),
            "ALSA_CONFIG_PATH": str(folder / "alsa.conf"),
        }
        self.environment = {**os.environ, **self.settings, "HOME": str(folder)}

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        # A killed server leaves these, and the next one would take itself for running.
        for name in ("pid", "native"):
            (self._folder / name).unlink(missing_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [
                    *("pulseaudio", "-n", "-F", str(self._folder / "d.pa")),
                    *("--daemonize=no", "--exit-idle-time=-1", "--disable-shm=true"),
                ],
                stdout=log,
                stderr=log,
                env=self.environment,
            )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while subprocess.run(["pactl", "info"], env=self.environment, capture_output=True, check=False).returncode:
            assert self._server.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline_s, (self._folder / "log").read_text()
            time.sleep(0.05)
        for sink in SINKS:
            self._keep(sink)

    def kill(self) -> None:
        """End the server without a word, as a crash does."""
        assert self._server is not None
        self._server.kill()
        self._server.wait()
        self._end_readers()

    def close(self) -> None:
        """End everything that was started."""
        self._hush()
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGCONT)
            self._server.terminate()
            self._server.wait()
        self._end_readers()

    def ready(self) -> None:
        """Put back what an earlier test took away, and end what it left playing."""
        self._hush()
        if self._server is None or self._server.poll() is not None:
            self.start()
        for sink in SINKS:
            if f"\t{sink}\t" not in self.pactl("list", "short", "sinks"):
                self.plug(sink)
            elif self._keepers[sink].poll() is not None:
                self._keep(sink)

    def hang(self, *, hanging: bool) -> None:
        """Stop the server from answering, or let it go on."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP if hanging else signal.SIGCONT)

    def unplug(self, sink: str) -> None:
        """Pull a device out. What still plays into it ends: the server would go on with it elsewhere."""
        self._hush()
        for line in self.pactl("list", "short", "modules").splitlines():
            if f"sink_name={sink} " in line + " ":
                self.pactl("unload-module", line.split("\t")[0])
        keeper = self._keepers.pop(sink)
        keeper.kill()
        keeper.wait()

    def plug(self, sink: str) -> None:
        """Put it back."""
        self.pactl("load-module", "module-null-sink", *SINKS[sink].split())
        if sink == "spk":
            self.pactl("set-default-sink", "spk")
        else:
            self.pactl("set-default-source", "mic_in.monitor")
        self._keep(sink)

    def pactl(self, *arguments: str) -> str:
        """Run the server's tool."""
        done = subprocess.run(["pactl", *arguments], env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout

    def listeners(self, source: str) -> int:
        """Streams that record from a source, the keeper aside."""
        index = next(
            line.split("\t")[0]
            for line in self.pactl("list", "short", "sources").splitlines()
            if f"\t{source}\t" in line
        )
        rows = [line.split("\t") for line in self.pactl("list", "short", "source-outputs").splitlines()]
        return sum(row[1] == index for row in rows) - 1

    def say(self, samples: Samples, rate_hz: int = MIC_RATE_HZ, sink: str = "mic_in") -> subprocess.Popen[bytes]:
        """Begin to play [n] float32 into the microphone (wait for the process to have played it)."""
        self._files += 1
        file = self._folder / f"say-{self._files}.wav"
        write_wav(file, [samples], rate_hz)
        process = subprocess.Popen(
            ["paplay", f"--device={sink}", str(file)], env=self.environment, stderr=subprocess.DEVNULL
        )
        self._playing.append(process)
        return process

    @contextmanager
    def record(self, source: str = "spk.monitor", rate_hz: int = SPEAKER_RATE_HZ) -> Iterator[Recording]:
        """Record what a sink plays."""
        recording = Recording(self, source, rate_hz)
        try:
            yield recording
        finally:
            recording.close()

    def _keep(self, sink: str) -> None:
        """Read a monitor all the time: a sink that nobody hears plays in steps of two seconds."""
        self._keepers[sink] = subprocess.Popen(
            ["parec", f"--device={sink}.monitor", "--latency-msec=5"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.environment,
        )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while self._latency_s(sink) > STEADY_S:
            assert time.monotonic() < deadline_s, f"{sink} does not come to play in short steps"
            time.sleep(0.05)

    def _latency_s(self, sink: str) -> float:
        """How far ahead a sink has played."""
        part = self.pactl("list", "sinks").split(f"Name: {sink}\n", 1)[1]
        found = re.search(r"Latency: (\d+) usec", part)
        assert found is not None
        return int(found[1]) / 1e6

    def _hush(self) -> None:
        for process in self._playing:
            process.kill()
            process.wait()
        self._playing.clear()

    def _end_readers(self) -> None:
        for keeper in self._keepers.values():
            keeper.kill()
            keeper.wait()
        self._keepers.clear()


@contextmanager
def pulse_server(folder: Path) -> Iterator[PulseServer]:
    """A running server, with this process's own sound led to it."""
    need_pulse()
    server = PulseServer(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.settings.items():
            patch.setenv(name, value)
        server.start()
        try:
            yield server
        finally:
            server.close()
