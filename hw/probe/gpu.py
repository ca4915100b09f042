"""The GPU: NVIDIA's driver and tool, and what is known of a Tegra's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from hw.errors import UnreadableError
from hw.probe.commands import CommandResult, Runner
from hw.probe.facts import Facts
from hw.probe.known import known, precision_support, version
from hw.probe.root import Root, complete_lines, printable

__all__ = ["NvidiaSmi", "ask_nvidia_smi", "gather_gpu"]

DRIVER_FILE: Final = "proc/driver/nvidia/version"
_CAPABILITY: Final = ("nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader")
_MEMORY: Final = ("nvidia-smi", "--query-gpu=name,memory.total,memory.used,driver_version", "--format=csv,noheader")
_DEVFREQ: Final = "sys/class/devfreq"
_GPU_CLOCK: Final = re.compile(r"(?:[0-9a-f]+\.(?:gpu|g[mpv][0-9]+b|ga10b)|gpu-gpc-0)")
"""Names of the GPU's clock on L4T 32 to 39; `gpu-nvd-0`, `bwmgr` and others are not it."""


@dataclass(frozen=True, slots=True)
class NvidiaSmi:
    """What nvidia-smi says. A field it prints as [N/A] is None."""

    missing: bool
    """No such program."""
    trouble: str | None = None
    """It is there and does not work: its first line."""
    name: str | None = None
    sm: str | None = None
    memory: str | None = None
    driver: str | None = None
    banner_cuda: str | None = None
    """The CUDA version in its banner: the newest that the driver can run, installed or not."""


def ask_nvidia_smi(runner: Runner) -> NvidiaSmi:
    """Ask the tool; where there are several cards, about the one of the highest compute capability."""
    banner = runner.run("nvidia-smi")
    if banner.missing:
        return NvidiaSmi(missing=True)
    if not banner.ok:
        text = (banner.stdout or banner.stderr).strip()
        reason = "it gives no answer in time" if banner.rc is None else f"exit code {banner.rc}"
        return NvidiaSmi(missing=False, trouble=printable(text.split("\n")[0]) or reason)
    text = "\n".join(complete_lines(banner.stdout))
    cuda = re.search(r"CUDA Version: ([0-9]+\.[0-9]+)\s", text)
    driver = re.search(r"Driver Version: ([0-9]+(?:\.[0-9]+)+)\s", text)
    cards = []
    memory = _rows(runner.run(*_MEMORY), 4)
    for number, row in enumerate(_rows(runner.run(*_CAPABILITY), 2)):
        sm = row[1] if re.fullmatch(r"[0-9]{1,2}\.[0-9]", row[1] or "") else None
        cards.append((version(sm or ""), -number, row[0], sm))
    _, number, name, sm = max(cards, default=((), 0, None, None))
    more = [cell or "" for cell in memory[-number]] if -number < len(memory) else [""] * 4
    return NvidiaSmi(
        missing=False,
        name=name or more[0] or None,
        sm=sm,
        memory=more[1] if re.fullmatch(r"[0-9]+ MiB", more[1]) else None,
        driver=more[3] if re.fullmatch(r"[0-9]+(\.[0-9]+)+", more[3]) else (driver[1] if driver else None),
        banner_cuda=None if cuda is None else cuda[1],
    )


def gather_gpu(root: Root, facts: Facts, smi: NvidiaSmi) -> None:
    """driver, sm, gpu, gpu_memory, tensor_cores, precision_support, dla_count, gpu_max_mhz.

    Needs `chip`, `module`, `cuda` before it.
    """
    chip = facts.get("chip")
    jetson = chip is not None and chip.startswith("tegra")
    if smi.trouble is not None:
        facts.warn(f"nvidia-smi does not work: {smi.trouble}")
    _driver(root, facts, smi)
    if jetson:
        _tegra(facts, smi)
    elif smi.name is not None and chip is not None:
        _card(facts, smi)
    elif chip is None or smi.trouble is not None or _has_driver(root):
        _no_answer(root, facts, smi)
    else:
        for name in ("sm", "gpu", "gpu_memory", "precision_support"):
            facts.absent(name, "no NVIDIA GPU: neither its driver nor nvidia-smi is there")
        facts.put("tensor_cores", False, "no NVIDIA GPU")
    sm = facts.get("sm")
    if sm is not None:
        _capability(facts, sm)
    if chip is not None and not jetson:
        facts.put("dla_count", 0, f"known of {chip}")
    _clock(root, facts)


def _driver(root: Root, facts: Facts, smi: NvidiaSmi) -> None:
    if smi.driver is not None:
        facts.put("driver", smi.driver, "nvidia-smi")
        return
    try:
        lines = complete_lines(root.text(DRIVER_FILE, 1 << 12))
        match = re.search(r"NVRM version:.*?\s([0-9]+(?:\.[0-9]+)+)\s", lines[0]) if lines else None
        if match is None:
            raise UnreadableError(f"{DRIVER_FILE} has no version")
        facts.put("driver", match[1], DRIVER_FILE)
    except UnreadableError as error:
        say = facts.absent if facts.get("chip") is not None and not _has_driver(root) else facts.unknown
        say("driver", f"nvidia-smi gives none, and {error}")


def _tegra(facts: Facts, smi: NvidiaSmi) -> None:
    chip, module = facts.get("chip"), facts.get("module")
    row: dict[str, Any] = {**known()["chip"].get(chip[:8], {}), **known()["module"].get(module, {})}
    facts.put("gpu_memory", "shared", f"known of {chip}")
    sm = row.get("sm")
    if smi.sm is not None:
        facts.put("sm", smi.sm, "nvidia-smi")
        if sm is not None and smi.sm not in (sm, row.get("sm_before_cuda_13")):
            facts.warn(f"nvidia-smi says compute capability {smi.sm}, chip {chip} is known to have {sm}")
    elif sm is not None:
        old = row.get("sm_before_cuda_13")
        cuda = version(facts.get("cuda") or "")
        facts.put("sm", old if old is not None and cuda and cuda < (13,) else sm, f"known of {chip}")
    else:
        facts.unknown("sm", f"no chip {chip} is known, and nvidia-smi gives none")
    if "gpu" not in row:
        facts.unknown("gpu", f"no chip {chip} is known")
        facts.unknown("dla_count", f"no chip {chip} is known")
        return
    parts = [row["gpu"]]
    if "cuda_cores" in row:
        parts.append(f"{row['cuda_cores']} CUDA cores")
        # A Volta's tensor cores are not told apart in what is known of the modules.
        parts += [f"{row['tensor_cores']} tensor cores"] if "tensor_cores" in row else []
    facts.put("gpu", ", ".join(parts), f"known of {module or chip}")
    if "dla" in row:
        facts.put("dla_count", row["dla"], f"known of {module if 'dla' not in known()['chip'][chip[:8]] else chip}")
    else:
        facts.unknown("dla_count", f"it differs by module, and module {module} is not known")


def _card(facts: Facts, smi: NvidiaSmi) -> None:
    facts.put("gpu", smi.name, "nvidia-smi")
    for name, value in (("sm", smi.sm), ("gpu_memory", smi.memory)):
        if value is not None:
            facts.put(name, value, "nvidia-smi")
        else:
            facts.unknown(name, "nvidia-smi gives none")


def _no_answer(root: Root, facts: Facts, smi: NvidiaSmi) -> None:
    """There may be a GPU and nobody tells about it."""
    why = smi.trouble or ("there is no nvidia-smi" if smi.missing else "the chip is unknown")
    for name in ("sm", "gpu", "gpu_memory", "precision_support", "tensor_cores", "dla_count"):
        facts.unknown(name, f"no chip is known, and {why}" if facts.get("chip") is None else why)
    if smi.sm is not None:
        facts.put("sm", smi.sm, "nvidia-smi")
    if smi.name is not None:
        facts.put("gpu", smi.name, "nvidia-smi")
        return
    try:
        for slot in root.names("proc/driver/nvidia/gpus"):
            text = root.text(f"proc/driver/nvidia/gpus/{slot}/information", 1 << 12)
            if (match := re.search(r"^Model:\s+(\S.*?)\s*\n", text, re.MULTILINE)) is not None:
                facts.put("gpu", printable(match[1]), f"proc/driver/nvidia/gpus/{slot}/information")
                return
    except UnreadableError as error:
        facts.unknown("gpu", f"{why}, and {error}")


def _capability(facts: Facts, sm: str) -> None:
    support = precision_support(sm)
    if support is None:
        facts.unknown("precision_support", f"compute capability {sm} is not in the table")
    else:
        facts.put("precision_support", support, f"known of compute capability {sm}")
    # GTX 16 has Turing's 7.5 without its tensor cores.
    cores = version(sm) >= (7, 0) and "GTX 16" not in (facts.get("gpu") or "")
    facts.put("tensor_cores", cores, f"known of compute capability {sm}")


def _clock(root: Root, facts: Facts) -> None:
    try:
        names = [name for name in root.names(_DEVFREQ) if _GPU_CLOCK.fullmatch(name)]
        if not names:
            raise UnreadableError(f"{_DEVFREQ} has no clock of a GPU")
        source = f"{_DEVFREQ}/{names[0]}/max_freq"
        facts.put("gpu_max_mhz", int(root.value(source)) // 1_000_000, source)
    except (UnreadableError, ValueError) as error:
        facts.absent("gpu_max_mhz", str(error))


def _has_driver(root: Root) -> bool:
    return root.exists("proc/driver/nvidia") or root.exists("dev/nvidiactl")


def _rows(result: CommandResult, columns: int) -> list[list[str | None]]:
    """Comma-separated answers; [N/A] and the like are None."""
    rows: list[list[str | None]] = []
    for line in complete_lines(result.stdout) if result.ok else ():
        cells = [printable(cell.strip()) for cell in line.split(",")]
        if len(cells) == columns:
            rows.append([None if not cell or cell.startswith("[") else cell for cell in cells])
    return rows
