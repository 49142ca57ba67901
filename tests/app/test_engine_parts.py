"""The parts of the engine that need no thread: mailboxes, curves, options, jobs, pacing, backends."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.config import TrainConfig
from app.curves import MAX_POINTS, decimate
from app.engine.background import Background, Cancelled
from app.engine.jobs import BUDGET, Job, Jobs
from app.engine.pacing import DRAG_DEADLINE, LEVELS, Pace, ViewCost
from app.history import Series, Smoothed
from app.mailbox import Fifo, Latest
from app.messages import JobProgress
from app.options import OptionError, flatten, is_live, with_option

# ---------------------------------------------------------------- mailboxes


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(), max_size=30), min_size=1, max_size=4), st.integers(1, 5))
def test_fifo_loses_nothing_and_keeps_each_writers_order(batches, reads):
    fifo: Fifo = Fifo()
    writers = [threading.Thread(target=lambda k=k, batch=batch: [fifo.put((k, v)) for v in batch])
               for k, batch in enumerate(batches)]
    read = []
    for writer in writers:
        writer.start()
    for _ in range(reads):
        read += fifo.drain()
    for writer in writers:
        writer.join()
    read += fifo.drain()
    assert [[v for k, v in read if k == which] for which in range(len(batches))] == batches


@given(st.lists(st.integers(), min_size=1))
def test_latest_keeps_the_newest_and_counts(values):
    latest: Latest = Latest()
    versions = [latest.put(v) for v in values]
    assert versions == list(range(1, len(values) + 1))
    assert latest.get() == (len(values), values[-1])
    assert latest.newer_than(0) == (len(values), values[-1])
    assert latest.newer_than(len(values)) == (len(values), None)


def test_a_shared_signal_is_set_by_either_mailbox():
    signal = threading.Event()
    fifo: Fifo = Fifo(signal)
    latest: Latest = Latest(signal)
    for put in (fifo.put, latest.put):
        signal.clear()
        put(1)
        assert signal.is_set()


# ---------------------------------------------------------------- curves


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9000), st.integers(10, MAX_POINTS), st.integers(0, 2**31))
def test_g20_decimation_keeps_extremes_ends_and_order(count, limit, seed):
    """G20: at most `limit` points, and no spike is lost."""
    x = np.arange(count, dtype=float)
    y = np.random.default_rng(seed).standard_normal(count)
    curve = decimate(x, y, limit)
    assert len(curve.x) <= limit
    assert curve.x[0] == 0 and curve.x[-1] == count - 1
    assert np.all(np.diff(curve.x) > 0)
    assert curve.y.min() == y.min() and curve.y.max() == y.max()
    assert np.array_equal(y[curve.x.astype(int)], curve.y)


def test_decimation_leaves_out_nan():
    y = np.array([1.0, np.nan, 3.0])
    assert np.array_equal(decimate(np.arange(3.0), y).x, [0, 2])


def test_series_keeps_everything():
    series = Series()
    for i in range(5000):
        series.append(i, 2 * i)
    x, y = series.values()
    assert len(series) == 5000 and np.array_equal(y, 2 * x)
    curve = series.curve()
    series.append(5000, 0.0)
    assert curve.x[-1] == 4999   # a published curve does not change


def test_smoothing_takes_the_first_value_and_then_a_share():
    smoothed = Smoothed(0.5)
    smoothed.add(a=4.0)
    smoothed.add(a=8.0, b=1.0)
    assert smoothed.values == {"a": 6.0, "b": 1.0}


# ---------------------------------------------------------------- options


def test_every_field_of_the_configuration_can_be_set_by_its_path():
    config = TrainConfig()
    values = flatten(config)
    assert {"iterations", "densify.absgrad", "raster.alpha_gradient"} <= set(values)
    for path, value in values.items():
        other = (not value) if isinstance(value, bool) else "mse" if path == "loss" else value
        changed = flatten(with_option(config, path, other))
        assert changed == values | {path: other}
    assert not is_live("seed") and is_live("raster.alpha_max")


@pytest.mark.parametrize(("path", "value"), [
    ("nonsense", 1), ("densify", {}), ("densify.nonsense", 1), ("iterations.x", 1), ("", 1), ("iterations", "many"),
    ("iterations", 0), ("iterations", float("nan")), ("means_lr", -1.0), ("means_lr", 0.0), ("adam_eps", 0),
    ("means_lr", float("inf")), ("loss", "l3"),
    ("raster.alpha_max", 1.5), ("raster.alpha_gradient", "wrong"), ("densify.absgrad", "yes"), ("micro_batch", None)])
def test_a_bad_option_is_one_sentence(path, value):
    with pytest.raises(OptionError) as refused:
        with_option(TrainConfig(), path, value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) > 15


# ---------------------------------------------------------------- jobs


def collect_jobs():
    events, failures = [], []
    return Jobs(events.append, lambda name, error: failures.append((name, error))), events, failures


def test_u07_a_turn_of_job_work_is_bounded():
    """U07: jobs are advanced for at most 50 ms a turn, whatever they still have to do."""
    jobs, events, _ = collect_jobs()
    now = [0.0]

    def work():
        for i in range(100):
            now[0] += 0.004
            yield i / 100, ""

    jobs.add(Job("long", work()))
    turns = 0
    while jobs.current:
        begun = now[0]
        jobs.advance(lambda: now[0])
        assert now[0] - begun <= BUDGET + 0.004 + 1e-9
        turns += 1
    assert turns == 8   # 400 ms in bites of 13 x 4 ms
    assert events[-1] == JobProgress("long", 1.0, "", done=True)


def test_jobs_run_in_order_and_say_so_even_when_one_fails():
    jobs, events, failures = collect_jobs()
    ran = []

    def work(name, error=None):
        ran.append(name)
        yield 0.5, "half"
        if error:
            raise error

    jobs.add(Job("a", work("a")))
    jobs.add(Job("b", work("b", ValueError("broken"))))
    jobs.add(Job("c", work("c")))
    jobs.advance()
    assert ran == ["a", "b", "c"] and jobs.current is None
    assert [e.name for e in events if e.done] == ["a", "b", "c"]
    assert [(name, str(error)) for name, error in failures] == [("b", "broken")]


def test_cancelling_closes_the_work_and_frees_the_queue():
    jobs, events, failures = collect_jobs()
    closed = []

    def work():
        try:
            while True:
                yield None
        finally:
            closed.append(True)

    jobs.add(Job("endless", work()))
    jobs.advance()
    assert jobs.waiting
    assert jobs.cancel() and not jobs.cancel()
    assert closed and not failures and events[-1] == JobProgress("endless", 0.0, "cancelled", done=True)


def test_background_work_reports_returns_raises_and_is_cancelled():
    woken = threading.Event()

    def run(work):
        helper = Background(work, woken.set, "test")
        seen = []
        generator = helper.wait((0.2, 0.5))
        while True:
            try:
                news = next(generator)
            except StopIteration as end:
                return helper, seen, end.value
            if news is not None:
                seen.append(news)
            helper.done.wait(0.01)

    def good(report):
        report(1.0, "all")
        return 7

    _, seen, value = run(good)
    assert value == 7 and woken.is_set() and all(0.2 <= fraction <= 0.7 for fraction, _ in seen)

    def bad(report):
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        run(bad)

    go = threading.Event()

    def endless(report):
        go.wait(30)
        report(0.1, "")

    helper = Background(endless, woken.set, "test")
    waiting = helper.wait()
    next(waiting)
    waiting.close()
    go.set()
    helper.join(30)
    assert helper.done.is_set() and isinstance(helper.error, Cancelled)


# ---------------------------------------------------------------- pacing


def test_u05_dragging_keeps_10_fps_and_training_yields():
    """U05, simulated: whatever steps and pictures cost, pictures come at 10 fps or more; a drag never starves them."""
    for step_ms, view_ms in [(5, 5), (20, 20), (30, 45), (200, 30), (1000, 60), (10, 70)]:
        pace, now, steps, ends = Pace(), 0.0, 0, []
        pace.stepped(step_ms / 1e3)
        pace.viewed(0.0, view_ms / 1e3, 100_000)
        while now < 5.0:
            due = pace.view_due(changed=True, model_moved=True, refine=False, moving=True)   # the hand never rests
            assert due is not None
            if due <= now:
                now += view_ms / 1e3
                pace.viewed(now, view_ms / 1e3, 100_000)
                ends.append(now)
            elif pace.step_allowed(now, moving=True, view_due=due):
                now += step_ms / 1e3
                pace.stepped(step_ms / 1e3)
                steps += 1
            else:
                now = due
        gaps = np.diff(ends)
        assert gaps.max() <= max(0.1, 1.5 * view_ms / 1e3) + 1e-9, (step_ms, view_ms)
        assert (steps > 0) == (step_ms + view_ms <= 1e3 * DRAG_DEADLINE), (step_ms, view_ms)


def test_training_keeps_its_share_while_nobody_drags():
    pace, now, trained, viewed = Pace(), 0.0, 0.0, 0.0
    pace.viewed(0.0, 0.05, 100_000)
    while now < 20.0:
        due = pace.view_due(changed=False, model_moved=True, refine=False, moving=False)
        if due is not None and due <= now:
            now, viewed = now + 0.05, viewed + 0.05
            pace.viewed(now, 0.05, 100_000)
        else:
            assert pace.step_allowed(now, moving=False, view_due=due)
            now, trained = now + 0.02, trained + 0.02
    assert 3.5 < trained / viewed < 5.0


def test_nothing_is_due_when_nothing_changed():
    assert Pace().view_due(changed=False, model_moved=False, refine=False, moving=False) is None


def test_the_level_follows_the_cost_and_the_budget():
    cost = ViewCost(1e-6)
    assert cost.level(100_000, 0.2) == 1.0
    assert cost.level(100_000, 0.03) == 0.5
    assert cost.level(100_000_000, 0.03) == LEVELS[-1]
    pace = Pace(cost)
    assert pace.level(100_000, moving=False) == 1.0 > pace.level(100_000, moving=True)


# ---------------------------------------------------------------- which backend runs


def test_without_a_compiler_the_reference_runs_and_the_reason_names_the_way_out(monkeypatch):
    from app.engine.work import Ready, load_backend
    from render.backends import cpu

    monkeypatch.setattr(cpu, "available", lambda: False)
    ready = load_backend("auto", lambda fraction, text: None)
    assert ready.name == "reference" and "install g++" in ready.instead
    assert load_backend("reference", lambda fraction, text: None) == Ready("reference")
    with pytest.raises(ValueError, match="compiler"):
        load_backend("cpu", lambda fraction, text: None)


def test_when_the_kernels_do_not_compile_the_first_line_is_the_reason_and_the_rest_goes_to_stderr(monkeypatch, capsys):
    from app.engine.work import load_backend
    from render.backends import cpu
    from render.backends.compile import CompileError

    def broken(progress):
        progress("Compiling ...")
        raise CompileError("g++ could not compile the CPU kernels:\nproject.cpp:1: error: no")

    monkeypatch.setattr(cpu, "available", lambda: True)
    monkeypatch.setattr(cpu, "prepare", broken)
    said = []
    ready = load_backend("auto", lambda fraction, text: said.append(text))
    assert ready.name == "reference" and ready.instead == "g++ could not compile the CPU kernels"
    assert "Compiling ..." in said and "project.cpp:1" in capsys.readouterr().err
    with pytest.raises(ValueError, match="cpu cannot run here"):
        load_backend("cpu", lambda fraction, text: None)
