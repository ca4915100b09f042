"""Temperatures and what to do about them: zones good and bad, stepping down before the machine does, power advice."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.power import PowerMode, PowerState, advise_power, read_power, read_sensors
from hw.probe import Machine, ReplayRunner, Root, probe_root
from hw.tegrastats import parse_tegrastats
from hw.thermal import DOWN_AFTER, Heat, HeatState, Reading, advise, read_zones, step
from tests.hw import roots


def _zone(number: int | str, kind: str, temp: str, **more: str) -> dict[str, str | bytes]:
    folder = f"sys/class/thermal/thermal_zone{number}"
    return {
        f"{folder}/type": kind + "\n",
        f"{folder}/temp": temp + "\n",
        **{f"{folder}/{k}": v for k, v in more.items()},
    }


def test_zones_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {}
    for number, kind in ((10, "ten"), (9, "nine"), (2, "two"), ("X", "none"), ("1x", "none")):
        files |= _zone(number, kind, "45000")
    zones = read_zones(Root(roots.write(tmp_path, files)))
    assert [reading.name for reading in zones.readings] == ["two", "nine", "ten"]
    assert zones.hottest_c == 45.0
    assert zones.slowed is None


@pytest.mark.parametrize("temp", ["-256000", "", "47.5", "nan", "1e5", "0x10", "99999999999999999999", "١٢٣٤٥", "-"])
def test_what_is_no_measurement_is_no_reading(tmp_path: Path, temp: str) -> None:
    zones = read_zones(Root(roots.write(tmp_path, _zone(0, "cpu-thermal", temp))))
    assert zones.readings == ()
    assert len(zones.skipped) == 1


def test_two_zones_of_one_name_stay_two(tmp_path: Path) -> None:
    zones = read_zones(Root(roots.write(tmp_path, _zone(0, "acpitz", "40000") | _zone(1, "acpitz", "50000"))))
    assert [(r.name, r.value, r.unit) for r in zones.readings] == [("acpitz", 40.0, "C"), ("acpitz (1)", 50.0, "C")]


def test_the_kernel_s_own_limit_is_taken(tmp_path: Path) -> None:
    trips = {
        "trip_point_0_type": "passive\n", "trip_point_0_temp": "35000\n",  # keeps a fan turning
        "trip_point_1_type": "passive\n", "trip_point_1_temp": "99000\n",
        "trip_point_2_type": "critical\n", "trip_point_2_temp": "80000\n",
    }  # fmt: skip
    assert read_zones(Root(roots.write(tmp_path, _zone(0, "tj-thermal", "50000", **trips)))).limit_c == 99.0


def test_a_fan_is_no_throttling(tmp_path: Path) -> None:
    devices = {
        "sys/class/thermal/cooling_device0/type": "pwm-fan\n",
        "sys/class/thermal/cooling_device0/cur_state": "3\n",
        "sys/class/thermal/cooling_device1/type": "cpu-throttle-alert\n",
        "sys/class/thermal/cooling_device1/cur_state": "0\n",
    }
    root = Root(roots.write(tmp_path, devices))
    assert read_zones(root).slowed == ()
    roots.write(tmp_path, {"sys/class/thermal/cooling_device1/cur_state": "2\n"})
    assert read_zones(root).slowed == ("cpu-throttle-alert",)
    assert probe_root(root).throttled is True


# ---- stepping down ------------------------------------------------------------------------------------------------


def _run(temperatures: list[float], limit_c: float = 85.0, state: HeatState | None = None) -> list[Heat]:
    levels, state = [], HeatState() if state is None else state
    for value in temperatures:
        state = step(state, [Reading("cpu", value, "C", "x")], limit_c)
        levels.append(state.heat)
    return levels


def test_one_hot_reading_is_a_glitch_and_two_are_heat() -> None:
    assert _run([60, 78, 60, 78, 78]) == [Heat.NORMAL] * 4 + [Heat.WARM]


def test_it_steps_down_before_the_limit_and_at_once_as_far_as_it_must() -> None:
    assert _run([82, 82])[-1] is Heat.HOT
    assert max(_run([80.9, 80.9, 80.9])) is Heat.WARM  # four degrees below the limit


def test_it_comes_back_slowly_and_one_level_at_a_time() -> None:
    levels = _run([82, 82] + [60] * (2 * DOWN_AFTER))
    assert levels[1 + DOWN_AFTER - 1] is Heat.HOT
    assert levels[1 + DOWN_AFTER] is Heat.WARM
    assert levels[-1] is Heat.NORMAL


def test_around_a_threshold_it_does_not_flutter() -> None:
    levels = _run([76, 74] * 3 + [76, 76] + [74, 76, 71, 74] * 20)
    assert sum(a is not b for a, b in pairwise(levels)) == 1


@given(st.lists(st.floats(-40, 150), max_size=60))
def test_a_level_changes_seldom_and_never_falls_by_two(temperatures: list[float]) -> None:
    levels = [Heat.NORMAL, *_run(temperatures)]
    assert all(after >= before - 1 for before, after in pairwise(levels))
    if temperatures and max(temperatures) < 75:
        assert set(levels) == {Heat.NORMAL}


def test_without_a_temperature_the_level_stays() -> None:
    state = HeatState(Heat.WARM)
    assert step(state, []) == state
    assert step(state, [Reading("in", 99.0, "mV", "x")]) == state


def test_each_level_asks_for_less() -> None:
    assert advise(Heat.NORMAL).speculate
    assert not advise(Heat.WARM).background
    assert advise(Heat.HOT).max_threads == 1
    assert not advise(Heat.HOT).speculate
    assert all(advise(heat).text for heat in Heat)


# ---- tegrastats and hwmon -----------------------------------------------------------------------------------------


def _of(line: str) -> dict[tuple[str, str], float]:
    return {(r.name, r.unit): r.value for r in parse_tegrastats(line)}


@pytest.mark.parametrize(
    ("words", "load", "clock"),
    [("GR3D_FREQ 0%@[305]", 0, 305), ("GR3D_FREQ 7%@[300,310]", 7, 300), ("GR3D_FREQ @[314,314,314]", None, 314),
     ("GR3D_FREQ 5%", 5, None), ("GR3D_FREQ 1%@76", 1, 76), ("", None, None)],
)  # fmt: skip
def test_the_six_forms_of_the_gpu_s_load(words: str, load: float | None, clock: float | None) -> None:
    found = _of(f"RAM 613/3964MB (lfb 634x4MB) CPU [2%@102,off] EMC_FREQ 0% {words} cpu@40.5C")
    assert (found.get(("gpu", "%")), found.get(("gpu", "MHz"))) == (load, clock)
    assert found["cpu", "%"] == 2
    assert found["ram", "MB"] == 613


def test_powers_old_and_new_and_temperatures_that_are_none() -> None:
    found = _of("POM_5V_IN 900/943 VDD_IN 3582mW/3500mW/3400mW NC 0mW/0mW CV0@-256C PMIC@100C tj@46.8C/47.0C")
    assert found == {("POM_5V_IN", "mW"): 900, ("VDD_IN", "mW"): 3582, ("tj", "C"): 46.8}


@given(st.text(max_size=300))
def test_any_line_is_survived(line: str) -> None:
    parse_tegrastats(line)


def test_sensors_have_names_and_units(tmp_path: Path) -> None:
    files = _zone(0, "cpu-thermal", "41000") | {
        "sys/class/hwmon/hwmon0/name": "ina3221\n",
        "sys/class/hwmon/hwmon0/in1_label": "VDD_IN\n",
        "sys/class/hwmon/hwmon0/in1_input": "5040\n",
        "sys/class/hwmon/hwmon0/curr1_input": "1200\n",
        "sys/class/hwmon/hwmon0/power2_input": "2500000\n",
        "sys/class/hwmon/hwmon0/in9_input": "off\n",
        "sys/class/hwmon/hwmon1/temp1_input": "41000\n",
    }
    root = Root(roots.write(tmp_path, {**files}))
    found = {(r.name, r.unit): r.value for r in read_sensors(root, ReplayRunner(root), probe_root(root))}
    assert found == {
        ("cpu-thermal", "C"): 41.0,
        ("ina3221 VDD_IN", "mV"): 5040.0,
        ("ina3221 curr1", "mA"): 1200.0,
        ("ina3221 power2", "mW"): 2500.0,
    }


@pytest.mark.shared
def test_a_board_s_recording_is_among_its_sensors(shared: Path) -> None:
    root = Root(shared / "boards" / "boards" / "jetson-orin-nano-8gb-l4t36.4")
    found = {(r.name, r.unit): r.value for r in read_sensors(root, ReplayRunner(root), probe_root(root))}
    assert found["VDD_IN", "mW"] == 5251
    assert found["cpu-thermal", "C"] == 49.468


# ---- power --------------------------------------------------------------------------------------------------------

JETSON = Machine(chip="tegra234", arch="aarch64", power_mode="15W")
NOTHING = PowerState((), {}, None)


def test_a_better_mode_is_named_with_its_command(tmp_path: Path) -> None:
    modes = ("15W", "25W", "MAXN_SUPER")
    text = "".join(
        f"< POWER_MODEL ID={number} NAME={name} >\nCPU_ONLINE CORE_0 1\n" for number, name in enumerate(modes)
    )
    state = read_power(Root(roots.write(tmp_path, {"etc/nvpmodel.conf": text})))
    assert advise_power(JETSON, state)[0].command == "sudo nvpmodel -m 2"
    best = dataclasses.replace(JETSON, power_mode="MAXN_SUPER")
    assert not any("nvpmodel" in (advice.command or "") for advice in advise_power(best, state))


def test_without_the_list_of_modes_no_number_is_invented() -> None:
    assert advise_power(JETSON, NOTHING)[0].command == "nvpmodel -p --verbose"


def test_modes_in_the_order_of_what_they_allow() -> None:
    names = ["7W", "MODE_10W_DESKTOP", "15W", "MODE_30W", "MAXQ", "MAXP_CORE_ARM", "MAXN", "MAXN_SUPER"]
    assert sorted(names, key=lambda name: PowerMode(0, name).rank) == names


def test_a_governor_that_keeps_the_clock_down() -> None:
    machine = Machine(chip="bcm2712", governors={"policy0": "powersave"})
    assert "schedutil" in advise_power(machine, NOTHING)[0].text
    assert advise_power(machine, PowerState((), {"policy0": "intel_pstate"}, None)) == ()
    assert advise_power(Machine(chip="x86_64", governors={"policy0": "ondemand"}), NOTHING) == ()


def test_a_weak_supply_and_throttling_come_first(tmp_path: Path) -> None:
    alarm = {"sys/class/hwmon/hwmon2/name": "rpi_volt\n", "sys/class/hwmon/hwmon2/in0_lcrit_alarm": "1\n"}
    state = read_power(Root(roots.write(tmp_path, {**alarm})))
    first, second, *_ = advise_power(dataclasses.replace(JETSON, throttled=True), state)
    assert "voltage" in first.text
    assert "slowing itself down" in second.text
