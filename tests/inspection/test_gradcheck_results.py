"""How a check is judged."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from app.inspection.gradcheck_results import FLOOR_SHARE, Entry, GradientReport, judge, relative_error


def entry(analytic: float, numeric: float, **more) -> Entry:
    return Entry(1, 1, "means", 0, value=0.5, step=1e-5, analytic=analytic, numeric=numeric, **more)


def test_the_relative_error_has_a_floor_and_knows_what_is_not_finite() -> None:
    error = relative_error(np.array([1.0, 0.0, 1e-9, np.nan, 2.0]), np.array([1.1, 0.0, 2e-9, 1.0, np.inf]), 1e-6)
    assert error[0] == pytest.approx(0.1 / 1.1) and error[1] == 0 and error[2] == pytest.approx(1e-3)
    assert np.isinf(error[3:]).all()
    assert relative_error(np.zeros(1), np.zeros(1), 0.0)[0] == 0


def test_a_gradient_near_zero_is_judged_by_the_floor() -> None:
    small = FLOOR_SHARE["float64"] * 1e-6
    assert judge("means", [entry(1.0, 1.0), entry(small, 2 * small)], "float64").ok
    assert not judge("means", [entry(1.0, 1.0), entry(0.01, 0.02)], "float64").ok


def test_what_rounding_explains_is_no_error_but_not_all_may_be_rounding() -> None:
    assert judge("means", [entry(1.0, 1.0), entry(0.1, 0.1002, rounding=2e-4)], "float64").ok
    assert not judge("means", [entry(1.0, 1.0), entry(0.1, 0.1002, rounding=1e-5)], "float64").ok
    assert "lost in rounding" in judge("means", [entry(1e-9, 2e-9, rounding=1e-9)] * 3, "float64").problem


def test_a_gradient_that_is_not_finite_fails() -> None:
    assert not judge("means", [entry(1.0, 1.0), entry(math.nan, 1.0)], "float64").ok
    assert not judge("means", [entry(1.0, 1.0), entry(1.0, math.nan)], "float64").ok


def test_a_kinked_entry_is_judged_by_its_frozen_difference() -> None:
    clean = [entry(1.0, 1.0)] * 9
    right = judge("means", [*clean, entry(1.0, 7.0, kinks={"cutoff": 2}, clean=False, frozen=1.0)], "float64")
    assert right.ok and right.checked == 9 and right.rechecked == 1 and right.kinks == {"cutoff": 1}
    nearby = judge("means", [*clean, entry(1.0, 1.0, kinks={"cutoff": 2}, frozen=1.0)], "float64")
    assert nearby.ok and nearby.checked == 10 and nearby.rechecked == 1   # a smaller step stays on one side of it
    wrong = judge("means", [*clean, entry(1.0, 1.0, kinks={"cutoff": 2}, clean=False, frozen=1.5)], "float64")
    assert not wrong.ok and "frozen" in wrong.problem and wrong.worst is not None and wrong.worst.frozen == 1.5


def test_a_straight_through_entry_is_judged_by_the_reference() -> None:
    report = judge("means", [entry(1.0, 1.0), entry(1.0, 0.2, reference=1.0)], "float64")
    assert report.ok and report.straight_through == 1
    assert not judge("means", [entry(1.0, 1.0), entry(1.0, 1.0, reference=0.9)], "float64").ok


def test_zero_everywhere_and_too_many_kinks_fail() -> None:
    assert judge("means", [entry(0.0, 0.0)] * 4, "float64").problem == "every gradient is zero"
    kinked = entry(1.0, 3.0, kinks={"l1_sign": 1}, clean=False, frozen=1.0)
    assert judge("means", [entry(1.0, 1.0)] * 7 + [kinked] * 3, "float64").ok
    assert "only 6 of 10" in judge("means", [entry(1.0, 1.0)] * 6 + [kinked] * 4, "float64").problem


def test_the_report_is_json_without_nan() -> None:
    parameter = judge("means", [entry(1.0, 1.0)], "float64")
    report = GradientReport("v", 4, 3, "mse", "cpu", "float64", "exact", 3, (1,), (), (parameter,), (entry(1.0, 1.0),))
    values = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert values["ok"] is True and values["parameters"][0]["ok"] is True and values["entries"][0]["frozen"] is None
    assert report.without([7]).unseen == (7,)


def test_the_window_may_read_results_without_torch() -> None:
    code = "import sys, app.inspection.gradcheck_results, app.messages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
