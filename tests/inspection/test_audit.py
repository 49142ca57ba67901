"""`splatscope audit` finds the cause of a planted fault, and only that; a rasterizer with another rule has no fault."""

from __future__ import annotations

import pytest

from app.inspection.audit import run
from render.backends import cpu
from tests.inspection.planted import (
    ALONE,
    BACK_TO_FRONT,
    DETACHED_DIRECTION,
    FAULTS,
    HALVED_CONIC,
    LIMITLESS,
    MODES,
    MODES_TOGETHER,
    NO_BACKGROUND_TERM,
    NO_CX,
    TOGETHER,
    XYZW,
    planted,
)
from tests.shares import every_third


def found(report) -> list[str]:
    return [fault.id for fault in report.faults]


@pytest.mark.parametrize("names", every_third([*((name,) for name in ALONE), *TOGETHER]),
                         ids=lambda names: ", ".join(names))
def test_planted_faults_are_named_and_nothing_else(names):
    report = run.audit("planted", function=planted(*(change for name in names for change in FAULTS[name][0])))
    assert sorted(found(report)) == sorted(FAULTS[name][1] for name in names), report.faults
    for fault in report.faults:
        assert fault.relative_error > 10 * report.gradient_tolerance and fault.explanation.endswith(".")
    assert report.exit_code == 1


@pytest.mark.parametrize("names", MODES_TOGETHER, ids=", ".join)
def test_modes_are_reported_and_are_no_faults(names):
    report = run.audit("planted", function=planted(*(change for name in names for change in MODES[name][0])))
    assert found(report) == [], report.faults
    said = report.modes | {"gradient_mode": report.gradient_mode}
    for key, value in {key: value for name in names for key, value in MODES[name][1].items()}.items():
        assert said[key] == (pytest.approx(value, rel=1e-3) if isinstance(value, float) else value), key
    assert report.precision == ("float32" if "float32 inside" in names else "float64")


@pytest.mark.parametrize("change, id", [
    (HALVED_CONIC, "conic_off_diagonal"), (NO_BACKGROUND_TERM, "background_term"), (NO_CX, "principal_point")])
def test_faults_are_told_apart_in_float32_too(change, id):
    report = run.audit("planted", function=planted(change), dtype="float32")
    assert found(report) == [id], report.faults
    assert report.dtype == report.precision == "float32"


def test_faults_that_come_together_are_each_named():
    """In a rasterizer without any limit, whose layers are therefore never quite apart."""
    report = run.audit("planted", function=planted(
        *LIMITLESS, HALVED_CONIC, NO_BACKGROUND_TERM, NO_CX, DETACHED_DIRECTION, BACK_TO_FRONT, XYZW))
    assert set(found(report)) == {"conic_off_diagonal", "background_term", "principal_point", "sh_direction_detached",
                                  "sort_order", "quat_convention"}


def test_a_fault_under_another_alpha_rule_is_still_told():
    straight = ("torch.clamp(raw, max=ALPHA_MAX)", "raw + (torch.clamp(raw, max=ALPHA_MAX) - raw).detach()")
    report = run.audit("planted", function=planted(
        ("ALPHA_MAX = 0.99", "ALPHA_MAX = 0.999"), straight, ("TRANSMITTANCE_MIN = 1e-4", "TRANSMITTANCE_MIN = 0.0"),
        HALVED_CONIC))
    assert found(report) == ["conic_off_diagonal"]
    assert report.rules.alpha_max == 0.999 and report.gradient_mode == "straight_through"


def test_modes_that_disagree_are_reported_as_mixed():
    report = run.audit("planted", function=planted(
        ("raw = opacities[:, None] * gauss", "raw = opacities.detach()[:, None] * gauss"),
        ("torch.clamp(raw, max=ALPHA_MAX)",
         "torch.clamp(opacities[:, None] * gauss.detach(), max=ALPHA_MAX) + (raw - raw.detach())")))
    assert found(report) == []
    assert report.gradient_mode == "mixed: exact for the opacity, straight_through for the power"


def test_an_unknown_deviation_is_named_after_its_parameter():
    noisy = ("raw = opacities[:, None] * gauss",
             "raw = scaled(opacities, 1 + 0.5 * torch.sin(torch.arange(len(opacities))))[:, None] * gauss")
    report = run.audit("planted", function=planted(noisy))
    assert found(report) == ["gradient_opacities"]
    report = run.audit("planted", function=planted(("colors = torch.relu(", "colors = 1.3 * torch.relu(")))
    assert found(report)[0] == "image" and report.exit_code == 1


@pytest.mark.parametrize("name", ["plain", "reference", "cpu"])
@pytest.mark.parametrize("dtype", [None, "float32"])
def test_the_shipped_adapters_have_no_fault(name, dtype):
    if name == "cpu" and not cpu.available():
        pytest.skip("the CPU kernels need a C++ compiler (g++, clang++ or the ziglang package), and none is found")
    report = run.audit(name, dtype=dtype)
    assert found(report) == [], report.faults
    assert report.rules.alpha_max == 0.99 and report.gradient_mode == "exact"
    assert report.rules.cutoff == 1 / 255 and report.rules.transmittance_min == 1e-4
    assert len(report.comparisons) == 3
    for comparison in report.comparisons:
        assert comparison.image_error <= report.image_tolerance
        assert max(e for e in comparison.gradient_errors.values() if e is not None) <= report.gradient_tolerance
