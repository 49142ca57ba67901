"""Pictures, the selected Gaussian and the numbers beside them, as they reach the window."""

from __future__ import annotations

import time

import numpy as np
from PIL import Image

from app import messages as m
from app.config import TrainConfig
from tests.app.engine_doubles import request_for, running_engine, trainer_class

# ---------------------------------------------------------------- the view


def test_g06_the_frame_has_the_exact_size_and_layout():
    """G06: C-contiguous float32 [H,W,4] of the requested size, alpha 1, and nobody writes into it again."""
    with running_engine() as window:
        window.open()
        for width, height in [(33, 17), (64, 48), (16, 16), (7, 5)]:
            frame = window.frame_of(window.look(request_for(window, width=width, height=height)), refined=True)
            assert frame.rgba.shape == (height, width, 4) and frame.rgba.dtype == np.float32
            assert frame.rgba.flags.c_contiguous and not frame.rgba.flags.writeable
            assert (frame.rgba[..., 3] == 1).all() and frame.rgba.min() >= 0 and frame.rgba.max() <= 1


def test_G29_what_the_window_shows_can_be_saved_without_a_window(tmp_path):
    """The frame is the whole picture: written to a file and read again it is our render, with nothing of the window in it."""
    with running_engine() as window:
        window.open()
        request = window.look(request_for(window, width=64, height=48))
        frame = window.frame_of(request, refined=True)
        Image.fromarray(np.round(255 * frame.rgba).astype(np.uint8)).save(tmp_path / "picture.png")
        with Image.open(tmp_path / "picture.png") as image:
            saved = np.asarray(image, np.float32) / 255
        expected = window.engine.model.render(request.camera).colors.clamp(0, 1).numpy()  # type: ignore[union-attr]
        assert expected.max() > 0.1 and saved.shape == (48, 64, 4) and (saved[..., 3] == 1).all()
        assert np.allclose(saved[..., :3], expected, atol=0.51 / 255)


def test_a_slow_picture_comes_coarse_first_and_is_refined_in_bands():
    """U07: however slow the renderer, no picture is drawn in one piece that holds up commands."""
    with running_engine() as window:
        window.open()
        window.engine.pace.cost.per_pixel = 0.5 / (64 * 96)   # a whole picture would take half a second
        request = window.look(request_for(window, width=64, height=96))
        coarse = window.frame_of(request)
        assert coarse.detail < 1.0 and coarse.rgba.shape == (96, 64, 4)
        fine = window.frame_of(request, refined=True)
        assert fine.sequence == coarse.sequence + 1
        expected = window.engine.model.render(request.camera).colors.clamp(0, 1).numpy()  # type: ignore[union-attr]
        assert np.allclose(fine.rgba[..., :3], expected, atol=1e-4)


def test_the_newest_request_wins():
    with running_engine() as window:
        window.open()
        requests = [request_for(window, width=20 + i) for i in range(30)]
        for request in requests:
            window.look(request)
        frame = window.frame_of(requests[-1])
        assert frame.rgba.shape[1] == 49


def test_the_view_follows_training_and_a_hidden_window_costs_nothing():
    with running_engine(make_trainer=trainer_class(step_seconds=0.002)) as window:
        window.open(play=True)
        first = window.frame_of(window.look(request_for(window)))
        window.until(lambda: window.snapshot.frame is not None and window.snapshot.frame.iteration > first.iteration)
        hidden = request_for(window, hidden=True)
        window.look(hidden)
        window.until(lambda: window.engine.viewer.request is hidden)
        at, drawn = window.snapshot.iteration, window.engine.viewer.frame
        window.until(lambda: window.snapshot.iteration > at + 50)
        assert window.engine.viewer.frame is drawn and window.snapshot.histogram is None


def test_u05_while_the_user_drags_pictures_come_at_10_fps_and_one_core_is_left():
    """U05 with steps far too slow for a drag: training yields, pictures keep coming, threads go down and up again."""
    with running_engine(make_trainer=trainer_class(step_seconds=0.15)) as window:
        window.open(play=True)
        window.frame_of(window.look(request_for(window)))
        window.until(lambda: window.snapshot.iteration >= 2 and window.snapshot.threads == 2)
        taken = []
        for i in range(20):
            request = window.look(request_for(window, width=40 + i % 2, moving=True))
            window.until(lambda request=request: window.snapshot.frame is not None
                         and window.snapshot.frame.request is request)
            taken.append(time.monotonic())
        assert window.snapshot.threads == 1
        assert np.quantile(np.diff(taken), 0.25) < 0.1   # single ones are late on a machine under load
        window.look(request_for(window))
        at = window.snapshot.iteration
        window.until(lambda: window.snapshot.iteration > at and window.snapshot.threads == 2)


def test_a_selected_gaussian_is_reported_until_it_is_gone():
    with running_engine() as window:
        window.open()
        request = window.look(request_for(window, width=64, height=64))
        window.frame_of(request)
        found = None
        for x, y in [(32, 32), (24, 32), (40, 32), (32, 24), (32, 40), (20, 20), (44, 44)]:
            window.send(m.Select(request.camera, x, y))
            window.sync()
            if window.snapshot.selected is not None:
                found = window.snapshot.selected
                break
        assert found is not None, "no Gaussian under any of the pixels"
        assert found.ellipse is not None and found.parameters["means"].shape == (3,)
        window.send(m.Step(1))
        window.until(lambda: window.snapshot.iteration == 1 and window.snapshot.selected is not None
                     and not np.array_equal(window.snapshot.selected.parameters["means"], found.parameters["means"]))
        assert window.snapshot.selected is not None and window.snapshot.selected.uid == found.uid
        window.send(m.Select(uid=10**9))
        window.until(lambda: any("is gone" in n.text for n in window.of(m.Notice)))
        window.until(lambda: window.snapshot.selected is None)


def test_f11_count_and_cap_are_shown_with_the_window_of_densification():
    """F11, F18: the snapshot carries count, cap and the densification window in force."""
    with running_engine(TrainConfig(iterations=30_000)) as window:
        window.open()
        assert 0 < window.snapshot.gaussians <= window.snapshot.cap
        assert window.snapshot.densify_window == (600, 14_900)
        window.send(m.SetOption("iterations", 2000))
        window.until(lambda: window.snapshot.densify_window[1] < 2000)
        assert any("densif" in n.text for n in window.of(m.Notice))
        window.send(m.SetOption("iterations", 100))
        window.until(lambda: window.snapshot.densify_window == ())
        assert any("no densification fits into 100 iterations" in n.text for n in window.of(m.Notice))
        window.send(m.SetOption("iterations", 2000), m.SetOption("densify.strategy", "none"))
        window.until(lambda: window.snapshot.iterations == 2000 and window.snapshot.densify_window == ())


def test_m03_memory_is_told_by_kind():
    with running_engine() as window:
        window.open()
        window.frame_of(window.look(request_for(window)))
        window.until(lambda: window.snapshot.memory.get("intersections"))
        memory = window.snapshot.memory
        assert memory["parameters"] > 0 and memory["adam"] >= 2 * memory["parameters"] * 0.9 and memory["rss"] > 10**7
        assert {"images", "statistics", "gradients", "buffers"} <= set(memory)


