"""The processor and the memory: /proc/cpuinfo, /proc/meminfo, and cpufreq's governors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from hw.errors import UnreadableError
from hw.probe.facts import Facts
from hw.probe.known import known, x86_name
from hw.probe.machine import Cluster
from hw.probe.root import Root, complete_lines, printable

__all__ = ["gather_governors", "gather_memory", "gather_processor"]

CPUINFO: Final = "proc/cpuinfo"
MEMINFO: Final = "proc/meminfo"
_CPUINFO_LIMIT: Final = 8 << 20
"""256 cores write about 400 KB."""

_ARM_SETS: Final = {"dotprod": "asimddp", "i8mm": "i8mm", "sve": "sve", "bf16": "bf16"}
"""Our name -> the kernel's (Documentation/arch/arm64/elf_hwcaps.rst)."""
_X86_SETS: Final = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")
_FREQUENCIES: Final = "sys/devices/system/cpu/cpufreq"

_TEGRA_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_OTHER_SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""GiB that memory is sold in. The kernel shows less: up to a fifth is the GPU's and the firmware's."""

Block = Mapping[str, str]


def gather_processor(root: Root, facts: Facts) -> None:
    """arch, cpu_cores, cpu, cpu_clusters; on x86 chip and soc too."""
    try:
        text = root.text(CPUINFO, _CPUINFO_LIMIT)
        blocks = _blocks(text)
        if not blocks:
            raise UnreadableError(f"{CPUINFO} lists no processor")
    except UnreadableError as error:
        for name in ("arch", "cpu_cores", "cpu", "cpu_clusters"):
            facts.unknown(name, str(error))
        return
    first = blocks[0]
    arch = _arch(first)
    if arch is None:
        facts.unknown("arch", f"{CPUINFO} looks like neither x86 nor ARM")
        facts.unknown("cpu", "the architecture is unknown")
    else:
        facts.put("arch", arch, CPUINFO)
        if arch in ("x86_64", "i686"):
            _x86(first, facts, arch)
        else:
            _arm(blocks, facts)
    # The kernel ends each processor's block with an empty line. With one block there is no other to compare with.
    lone = len(blocks) == 1 and not re.search(r"\n\s*\n", text)
    if not text.endswith("\n") or lone or first.keys() - blocks[-1].keys():
        # A count of what is left would be a wrong number, not an unknown one.
        facts.unknown("cpu_cores", f"{CPUINFO} is cut off")
        facts.unknown("cpu_clusters", f"{CPUINFO} is cut off")
        return
    facts.put("cpu_cores", len(blocks), CPUINFO)
    facts.put("cpu_clusters", _clusters(blocks), CPUINFO)


def gather_memory(root: Root, facts: Facts) -> None:
    """ram_total_kib, ram_nominal_gb, ram_available_kib, swap_total_kib. Needs `chip` before it."""
    wanted = {"MemTotal": "ram_total_kib", "MemAvailable": "ram_available_kib", "SwapTotal": "swap_total_kib"}
    try:
        text = root.text(MEMINFO)
    except UnreadableError as error:
        for name in (*wanted.values(), "ram_nominal_gb"):
            facts.unknown(name, str(error))
        return
    lines = [re.fullmatch(r"(\w+):\s+([0-9]{1,15}) kB", line.rstrip()) for line in complete_lines(text)]
    found = {m[1]: int(m[2]) for m in lines if m is not None}
    for key, name in wanted.items():
        if key in found:
            facts.put(name, found[key], MEMINFO)
        else:
            facts.unknown(name, f"{MEMINFO} has no {key}")
    total = found.get("MemTotal")
    if not total:
        facts.unknown("ram_nominal_gb", f"{MEMINFO} has no MemTotal")
        return
    chip = facts.get("chip")
    sizes = _TEGRA_SIZES if chip is not None and chip.startswith("tegra") else _OTHER_SIZES
    nominal = next((size for size in sizes if size << 20 >= total), None)
    if nominal is None:
        facts.unknown("ram_nominal_gb", f"{total} KiB is more than any size known here")
    else:
        facts.put("ram_nominal_gb", nominal, f"the next size above {MEMINFO}'s MemTotal")


def gather_governors(root: Root, facts: Facts) -> None:
    """governors."""
    found: dict[str, str] = {}
    try:
        for policy in root.names(_FREQUENCIES):
            if re.fullmatch(r"policy[0-9]+", policy):
                try:
                    found[policy] = printable(root.value(f"{_FREQUENCIES}/{policy}/scaling_governor"))
                except UnreadableError as error:
                    facts.warn(str(error))
    except UnreadableError as error:
        facts.absent("governors", str(error))
        return
    if found:
        facts.put("governors", dict(sorted(found.items(), key=lambda item: int(item[0][6:]))), _FREQUENCIES)
    else:
        facts.absent("governors", f"{_FREQUENCIES} has no policy: the clock is not ours to set")


def _blocks(text: str) -> list[Block]:
    """The blocks that describe a processor, one a core."""
    blocks: list[Block] = []
    # A line that was cut off is none: half a list of features would deny those behind the cut.
    for part in re.split(r"\n\s*\n", "\n".join(complete_lines(text))):
        pairs = (line.partition(":") for line in part.split("\n") if ":" in line)
        block = {key.strip(): value.strip() for key, _, value in pairs}
        if re.fullmatch(r"[0-9]{1,5}", block.get("processor", "")):
            blocks.append(block)
    return blocks


def _arch(block: Block) -> str | None:
    flags, features = block.get("flags", "").split(), block.get("Features", "").split()
    if "vendor_id" in block and flags:
        return "x86_64" if "lm" in flags else "i686"
    if features:
        # A 64-bit kernel names its vector unit asimd, a 32-bit one neon.
        return "aarch64" if "asimd" in features or "fp" in features else "armv7l"
    return None


def _x86(block: Block, facts: Facts, arch: str) -> None:
    flags = set(block["flags"].split())
    name = printable(block["model name"]) if block.get("model name") else None
    facts.put("cpu", {"name": name, **{s: s in flags for s in _X86_SETS}}, f"{CPUINFO} (model name, flags)")
    facts.put("chip", arch, CPUINFO)
    numbers = [block.get(key, "") for key in ("cpu family", "model", "stepping")]
    if not all(number.isascii() and number.isdigit() and len(number) < 6 for number in numbers):
        facts.unknown("soc", f"{CPUINFO} does not give family, model and stepping")
        return
    family, model, stepping = map(int, numbers)
    soc = x86_name(block["vendor_id"], family, model, stepping)
    if soc is None:
        facts.unknown("soc", f"no {block['vendor_id']} family {family} model {model} is known")
    else:
        facts.put("soc", soc, f"known of {block['vendor_id']} family {family} model {model}")


def _arm(blocks: Sequence[Block], facts: Facts) -> None:
    # What not every core has cannot be used: a thread may run on any of them.
    features = set.intersection(*(set(block["Features"].split()) for block in blocks if "Features" in block))
    names = list(dict.fromkeys(name for block in blocks if (name := _core(block)) is not None))
    if not names:
        facts.warn(f"{CPUINFO} names no kind of core known here: {_part(blocks[0])}")
    sets = {ours: kernel in features for ours, kernel in _ARM_SETS.items()}
    facts.put("cpu", {"name": " + ".join(names) or None, **sets}, f"{CPUINFO} (CPU part, Features)")


def _clusters(blocks: Sequence[Block]) -> tuple[Cluster, ...]:
    """Runs of the same kind of core (x86 has one kind, by name)."""
    found: dict[tuple[str | None, str], list[int]] = {}
    for block in blocks:
        name = _core(block) if "CPU part" in block else None
        key = (name, _part(block) if "CPU part" in block else block.get("physical id", ""))
        found.setdefault(key, []).append(int(block["processor"]))
    return tuple(Cluster(name, tuple(cores)) for (name, _), cores in found.items())


def _part(block: Block) -> str:
    return printable(f"{block.get('CPU implementer', '?')} {block.get('CPU part', '?')}".lower())


def _core(block: Block) -> str | None:
    name = known()["arm"].get(_part(block))
    return None if name is None else str(name)
