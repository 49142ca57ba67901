"""Films from the window's side of the engine: one state of the model, whole files or none, and nobody waits for them."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from app import messages as m
from app.camera_path import CameraPath, Key
from app.engine.jobs import Job, Jobs
from app.training.trainer import Trainer
from tests.app.engine_doubles import QuickTrainer, Window, request_for, running_engine, trainer_class


def along(window: Window, seconds: float = 1.0) -> CameraPath:
    """From the first photograph to the third and back."""
    views = window.opened.views
    return CameraPath((Key.of(views[0].camera), Key.of(views[2].camera, seconds / 2)), closed=True)


def film(window: Window, path: object, frames: int, width: int = 40, height: int = 30, **named) -> m.ExportVideo:
    """As many frames along that path, 12 a second."""
    return m.ExportVideo(str(path), along(window, frames / 12), request_for(window, **named), width, height, 12.0)


def notices(window: Window) -> list[str]:
    return [event.text for event in window.of(m.Notice)]


def saved(window: Window, count: int = 1):
    return lambda: sum("Saved" in text for text in notices(window)) >= count


def test_all_frames_of_a_film_show_one_iteration_while_training_goes_on(tmp_path: Path) -> None:
    """The camera stands still and the means move with every step: equal frames come from one state."""
    with running_engine(make_trainer=trainer_class(step_seconds=0.002)) as window:
        window.open(play=True)
        window.until(lambda: window.snapshot.iteration > 5)
        still = Key.of(window.opened.views[0].camera)
        path = CameraPath((still, replace(still, time=1.0)))
        one = path.cameras_at([0.0], 40, 30)[0]
        window.send(m.ExportVideo(str(tmp_path / "film"), path, request_for(window), 40, 30, 29.0))
        window.until(lambda: any(isinstance(e, m.JobProgress) and e.name == "film" for e in window.events))
        begun = window.snapshot.iteration
        window.until(saved(window))
        assert window.snapshot.iteration > begun
        window.send(m.SavePicture(str(tmp_path / "later.png"), m.ViewRequest(one)))
        window.until(saved(window, 2))
        assert not window.of(m.EngineFailed)
    files = sorted((tmp_path / "film").iterdir())
    assert [file.name for file in files] == [f"frame_{k:05d}.png" for k in range(30)]
    frames = [np.asarray(Image.open(file)) for file in files]
    assert frames[0].shape == (30, 40, 3) and frames[0].max() > 50
    assert all((frame == frames[0]).all() for frame in frames)
    assert (np.asarray(Image.open(tmp_path / "later.png")) != frames[0]).any()   # the model did move


def test_a_film_is_the_model_along_the_path(tmp_path: Path) -> None:
    """Every frame of the video is what the window would show at its camera, within what coding loses."""
    path = tmp_path / "Film ä.mp4"
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        window.send(film(window, path, 8, 41, 30))   # 41 becomes 42: sides of a video are even
        window.until(saved(window))
        cameras = along(window, 8 / 12).cameras_at([0.0, 4 / 12], 42, 30)
        shown = [window.frame_of(window.look(m.ViewRequest(camera)), refined=True).rgba[..., :3]
                 for camera in cameras]
    said = next(text for text in notices(window) if "Saved" in text)
    assert said == f"Saved {path}: 8 frames of 42 x 30 px at 12 per second, iteration 0."
    reader = imageio_ffmpeg.read_frames(str(path), input_params=["-colorspace", "bt709"])
    meta = next(reader)
    frames = [np.frombuffer(data, np.uint8).reshape(30, 42, 3) / 255.0 for data in reader]
    assert meta["fps"] == 12 and len(frames) == 8
    for frame, want in zip((frames[0], frames[4]), shown):
        assert want.max() > 0.3 and np.abs(frame - want).mean() < 0.03
    assert np.abs(frames[0] - frames[4]).mean() > 0.03
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_colours_of_numbers_stay_the_same_from_frame_to_frame(tmp_path: Path) -> None:
    """Depth: one range for the film, said at its end; the same place has the same colour from the same camera."""
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        window.send(film(window, tmp_path / "depth", 6, mode="depth"))
        window.until(saved(window))
        said = notices(window)[-1]
        assert "Its colours show depth from " in said and "world units" in said
        low, high = (float(word) for word in said.split("depth from ")[1].split(" world")[0].split(" to "))
        camera = along(window).cameras_at([0.0], 40, 30)[0]
        frame = window.frame_of(window.look(m.ViewRequest(camera, "depth", value_range=(low, high))), refined=True)
    first = np.asarray(Image.open(tmp_path / "depth" / "frame_00000.png")) / 255.0
    assert np.abs(first - frame.rgba[..., :3]).mean() < 0.01
    files = sorted((tmp_path / "depth").iterdir())
    there, back = (np.asarray(Image.open(files[k])) for k in (1, 5))   # at the same place on the way there and back
    assert len(files) == 6 and np.abs(there.astype(int) - back).max() <= 2 and (there != 255 * first).any()


@pytest.mark.parametrize("name", ["film.mp4", pytest.param("folder", marks=pytest.mark.thorough)])
def test_a_cancelled_film_leaves_whole_files_only(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with running_engine() as window:
        window.open()
        window.send(film(window, path, 600, 80, 60))
        window.until(lambda: window.snapshot.job is not None and window.snapshot.job.fraction > 0.01)
        window.send(m.CancelJob())
        window.until(lambda: window.snapshot.job is None)
        assert not any("Saved" in text for text in notices(window))
        window.send(m.Step(1))
        window.until(lambda: window.snapshot.iteration == 1)
        for helper in window.engine.backgrounds:
            helper.join(20)
    if name == "folder":
        files = list(path.iterdir())
        assert 0 < len(files) < 600 and all(np.asarray(Image.open(file)).shape == (60, 80, 3) for file in files)
    assert [p.name for p in tmp_path.iterdir()] == ([] if name == "film.mp4" else [name])


def test_a_window_closed_during_a_film_leaves_no_half_file(tmp_path: Path) -> None:
    with running_engine() as window:
        window.open(play=True)
        window.send(film(window, tmp_path / "film.mp4", 600, 80, 60))
        window.until(lambda: window.snapshot.job is not None and window.snapshot.job.fraction > 0.01)
        assert len(list(tmp_path.iterdir())) == 1   # the unfinished one, under another name
        assert not (tmp_path / "film.mp4").exists()
    assert not list(tmp_path.iterdir())


def test_nothing_waits_for_a_film(tmp_path: Path) -> None:
    """Files are saved and views measured while it is written; another scene ends it."""
    with running_engine() as window:
        window.open()
        window.send(film(window, tmp_path / "film.mp4", 2000, 80, 60))
        window.until(lambda: window.snapshot.job is not None and window.snapshot.job.name == "film")
        window.send(m.SavePly(str(tmp_path / "a.ply")), m.Step(2), m.Evaluate())
        window.until(lambda: window.of(m.Evaluated) and saved(window)() and window.snapshot.iteration == 2)
        window.until(lambda: window.snapshot.job is not None and window.snapshot.job.name == "film")
        window.send(film(window, tmp_path / "b.mp4", 2))
        window.until(lambda: any("being written already" in text for text in notices(window)))
        window.open()
        window.until(lambda: window.snapshot.job is None)
        for helper in window.engine.backgrounds:
            helper.join(20)
        assert [p.name for p in tmp_path.iterdir()] == ["a.ply"] and not window.of(m.EngineFailed)


def test_films_that_cannot_be_are_one_sentence(tmp_path: Path) -> None:
    with running_engine() as window:
        window.send(m.ExportVideo(str(tmp_path / "a.mp4"), CameraPath(), m.ViewRequest(None)))   # type: ignore[arg-type]
        window.until(lambda: any("nothing to film" in text for text in notices(window)))
        window.open()
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "frame_00001.png").write_bytes(b"x")
        good = film(window, tmp_path / "a.mp4", 4)
        long = replace(along(window), speed=1e-6)
        wrong = [(replace(good, along=CameraPath()), "no keys"), (replace(good, width=9000), "8192 px"),
                 (replace(good, height=0), "not 40 x 0"), (replace(good, along=long), "too long"),
                 (film(window, good.path, 4, mode="error"), "photograph's camera"),
                 (replace(good, path=str(tmp_path / "a.gif")), "ends in .gif"),
                 (replace(good, fps=math.inf), "inf frames per second"),
                 (replace(good, path=str(tmp_path / "full")), "already holds frame_00001.png"),
                 (replace(good, path=str(tmp_path / "full" / "frame_00001.png" / "a.mp4")), "cannot be written")]
        for command, says in wrong:
            window.send(command)
            window.until(lambda says=says: any(says in event.text and event.level == "error" for event in window.of(m.Notice)))
        window.until(lambda: window.snapshot.job is None)
        assert not window.of(m.EngineFailed) and [p.name for p in tmp_path.iterdir()] == ["full"]


def test_a_heatmap_film_shows_the_numbers_of_its_iteration(tmp_path: Path) -> None:
    """A quantity of training is copied with the model; one that has no values yet gives a picture and its sentence."""
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        window.send(m.Step(2))
        window.until(lambda: window.snapshot.iteration == 2 and window.snapshot.state == "paused")
        camera = along(window).cameras_at([0.0], 40, 30)[0]
        shown = window.frame_of(window.look(m.ViewRequest(camera, "heatmap", "mean2d_grad")), refined=True)
        window.send(film(window, tmp_path / "heat", 2, mode="heatmap", quantity="mean2d_grad"))
        window.until(saved(window))
        assert shown.legend is not None and shown.legend.label in notices(window)[-1]
    first = np.asarray(Image.open(tmp_path / "heat" / "frame_00000.png")) / 255.0
    assert np.abs(first - shown.rgba[..., :3]).mean() < 0.01


def test_the_next_densification_is_filmed_as_the_window_shows_it(tmp_path: Path) -> None:
    """A copy of the model has no trainer to ask, so the plan is copied with it."""
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        window.send(m.Step(2))
        window.until(lambda: window.snapshot.iteration == 2 and window.snapshot.state == "paused")
        camera = along(window).cameras_at([0.0], 40, 30)[0]
        shown = window.frame_of(window.look(m.ViewRequest(camera, "candidates")), refined=True)
        window.send(film(window, tmp_path / "plan", 2, mode="candidates"))
        window.until(saved(window))
        assert not any("does not train" in text for text in notices(window))
    first = np.asarray(Image.open(tmp_path / "plan" / "frame_00000.png")) / 255.0
    assert np.abs(first - shown.rgba[..., :3]).max() < 0.01


# ---------------------------------------------------------------- pictures in bites


@pytest.mark.parametrize("mode", ["color", "ellipsoids", *(pytest.param(mode, marks=pytest.mark.thorough) for mode in (
    "depth", "contributors", "points", "heatmap", "truth", "error"))])
def test_a_picture_drawn_in_bites_is_the_picture_drawn_whole(mode: str) -> None:
    from app.engine.drawing import Bites, coloured, draw, in_bites, to_bytes
    from app.engine.model import Model
    from app.engine.photographs import Photographs
    from tests.app.engine_doubles import open_tiny

    scene = open_tiny(".", progress=lambda share, text: None)
    from app.config import TrainConfig

    model = Model(".", QuickTrainer(scene, TrainConfig(iterations=10), backend="reference"), scene)
    camera = scene.views[0].camera.resized(97, 70)
    request, bites = m.ViewRequest(camera, mode, "opacity", view_index=0), Bites()
    bites.pixels = 1
    request = _result(coloured(model, [request], Photographs())).of(request)
    bites.spent = lambda seconds, pixels: None   # type: ignore[method-assign]
    out = np.empty((70, 97, 3), np.uint8)
    shares = list(in_bites(model, [(request, 0, 97)], camera, Photographs(), bites, out))
    assert len(shares) == 2 * 5 and shares == sorted(shares) and shares[-1] == 1.0
    whole = to_bytes(draw(model, request, camera, Photographs()).rgb)
    apart = np.abs(out.astype(int) - whole)
    assert whole.max() > 30 and apart.max() <= 1 if mode != "ellipsoids" else (apart > 1).mean() < 0.002


def _result(work):
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def test_bites_grow_and_shrink_with_what_they_cost() -> None:
    from app.engine.drawing import BITE_SECONDS, TILE, Bites

    bites = Bites()
    before = bites.pixels
    bites.spent(BITE_SECONDS / 2, before)
    assert bites.pixels == 2 * before
    bites.spent(BITE_SECONDS / 100, 10)   # a small rest says nothing of full ones
    assert bites.pixels == 2 * before
    bites.spent(100.0, before)
    assert bites.pixels == before // 2
    for width, height in ((1, 1), (64, 17), (8192, 33), (700, 500)):
        for bites.pixels in (1, 5000, 10**7):
            covered = np.zeros((height, width + 3), int)
            for x, y, w, h in bites.rectangles(3, width, height):
                covered[y:y + h, x:x + w] += 1
                assert w > 0 and h > 0 and (y % TILE == 0)
            assert (covered[:, 3:] == 1).all() and not covered[:, :3].any()


def test_two_modes_beside_each_other_are_saved_in_their_own_colours(tmp_path: Path) -> None:
    with running_engine(make_trainer=Trainer) as window:
        window.open()
        request = request_for(window, mode="depth", width=160, height=120, beside=m.Beside("contributors", share=0.25))
        shown = window.frame_of(window.look(request), refined=True)
        window.send(m.SavePicture(str(tmp_path / "a.png"), request))
        window.until(saved(window))
    image = np.asarray(Image.open(tmp_path / "a.png"))[:120] / 255.0
    assert np.abs(image[:, :40] - shown.rgba[:, :40, :3]).mean() < 0.01
    assert np.abs(image[:, 41:] - shown.rgba[:, 41:, :3]).mean() < 0.03   # both ranges come from smaller pictures


@pytest.mark.thorough
def test_a_large_picture_holds_up_no_command(tmp_path: Path) -> None:
    """16 megapixels on the CPU's kernels, while commands come that end a bite and such that wait for it (U07)."""
    waits: list[float] = []
    with running_engine(backend="cpu") as window:
        window.open()
        window.send(m.SavePicture(str(tmp_path / "large.png"), request_for(window, width=4096, height=4096)))
        while not saved(window)():
            window.send(m.Select(uid=1) if len(waits) % 2 else m.Undo())
            waits.append(window.sync())
            time.sleep(0.03)
            window.read()
    assert len(waits) > 5 and float(np.median(waits)) < 0.1 and max(waits) < 0.5   # a second core may be somebody else's
    assert Image.open(tmp_path / "large.png").size == (4096, 4096)


# ---------------------------------------------------------------- jobs that give way


def test_a_job_that_gives_way_lets_later_ones_run_first() -> None:
    order: list[str] = []

    def work(name: str, count: int):
        for k in range(count):
            order.append(f"{name}{k}")
            yield None

    events: list[m.Event] = []
    jobs = Jobs(events.append, lambda name, error: None)
    jobs.add(Job("long", work("long", 4), exclusive=False, gives_way=True))
    assert jobs.free and not jobs.exclusive
    jobs.advance()
    jobs.add(Job("short", work("short", 2)))
    jobs.advance()
    assert not jobs.free and jobs.exclusive and jobs.progress is not None and jobs.progress.name == "short"
    for _ in range(6):
        jobs.advance()
    assert order == ["long0", "short0", "short1", "long1", "long2", "long3"] and jobs.current is None
    assert [e.name for e in events if isinstance(e, m.JobProgress) and e.done] == ["short", "long"]
