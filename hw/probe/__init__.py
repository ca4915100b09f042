"""What machine this is: `probe()` for this one, `probe_root()` for one whose files lie in a folder."""

from __future__ import annotations

from hw.probe.commands import CommandResult, RealRunner, ReplayRunner, Runner
from hw.probe.gather import probe, probe_root
from hw.probe.machine import AudioDevice, Cluster, Core, Disk, Machine
from hw.probe.root import Root

__all__ = [
    "AudioDevice",
    "Cluster",
    "CommandResult",
    "Core",
    "Disk",
    "Machine",
    "RealRunner",
    "ReplayRunner",
    "Root",
    "Runner",
    "probe",
    "probe_root",
]
