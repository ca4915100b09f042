"""What the probe makes of a machine's files, case by case."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hw.probe import Machine, ReplayRunner, Root, probe_root
from hw.probe.commands import TIMEOUT_S, CommandResult
from hw.probe.known import known, precision_support, version, x86_name
from hw.probe.machine import FIELDS
from tests.hw import roots
from tests.hw.roots import ORIN

X86 = {
    "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 190\nstepping\t: 0\n"
    "model name\t: Intel(R) N100\nflags\t\t: fpu lm avx2 avx_vnni\n\n",
    "proc/meminfo": "MemTotal:       16000000 kB\nMemAvailable:   15000000 kB\nSwapTotal:             0 kB\n",
}


def _probe(tmp_path: Path, files: dict[str, str | bytes], **commands: str) -> Machine:
    rows = [{"argv": name.replace("_", "-", 1).split("__"), "rc": 0, "stdout": f"{name}.txt"} for name in commands]
    texts = {f"commands/{name}.txt": text for name, text in commands.items()}
    roots.write(tmp_path, {"commands/index.json": json.dumps(rows), **files, **texts})
    return probe_root(Root(tmp_path))


def _dpkg(**packages: str) -> dict[str, str | bytes]:
    stanzas = [
        f"Package: {name.replace('_', '-')}\nStatus: install ok installed\nVersion: {number}\n"
        for name, number in packages.items()
    ]
    return {"var/lib/dpkg/status": "\n".join(stanzas) + "\n"}


# ---- boards -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compatible", "chip", "module", "carrier"),
    [
        ("nvidia,quill\0nvidia,p2597-0000+p3310-1000\0nvidia,tegra186\0", "tegra186", "p3310-1000", "p2597-0000"),
        ("nvidia,galen\0nvidia,p2822-0000+p2888-0001\0nvidia,tegra194\0", "tegra194", "p2888-0001", "p2822-0000"),
        ("nvidia,p2972-0000\0nvidia,tegra194\0", "tegra194", None, None),
        ("nvidia,jetson-cv\0nvidia,tegra210\0", "tegra210", None, None),
        ("nvidia,p3768-0000+p3767-0001-super\0nvidia,tegra234\0", "tegra234", "p3767-0001", "p3768-0000"),
        ("acme,box\0nvidia,p3767-0000\0nvidia,tegra234\0nvidia,tegra23x\0", "tegra234", "p3767-0000", None),
        ("nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234", "tegra234", "p3767-0005", "p3768-0000"),
        ("radxa,rock-5b\0rockchip,rk3588\0", "rk3588", "radxa,rock-5b", None),
        ("radxa,rock-5b\0rockchip,rk35", None, "radxa,rock-5b", None),
        ("nvidia,p3768-0000+p3767-0005\0nvidia,tegra23x\0", None, None, None),
        ("\0\0\0", None, None, None),
        ("nonsense\0\x1b[31m\0", None, None, None),
    ],
)  # fmt: skip
def test_the_device_tree_names_chip_and_module(
    tmp_path: Path, compatible: str, chip: str | None, module: str | None, carrier: str | None
) -> None:
    machine = _probe(tmp_path, {**ORIN, "proc/device-tree/compatible": compatible})
    assert (machine.chip, machine.module, machine.carrier) == (chip, module, carrier)


def test_older_trees_name_the_module_in_boardids(tmp_path: Path) -> None:
    tree = {"proc/device-tree/compatible": "nvidia,quill\0nvidia,tegra186\0", "proc/device-tree/model": "quill\0"}
    machine = _probe(tmp_path, {**ORIN, **tree, "proc/device-tree/nvidia,boardids": "3310:1000:B02\0"})
    assert (machine.module, machine.model) == ("p3310-1000", "quill")
    assert machine.gpu == "Pascal, 256 CUDA cores"
    assert (machine.sm, machine.dla_count, machine.tensor_cores) == ("6.2", 0, False)


def test_a_module_that_is_not_known_has_no_counted_cores(tmp_path: Path) -> None:
    machine = _probe(tmp_path, {**ORIN, "proc/device-tree/compatible": "nvidia,p3767-0999\0nvidia,tegra234\0"})
    assert (machine.gpu, machine.sm, machine.dla_count) == ("Ampere", "8.7", None)


def test_the_image_s_build_target_is_never_the_board(tmp_path: Path) -> None:
    release = "# R32 (release), REVISION: 7.1, GCID: 29818004, BOARD: t186ref, EABI: aarch64\n"
    machine = _probe(tmp_path, {**ORIN, "etc/nv_tegra_release": release})
    assert (machine.chip, machine.l4t, machine.jetpack_from_l4t) == ("tegra234", "32.7.1", "4.6.1")


@pytest.mark.parametrize(
    ("release", "l4t", "jetpack"),
    [
        ("# R36 (release), REVISION: 4.4, GCID: 1\n", "36.4.4", "6.2.1"),
        ("# R35 (release), REVISION: 1.0, GCID: 1\r\n", "35.1.0", "5.0.2"),
        ("# R41 (release), REVISION: 1.0, GCID: 1\n", "41.1.0", None),
        ("# R36 (release), REVISION: 4", None, None),
        ("\n# R36 (release), REVISION: 4.4, GCID: 1\n", None, None),
        ("", None, None),
    ],
)
def test_a_release_is_mapped_only_where_it_is_known(
    tmp_path: Path, release: str, l4t: str | None, jetpack: str | None
) -> None:
    machine = _probe(tmp_path, {**ORIN, "etc/nv_tegra_release": release})
    assert (machine.l4t, machine.jetpack_from_l4t) == (l4t, jetpack)


def test_the_package_stands_in_for_the_release_file(tmp_path: Path) -> None:
    machine = _probe(tmp_path, {**ORIN, "etc/nv_tegra_release": "?\n", **_dpkg(nvidia_l4t_core="36.4.3-20250107")})
    assert machine.l4t == "36.4.3"
    assert machine.sources["l4t"] == "package nvidia-l4t-core"


def test_two_sources_that_disagree_are_both_named(tmp_path: Path) -> None:
    packages = _dpkg(nvidia_l4t_core="36.4.4-20250616", nvidia_jetpack="6.2.1+b38", libnvinfer10="10.3.0.30-1+cuda12.5",
                     python3_libnvinfer="10.7.0.23-1+cuda12.6")  # fmt: skip
    machine = _probe(tmp_path, {**ORIN, **packages})
    assert (machine.l4t, machine.jetpack_metapackage, machine.jetpack_from_l4t) == ("36.4.3", "6.2.1+b38", "6.2")
    said = "\n".join(machine.warnings)
    assert "36.4.3" in said
    assert "36.4.4" in said
    assert "6.2.1+b38" in said
    assert "library is 10.3.0.30, its Python bindings are 10.7.0.23" in said


# ---- processor and memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor", "numbers", "name"),
    [
        ("GenuineIntel", (6, 85, 4), "Skylake"),
        ("GenuineIntel", (6, 85, 7), "Cascade Lake"),
        ("GenuineIntel", (6, 143, 8), "Sapphire Rapids"),
        ("GenuineIntel", (6, 190, 0), "Alder Lake-N"),
        ("AuthenticAMD", (25, 33, 0), "Zen 3"),
        ("AuthenticAMD", (25, 97, 2), "Zen 4"),
        ("AuthenticAMD", (26, 68, 0), "Zen 5"),
        ("AuthenticAMD", (99, 0, 0), None),
        ("Nobody", (6, 85, 4), None),
    ],
)
def test_micro_architectures(vendor: str, numbers: tuple[int, int, int], name: str | None) -> None:
    assert x86_name(vendor, *numbers) == name


def test_instruction_sets_of_x86(tmp_path: Path) -> None:
    machine = _probe(tmp_path, X86)
    assert (machine.arch, machine.chip, machine.soc) == ("x86_64", "x86_64", "Alder Lake-N")
    assert machine.cpu == {"name": "Intel(R) N100", "avx2": True, "avx512f": False, "avx512_vnni": False,
                           "avx_vnni": True, "amx_int8": False}  # fmt: skip
    assert machine.cpu_clusters is not None
    assert machine.cpu_clusters[0].cores == (0,)


def test_cores_of_two_kinds_share_what_both_can(tmp_path: Path) -> None:
    core = "processor\t: {}\nFeatures\t: {}\nCPU implementer\t: 0x41\nCPU part\t: {}\n\n"
    text = "".join(
        core.format(n, "fp asimd asimddp" + (" i8mm" if n > 1 else ""), "0xd0b" if n > 1 else "0xd05") for n in range(4)
    )
    machine = _probe(tmp_path, {**ORIN, "proc/cpuinfo": text})
    assert machine.cpu == {
        "name": "Cortex-A55 + Cortex-A76",
        "dotprod": True,
        "i8mm": False,
        "sve": False,
        "bf16": False,
    }
    assert machine.cpu_clusters is not None
    assert [(cluster.name, cluster.cores) for cluster in machine.cpu_clusters] == [
        ("Cortex-A55", (0, 1)),
        ("Cortex-A76", (2, 3)),
    ]


def test_a_32_bit_arm_is_told_apart(tmp_path: Path) -> None:
    text = "processor\t: 0\nFeatures\t: half thumb neon vfpv4\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\n\n"
    assert _probe(tmp_path, {**ORIN, "proc/cpuinfo": text}).arch == "armv7l"


@pytest.mark.parametrize(
    ("total", "jetson", "nominal"),
    [(7015424, True, 8), (3355443, True, 4), (2900000, True, 4), (2900000, False, 3), (1980000, True, 2),
     (32780000, False, 32), (12000000, False, 12), (10**15 - 1, False, None)],
)  # fmt: skip
def test_memory_as_it_is_sold(tmp_path: Path, total: int, jetson: bool, nominal: int | None) -> None:
    files = {**(ORIN if jetson else X86), "proc/meminfo": f"MemTotal: {total} kB\n"}
    assert _probe(tmp_path, files).ram_nominal_gb == nominal


# ---- what is installed --------------------------------------------------------------------------------------------


def test_removed_virtual_and_odd_packages_do_not_count(tmp_path: Path) -> None:
    text = (
        "Package: libnvinfer10\nStatus: deinstall ok config-files\nVersion: 10.3.0.30-1\n\n"
        "Package: libnvinfer10-cuda-13.2\nStatus: install ok installed\nVersion: \n\n"
        "Package: libnvinfer8\nStatus: install ok installed\nVersion: eight\n\n"
        "Package: libnvinfer-lean10\nStatus: install ok installed\nVersion: 10.9.0.1-1\n\n"
        "Package: libcudnn8\nStatus: install ok installed\nDescription: none\n Version: 9.9.9\n\n"
    )
    machine = _probe(tmp_path, {**ORIN, "var/lib/dpkg/status": text})
    assert (machine.tensorrt, machine.cudnn) == (None, None)
    assert any("libnvinfer8 has no version that can be read: eight" in text for text in machine.warnings)


def test_without_a_package_list_the_library_s_own_name_tells(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/aarch64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libnvinfer.so.10").symlink_to("libnvinfer.so.10.3.0")
    assert _probe(tmp_path, ORIN).tensorrt == "10.3.0"


@pytest.mark.parametrize(
    ("files", "cuda"),
    [
        ({"usr/local/cuda/version.json": '{"cuda": {"version": "13.2.2"}}'}, "13.2.2"),
        ({"usr/local/cuda/version.json": '{"cuda": {"version": 13}}'}, None),
        ({"usr/local/cuda/version.json": "[" * 5000}, None),
        ({"usr/local/cuda/version.txt": "CUDA Version 10.2.300\n"}, "10.2.300"),
        (_dpkg(cuda_cudart_12_6="12.6.68-1"), "12.6"),
        (_dpkg(cuda_cudart_12_2="12.2.1-1", cuda_toolkit_12_6="12.6.2-1"), "12.6"),
        (_dpkg(libcudnn9_cuda_13="9.12.0.46-1"), "13.0"),
        (_dpkg(python3="3.10.6-1~22.04"), None),
        ({}, None),
    ],
)
def test_the_cuda_runtime_is_what_is_installed(tmp_path: Path, files: dict[str, str | bytes], cuda: str | None) -> None:
    banner = "| NVIDIA-SMI 580.00    Driver Version: 580.00    CUDA Version: 13.0     |\n"
    assert _probe(tmp_path, {**ORIN, **files}, nvidia_smi=banner).cuda == cuda


def test_a_banner_installs_nothing_on_a_desktop(tmp_path: Path) -> None:
    banner = "| NVIDIA-SMI 580.00    Driver Version: 580.00    CUDA Version: 13.0     |\n"
    machine = _probe(tmp_path, {**X86, **_dpkg(libcudnn9_cuda_13="9.12.0.46-1")}, nvidia_smi=banner)
    assert (machine.cuda, machine.cudnn, machine.driver) == (None, "9.12.0", "580.00")


@pytest.mark.parametrize(
    ("release", "packages", "python"),
    [
        ('ID=ubuntu\nVERSION_ID="22.04"\n', {"python3": "3.10.6-1~22.04"}, "3.10"),
        ('ID=ubuntu\nVERSION_ID="22.04"\n', {"python3": "3.10.6-1", "python3.10": "3.10.12-1~22.04"}, "3.10.12"),
        ('ID=ubuntu\nVERSION_ID="24.04"\n', {"python3": "3.12.3-0ubuntu2.1"}, "3.12.3"),
        ('ID=ubuntu\nVERSION_ID="25.10"\n', {"python3": "3.13.7-1"}, "3.13.7"),
        ("ID=arch\n", {}, None),
        ("", {"python3": "3.10.6-1"}, "3.10"),
        ("ID=debian\nVERSION_ID=1", {"python3": "3.11.2-1+b1"}, "3.11"),
    ],
)
def test_the_system_s_python(tmp_path: Path, release: str, packages: dict[str, str], python: str | None) -> None:
    assert _probe(tmp_path, {**X86, "etc/os-release": release, **_dpkg(**packages)}).system_python == python


def test_an_l4t_image_brings_its_ubuntu_s_python(tmp_path: Path) -> None:
    assert _probe(tmp_path, ORIN).system_python == "3.10.12"


# ---- GPU ----------------------------------------------------------------------------------------------------------

CARDS = "NVIDIA GeForce GT 1030, 6.1\nNVIDIA GeForce RTX 4090, 8.9\n"
CARD_MEMORY = "NVIDIA GeForce GT 1030, 2048 MiB, 1 MiB, 580.1\nNVIDIA GeForce RTX 4090, 24564 MiB, 1 MiB, 580.1\n"
CAPABILITY = "nvidia_smi__--query-gpu=name,compute_cap__--format=csv,noheader"
MEMORY = "nvidia_smi__--query-gpu=name,memory.total,memory.used,driver_version__--format=csv,noheader"


def test_of_several_cards_the_most_capable_counts(tmp_path: Path) -> None:
    machine = _probe(tmp_path, X86, **{"nvidia_smi": "banner\n", CAPABILITY: CARDS, MEMORY: CARD_MEMORY})
    assert (machine.gpu, machine.sm, machine.gpu_memory) == ("NVIDIA GeForce RTX 4090", "8.9", "24564 MiB")
    assert machine.precision_support == {"fp16": True, "int8": True, "fp8": True, "bf16": True}
    assert (machine.tensor_cores, machine.dla_count, machine.driver) == (True, 0, "580.1")


def test_a_driver_that_does_not_answer_leaves_the_card_unknown(tmp_path: Path) -> None:
    rows = [{"argv": ["nvidia-smi"], "rc": 9, "stdout": "said.txt"}]
    roots.write(
        tmp_path, {**X86, "commands/index.json": json.dumps(rows), "commands/said.txt": "NVIDIA-SMI has failed\n"}
    )
    machine = probe_root(Root(tmp_path))
    assert (machine.gpu, machine.sm, machine.tensor_cores) == (None, None, None)
    assert "nvidia-smi does not work: NVIDIA-SMI has failed" in machine.warnings


def test_without_the_tool_the_driver_still_names_the_card(tmp_path: Path) -> None:
    driver = {
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release\n",
        "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA GeForce RTX 3060\nIRQ: 1\n",
    }
    machine = _probe(tmp_path, {**X86, **driver})
    assert (machine.gpu, machine.driver, machine.sm) == ("NVIDIA GeForce RTX 3060", "580.126.09", None)


def test_a_gtx_16_has_no_tensor_cores(tmp_path: Path) -> None:
    machine = _probe(tmp_path, X86, **{"nvidia_smi": "x\n", CAPABILITY: "NVIDIA GeForce GTX 1660 SUPER, 7.5\n"})
    assert (machine.sm, machine.tensor_cores) == ("7.5", False)


@pytest.mark.parametrize(("cuda", "sm"), [("12.9", "10.1"), ("13.0", "11.0"), (None, "11.0")])
def test_thor_has_two_names_for_one_capability(tmp_path: Path, cuda: str | None, sm: str) -> None:
    tree = {"proc/device-tree/compatible": "nvidia,p4071-0000+p3834-0008\0nvidia,tegra264\0"}
    files = {} if cuda is None else _dpkg(**{f"cuda_cudart_{cuda.replace('.', '_')}": "1-1"})
    assert _probe(tmp_path, {**ORIN, **tree, **files}).sm == sm


@pytest.mark.parametrize(
    ("sm", "fp16", "int8", "bf16"),
    [("5.2", False, False, False), ("5.3", True, False, False), ("6.1", False, True, False),
     ("6.2", True, False, False), ("7.5", True, True, False), ("8.7", True, True, True), ("12.1", True, True, True)],
)  # fmt: skip
def test_what_a_capability_multiplies(sm: str, fp16: bool, int8: bool, bf16: bool) -> None:
    found = precision_support(sm)
    assert found is not None
    assert (found["fp16"], found["int8"], found["bf16"]) == (fp16, int8, bf16)


def test_a_capability_older_than_the_table_is_unknown() -> None:
    assert precision_support("3.5") is None


# ---- the rest -----------------------------------------------------------------------------------------------------


def test_sound_cards_and_disk(tmp_path: Path) -> None:
    files = {
        "proc/asound/cards": " 0 [PCH            ]: HDA-Intel - HDA Intel PCH\n"
        "                      HDA Intel PCH at 0xf7f30000 irq 30\n"
        " 1 [Array          ]: USB-Audio - ReSpeaker 4 Mic Array\n",
        "proc/asound/pcm": "00-00: ALC892 : ALC892 : playback 1 : capture 1\n00-03: HDMI : HDMI : playback 1\n"
        "01-00: Array : : capture 1\n",
        "proc/mounts": "rootfs / rootfs rw 0 0\n/dev/sda2 / ext4 rw 0 0\n",
        "sys/block/sda/queue/rotational": "1\n",
    }
    machine = _probe(tmp_path, {**X86, **files})
    assert machine.audio is not None
    assert [(d.card, d.id, d.name, d.capture, d.playback) for d in machine.audio] == [
        (0, "PCH", "HDA Intel PCH", 1, 2),
        (1, "Array", "ReSpeaker 4 Mic Array", 1, 0),
    ]
    assert machine.disk is not None
    assert (machine.disk.device, machine.disk.kind, machine.disk.read_mb_s) == ("sda2", "hdd", None)


def test_power_mode_behind_warnings(tmp_path: Path) -> None:
    text = "NVPM WARN: fan mode is not set!\nNV Power Mode: MODE_15W_6CORE\n2\n"
    machine = _probe(tmp_path, ORIN, nvpmodel__q=text)
    assert machine.power_mode is None  # recorded under another name
    roots.write(
        tmp_path, {"commands/index.json": '[{"argv": ["nvpmodel", "-q"], "rc": 0, "stdout": "nvpmodel__q.txt"}]'}
    )
    assert probe_root(Root(tmp_path)).power_mode == "MODE_15W_6CORE"


def test_governors_and_the_gpu_s_clock(tmp_path: Path) -> None:
    files = {
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "schedutil\n",
        "sys/devices/system/cpu/cpufreq/policy10/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/cpufreq/policy4/scaling_governor": "\n",
        "sys/class/devfreq/bwmgr/max_freq": "4266000000\n",
        "sys/class/devfreq/17000000.gpu/max_freq": "624750000\n",
    }
    machine = _probe(tmp_path, {**ORIN, **files})
    assert machine.governors == {"policy0": "schedutil", "policy10": "powersave"}
    assert machine.gpu_max_mhz == 624


class SleepingRunner:
    """A fake whose programs hang in a way that no time limit ends."""

    def run(self, *argv: str, timeout_s: float = TIMEOUT_S, lines: int | None = None) -> CommandResult:
        time.sleep(3)
        return CommandResult(0)


def test_a_machine_that_hangs_is_left_alone(tmp_path: Path) -> None:
    roots.write(tmp_path, {**ORIN})
    started_s = time.monotonic()
    machine = probe_root(Root(tmp_path), SleepingRunner(), deadline_s=0.3)
    assert time.monotonic() - started_s < 2
    assert machine.chip == "tegra234"  # found before it hung
    assert machine.l4t is None
    assert any("broken off" in text for text in machine.warnings)


def test_a_fault_of_ours_costs_its_facts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots.write(tmp_path, {**ORIN})
    monkeypatch.setattr("hw.probe.processor.gather_memory", lambda root, facts: 1 / 0)
    machine = probe_root(Root(tmp_path))
    assert machine.ram_total_kib is None
    assert machine.sm == "8.7"
    assert any("has a fault (ZeroDivisionError" in text for text in machine.warnings)


def test_every_fact_says_where_it_came_from(tmp_path: Path) -> None:
    machine = _probe(tmp_path, ORIN)
    assert set(machine.sources) == set(FIELDS)
    assert all(machine.sources.values())
    for name in FIELDS:
        if machine.sources[name].startswith("unknown: "):
            assert getattr(machine, name) is None
            assert any(text.startswith(f"{name} is unknown") for text in machine.warnings)


def test_temperatures_do_not_change_what_a_machine_is(tmp_path: Path) -> None:
    zone = {"sys/class/thermal/thermal_zone0/type": "cpu-thermal\n", "sys/class/thermal/thermal_zone0/temp": "41000\n"}
    cool = _probe(tmp_path, {**ORIN, **zone})
    warm = _probe(tmp_path, {"sys/class/thermal/thermal_zone0/temp": "71000\n"})
    assert (cool.max_temp_c, warm.max_temp_c) == (41.0, 71.0)
    assert cool.digest == warm.digest
    assert cool.digest != _probe(tmp_path, {"proc/meminfo": "MemTotal: 4000000 kB\n"}).digest


def test_the_tables_are_whole() -> None:
    assert all({"soc", "sm", "gpu"} <= row.keys() for row in known()["chip"].values())
    assert all(version(l4t) and len(version(l4t)) == 3 for l4t in known()["jetpack"])
    assert all("cuda_cores" in row for row in known()["module"].values())
    assert version("10.3.0.30-1+cuda12.5") == (10, 3, 0, 30)
    assert version("x") == version("") == ()


def test_a_recording_is_what_answers_for_a_root(tmp_path: Path) -> None:
    roots.write(tmp_path, {**ORIN})
    assert probe_root(Root(tmp_path)) == probe_root(Root(tmp_path), ReplayRunner(Root(tmp_path)))
