"""What is installed: operating system, its Python, and NVIDIA's libraries, from the package list and version files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hw.errors import UnreadableError
from hw.probe.facts import Facts
from hw.probe.known import known, version
from hw.probe.root import Root, complete_lines, printable

__all__ = ["Packages", "gather_libraries", "gather_os", "gather_python", "read_packages"]

DPKG: Final = "var/lib/dpkg/status"
_DPKG_LIMIT: Final = 64 << 20
"""A desktop with everything has about 15 MB."""
_WANTED: Final = re.compile(
    r"nvidia-l4t-core|nvidia-jetpack(-.*)?|nvidia-cuda(-.*)?|cuda-.*|libcudnn[0-9]+.*|libnvinfer.*|python3-libnvinfer.*"
    r"|tensorrt(-libs)?|python3(\.[0-9]+)?"
)
_CUDA_PACKAGE: Final = re.compile(r"cuda-(?:cudart|toolkit|runtime|libraries)-([0-9]+)-([0-9]+)")
_DEBIAN: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:[-+~][A-Za-z0-9.+~-]*)?")
"""A Debian version whose upstream part is numbers, as all of NVIDIA's are."""
_VERSION: Final = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_CUDA_USER: Final = re.compile(r"nvidia-(?:cuda|jetpack).*|libcudnn[0-9]+.*|libnvinfer[0-9]+")
"""Packages that are of no use without a CUDA runtime."""
_LIBRARY_FOLDERS: Final = ("usr/lib/aarch64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib")
_TENSORRT_MAJORS: Final = range(12, 7, -1)


@dataclass(frozen=True, slots=True)
class Packages:
    """What is installed of what matters here."""

    versions: Mapping[str, str]
    """Package -> version."""
    whole: bool
    """Whether the package list was read to its end: then what it does not name is not installed."""
    source: str = DPKG

    def get(self, name: str) -> str | None:
        """The package's version, or None."""
        return self.versions.get(name)


def read_packages(root: Root, facts: Facts) -> Packages:
    """The installed packages, by dpkg's list."""
    try:
        text = root.text(DPKG, _DPKG_LIMIT)
    except UnreadableError as error:
        if root.exists(DPKG):
            facts.warn(str(error))
        return Packages({}, whole=False)
    whole = text.endswith("\n")
    if not whole:
        facts.warn(f"{DPKG} is cut off")
    found: dict[str, str] = {}
    # Only what ends in a newline is whole.
    for stanza in text[: text.rfind("\n") + 1].split("\n\n"):
        if stanza.lstrip().startswith("Package:"):
            row = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")
            name, number = row.get("Package", ""), row.get("Version", "").strip()
            # Virtual packages have an empty version, removed ones another status.
            if row.get("Status") == "install ok installed" and _WANTED.fullmatch(name):
                if _DEBIAN.fullmatch(number):
                    found[name] = number
                elif number:
                    facts.warn(f"{DPKG}: {name} has no version that can be read: {printable(number)}")
    return Packages(found, whole)


def gather_os(root: Root, facts: Facts) -> None:
    """os."""
    reason = ""
    for source in ("etc/os-release", "usr/lib/os-release"):
        try:
            lines = complete_lines(root.text(source, 1 << 16))
        except UnreadableError as error:
            reason = reason or str(error)
            continue
        pairs = (line.strip().partition("=") for line in lines)
        row = {key: value.strip("\"'") for key, _, value in pairs}
        if row.get("ID"):
            facts.put("os", printable(f"{row['ID']} {row.get('VERSION_ID', '')}".strip()), source)
            return
        reason = reason or f"{source} has no ID"
    facts.unknown("os", reason)


def gather_python(root: Root, facts: Facts, installed: Packages) -> None:
    """system_python. Needs `os` and `l4t` before it.

    The package `python3` is a name for `python3.N`, and on some releases keeps an older number than the interpreter
    has: where it disagrees with the release's known Python, or the release is unknown, only the first two numbers are
    certain.
    """
    usual = known()["python"].get(facts.get("os") or "")
    named = re.match(r"3\.[0-9]+(?:\.[0-9]+)?", installed.get("python3") or "")
    if named is not None:
        minor = ".".join(named[0].split(".")[:2])
        exact = re.match(r"3\.[0-9]+\.[0-9]+", installed.get(f"python{minor}") or "")
        if exact is not None:
            facts.put("system_python", exact[0], f"package python{minor} ({DPKG})")
        elif usual == named[0] or (usual is None and " " in (facts.get("os") or "")):
            facts.put("system_python", named[0], f"package python3 ({DPKG})")
        else:
            runs = f"{facts.get('os')} runs {usual}" if usual is not None else "the release is unknown"
            facts.put("system_python", minor, f"package python3 {named[0]} ({DPKG}); {runs}")
    elif usual is not None and facts.get("l4t") is not None:
        # L4T's root file system is that Ubuntu with its Python, which NVIDIA's bindings are built for.
        facts.put("system_python", usual, f"what {facts.get('os')} runs; the package list does not name it")
    else:
        try:
            target = re.fullmatch(r"(?:.*/)?python(3\.[0-9]+)", root.link("usr/bin/python3"))
            if target is None:
                raise UnreadableError("usr/bin/python3 points at no version")
            facts.put("system_python", target[1], "usr/bin/python3")
        except UnreadableError as error:
            facts.unknown("system_python", f"no package python3, and {error}")


def gather_libraries(root: Root, facts: Facts, installed: Packages, banner: str | None) -> None:
    """jetpack_metapackage, cuda, cudnn, tensorrt, tensorrt_bindings. Needs `chip` and `jetpack_from_l4t` before it.

    `banner` is the CUDA version in nvidia-smi's banner: what the driver could run, not what is installed.
    """
    versions = installed.versions
    package, release = installed.get("nvidia-jetpack"), facts.get("jetpack_from_l4t")
    _put(facts, "jetpack_metapackage", package, f"package nvidia-jetpack ({DPKG})", installed)
    number = re.match(r"[0-9]+(?:\.[0-9]+)+", package or "")
    if number is not None and release is not None and number[0] != release:
        facts.warn(f"the package nvidia-jetpack is {package}, the release L4T {facts.get('l4t')} is JetPack {release}")
    _put(facts, "cuda", *_cuda(root, facts, installed, banner), installed)
    cudnn = _highest(value for name, value in versions.items() if re.fullmatch(r"libcudnn[0-9]+(-cuda-[0-9]+)?", name))
    _put(facts, "cudnn", cudnn and ".".join(_upstream(cudnn).split(".")[:3]), f"package libcudnn ({DPKG})", installed)
    _put(facts, "tensorrt", *_tensorrt(root, versions), installed)
    bindings = installed.get("python3-libnvinfer")
    source = f"package python3-libnvinfer ({DPKG})"
    _put(facts, "tensorrt_bindings", bindings and _upstream(bindings), source, installed)
    have, need = facts.get("tensorrt"), facts.get("tensorrt_bindings")
    if have is not None and need is not None and have != need:
        facts.warn(f"TensorRT's library is {have}, its Python bindings are {need}")


def _cuda(root: Root, facts: Facts, installed: Packages, banner: str | None) -> tuple[str | None, str]:
    """(version, source) of the CUDA runtime."""
    for read in (_version_json, _version_txt):
        if (found := read(root))[0] is not None:
            return found
    numbers = {(int(m[1]), int(m[2])) for name in installed.versions if (m := _CUDA_PACKAGE.fullmatch(name))}
    if numbers:
        if len(numbers) > 1:
            facts.warn(f"several CUDA runtimes are installed: {', '.join(f'{a}.{b}' for a, b in sorted(numbers))}")
        return "{}.{}".format(*max(numbers)), f"packages ({DPKG})"
    user = next((name for name in installed.versions if _CUDA_USER.fullmatch(name)), None)
    if banner is not None and user is not None and _jetson(facts):
        # A Jetson's driver comes with its CUDA, and something that needs it is installed.
        return banner, f"nvidia-smi's banner, and {user} is installed ({DPKG})"
    return None, ""


def _version_json(root: Root) -> tuple[str | None, str]:
    source = "usr/local/cuda/version.json"
    try:
        data: Any = json.loads(root.read(source, 1 << 16))
        number = data["cuda"]["version"]
    except (UnreadableError, ValueError, KeyError, TypeError, RecursionError):
        return None, source
    return (number if isinstance(number, str) and _VERSION.fullmatch(number) else None), source


def _version_txt(root: Root) -> tuple[str | None, str]:
    source = "usr/local/cuda/version.txt"
    try:
        lines = complete_lines(root.text(source, 1 << 12))
    except UnreadableError:
        return None, source
    match = re.fullmatch(r"CUDA Version ([0-9]+(?:\.[0-9]+)+)", lines[0].strip()) if lines else None
    return (None if match is None else match[1]), source


def _tensorrt(root: Root, versions: Mapping[str, str]) -> tuple[str | None, str]:
    """(version, source) of TensorRT's library."""
    library = _highest(value for name, value in versions.items() if re.fullmatch(r"libnvinfer[0-9]+", name))
    if library is not None:
        return _upstream(library), f"package libnvinfer ({DPKG})"
    for name in ("tensorrt-libs", "tensorrt", "libnvinfer-bin"):  # these depend on the very same version of it
        if name in versions:
            return _upstream(versions[name]), f"package {name} ({DPKG})"
    return _soname(root)


def _soname(root: Root) -> tuple[str | None, str]:
    """Where there is no package list: what `libnvinfer.so.10` points at."""
    for folder in _LIBRARY_FOLDERS:
        for major in _TENSORRT_MAJORS:
            name = f"{folder}/libnvinfer.so.{major}"
            try:
                match = re.fullmatch(r"(?:.*/)?libnvinfer\.so\.([0-9]+(?:\.[0-9]+)+)", root.link(name))
            except UnreadableError:
                continue
            if match is not None:
                return match[1], name
    return None, ""


def _put(facts: Facts, name: str, value: str | None, source: str, installed: Packages) -> None:
    """The value, or the reason that there is none: where nothing is missing from the list, it is not installed."""
    if value is not None:
        facts.put(name, value, source)
    elif installed.whole:
        facts.absent(name, f"not installed ({DPKG})")
    elif facts.get("chip") is not None and not _jetson(facts):
        facts.absent(name, "no package list to tell")
    else:
        facts.unknown(name, f"{DPKG} cannot tell")


def _jetson(facts: Facts) -> bool:
    chip = facts.get("chip")
    return chip is not None and chip.startswith("tegra")


def _highest(versions: Iterable[str]) -> str | None:
    return max(versions, key=version, default=None)


def _upstream(text: str) -> str:
    """Debian's `10.3.0.30-1+cuda12.5` as `10.3.0.30`: what follows says what it was built with, not what it is."""
    return re.split(r"[-+~]", text)[0]
