"""Training on the CUDA backend with no GPU: what it waits for, what it does when something is not finite, switching."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from app import messages as m
from app.config import DensifyConfig, TrainConfig
from app.engine.work import Ready
from app.training.marks import FROZEN
from app.training.trainer import Trainer
from app.training.verdict import TrainingStopped
from render.backends import cuda
from render.types import PARAM_GROUPS
from tests.app.engine_doubles import open_tiny, request_for, running_engine
from tests.emulation.host import Emulated
from tests.training.test_trainer import snapshot
from tests.training.tiny import make_scene

CONFIG = TrainConfig(iterations=12, schedule_iterations=30_000, sh_every=3,
                     densify=DensifyConfig(start=4, stop=11, every=5, grad_threshold=2e-5))


@pytest.fixture
def emulated():
    driver = Emulated(orders=1)
    with cuda.driven_by(driver):
        yield driver


def tiny(**changes):
    return make_scene(3, 12, size=32, points=30, **changes)


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_a_run_with_densification_equals_that_of_the_cpu(emulated, micro_batch):
    """Figures come one step later; nothing else differs beyond rounding."""
    config, scene = replace(CONFIG, micro_batch=micro_batch), tiny()
    ours, theirs = (Trainer(scene, config, backend=backend) for backend in ("cuda", "cpu"))
    losses = {}
    for _ in range(CONFIG.iterations):
        ours_step, theirs_step = ours.step(), theirs.step()
        settled = ours_step.iteration if ours_step.densified is not None else ours_step.iteration - 1
        assert ours_step.measured == settled and theirs_step.measured == theirs_step.iteration
        losses[theirs_step.iteration] = theirs_step.loss
        if ours_step.measured:
            assert ours_step.loss == pytest.approx(losses[ours_step.measured], rel=2e-3)
        assert ours_step.densified == theirs_step.densified
    ours.settle()
    assert ours.measured.iteration == CONFIG.iterations and ours.measured.psnr == pytest.approx(theirs.measured.psnr, rel=1e-3)
    assert len(ours.params) == len(theirs.params) > 30
    for name in ("means", "log_scales", "logit_opacities", "sh0"):
        # Adam makes a whole step of a gradient that is all rounding, as that of a round Gaussian's quaternion
        ours_now, want = (trainer.params.trained()[name].detach() for trainer in (ours, theirs))
        near = (ours_now - want).abs() <= 2e-3 * want.abs().max()
        assert near.float().mean() > 0.95, name
    assert "gaussian_bwd" in emulated.launched and "project_bwd" not in emulated.launched


class Waits:
    """Counts everything that makes the host wait for a device's number."""

    def __init__(self, monkeypatch) -> None:
        self.seen: Counter[str] = Counter()
        for name in ("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "cpu", "numpy", "nonzero"):
            original = getattr(torch.Tensor, name)

            def counted(tensor, *args, _name=name, _original=original, **named):
                self.seen[_name] += 1
                return _original(tensor, *args, **named)
            monkeypatch.setattr(torch.Tensor, name, counted)
        for name in ("tensor", "nonzero", "masked_select"):
            original = getattr(torch, name)

            def called(*args, _name=name, _original=original, **named):
                self.seen[f"torch.{_name}"] += 1
                return _original(*args, **named)
            monkeypatch.setattr(torch, name, called)


@pytest.mark.parametrize("loss", ["l1_ssim", "mse"])
def test_the_host_waits_once_a_step(emulated, monkeypatch, loss):
    """Only the number of tile intersections is read, and what the step before measured comes with it."""
    trainer = Trainer(tiny(), TrainConfig(iterations=1000, loss=loss), backend="cuda")
    trainer.step()
    waits = Waits(monkeypatch)
    for _ in range(3):
        trainer.step()
    assert waits.seen == {"tolist": 3}


@pytest.mark.parametrize("at", [3, 5])   # 5 is a densification, which waits for the verdict
def test_n16_a_step_that_is_not_finite_changes_nothing_and_the_next_one_says_so(emulated, monkeypatch, at):
    trainer = Trainer(tiny(), CONFIG, backend="cuda")
    for _ in range(at - 1):
        trainer.step()
    before, steps = snapshot(trainer), dict(trainer.state.optimizer.steps)
    state = {name: trainer.state.rows[name].clone() for name in trainer.state.rows if name.startswith(("adam.", "stat."))}
    original, launch = emulated.launch, emulated.launch

    def broken(kernel, double, grid, block, values):
        original(kernel, double, grid, block, values)
        if kernel == "gaussian_bwd":
            values[-6][3] = float("nan")   # v_means of one Gaussian
    emulated.launch = broken
    with pytest.raises(TrainingStopped, match=f"iteration {at}: the gradient of means is not finite for 1 Gaussians "
                                              f".*those of iteration {at - 1}"):
        trainer.step()
        emulated.launch = launch
        trainer.step()
    emulated.launch = launch
    assert trainer.iteration == at - 1 and trainer.state.optimizer.steps == steps
    assert all(torch.equal(before[name], value) for name, value in snapshot(trainer).items())
    assert all(torch.equal(state[name], trainer.state.rows[name]) for name in state)
    trainer.step()
    trainer.settle()
    assert trainer.iteration == at and trainer.measured.iteration == at


def test_the_backend_changes_between_steps_and_takes_everything_along(emulated):
    trainer = Trainer(tiny(), CONFIG, backend="cpu")
    trainer.step()
    for backend in ("cuda", "reference", "cuda", "cpu"):
        before = {name: trainer.state.rows[name].clone() for name in trainer.state.rows}
        trainer.set_backend(backend)
        assert all(torch.equal(before[name], trainer.state.rows[name]) for name in before)
        assert all(trainer.params.trained()[name].requires_grad for name in PARAM_GROUPS)
        assert trainer.tap is not None and trainer.tap.v_means2d is trainer.state.rows["tap.v_means2d"]
        trainer.step()
    assert trainer.iteration == 5 and trainer.measured.iteration == 5


@pytest.mark.parametrize("mode", sorted(m.MODES))
def test_every_view_mode_draws_on_cuda_what_it_draws_on_the_cpu(emulated, mode):
    pictures = []
    for backend in ("cuda", "cpu"):
        with running_engine(make_trainer=Trainer, open_scene=open_tiny, load_backend=lambda name, report: Ready(name),
                            backend=backend) as window:
            window.open()
            window.send(m.Step(2))
            window.until(lambda w=window: w.snapshot.iteration == 2 and w.snapshot.state == "paused")
            request = request_for(window, mode=mode, view_index=0, width=24, height=24)
            pictures.append(window.frame_of(window.look(request), refined=True).rgba)
    assert pictures[1][..., :3].max() > 0.05
    assert abs(pictures[0] - pictures[1]).max() < 2e-2


def test_what_the_last_step_measured_is_shown_once_the_run_stands_still(emulated):
    with running_engine(make_trainer=Trainer, open_scene=open_tiny, load_backend=lambda name, report: Ready(name),
                        backend="cuda") as window:
        window.open()
        window.send(m.Step(3))
        window.until(lambda: window.snapshot.iteration == 3 and window.snapshot.curves.get("loss") is not None
                     and len(window.snapshot.curves["loss"].x) == 3)
        assert list(window.snapshot.curves["loss"].x) == [1, 2, 3] and window.snapshot.loss > 0


def test_out_of_memory_on_the_gpu_goes_on_on_the_cpu_and_says_so(emulated, capsys):
    class Full(Trainer):
        def step(self):
            if self.backend == "cuda" and self.iteration >= 3:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return super().step()

    with running_engine(make_trainer=Full, open_scene=open_tiny, load_backend=lambda name, report: Ready(name),
                        backend="cuda") as window:
        window.open(play=True)
        window.until(lambda: window.snapshot.iteration > 6 and window.snapshot.backend == "cpu")
        said = [e.text for e in window.of(m.Notice) if "memory is used up" in e.text]
        assert len(said) == 1 and "so the backend cpu goes on" in said[0] and window.snapshot.state == "running"
        assert not window.of(m.EngineFailed)
    assert "memory is used up" in capsys.readouterr().err


def test_a_backend_that_does_not_fit_is_refused_and_the_old_one_goes_on(emulated, monkeypatch):
    from app.training.rows import Rows

    with running_engine(make_trainer=Trainer, open_scene=open_tiny, load_backend=lambda name, report: Ready(name),
                        backend="cpu") as window:
        window.open(play=True)

        def full(rows, device):
            raise torch.OutOfMemoryError("CUDA out of memory")
        monkeypatch.setattr(Rows, "move", full)
        window.send(m.SetBackend("cuda"))
        window.until(lambda: any("The backend stays cpu" in e.text for e in window.of(m.Notice)))
        at = window.snapshot.iteration
        window.until(lambda: window.snapshot.iteration > at)
        assert window.snapshot.backend == window.engine.backend == "cpu" and not window.of(m.EngineFailed)


def test_a_first_model_that_does_not_fit_is_built_for_the_cpu(emulated):
    class Large(Trainer):
        def __init__(self, *args, backend, **named):
            if backend == "cuda":
                raise torch.OutOfMemoryError("CUDA out of memory")
            super().__init__(*args, backend=backend, **named)

    with running_engine(make_trainer=Large, open_scene=open_tiny, load_backend=lambda name, report: Ready(name),
                        backend="cuda") as window:
        window.open(play=True)
        window.until(lambda: window.snapshot.iteration > 2)
        assert window.snapshot.backend == "cpu" and any("do not fit into the GPU" in e.text for e in window.of(m.Notice))


def test_a_step_that_failed_is_said_when_the_backend_changes_and_the_change_goes_on(emulated):
    """The verdict on a GPU's last step is still out when the user switches."""
    original, windows = emulated.launch, []

    def broken(kernel, double, grid, block, values):
        original(kernel, double, grid, block, values)
        if kernel == "gaussian_bwd":
            values[-6][3] = float("nan")   # v_means of one Gaussian

    class Switching(Trainer):
        def step(self):
            report = super().step()
            windows[0].send(m.SetBackend("cpu"))
            return report

    with running_engine(make_trainer=Switching, open_scene=open_tiny, load_backend=lambda name, report: Ready(name),
                        backend="cuda") as window:
        windows.append(window)
        window.open()
        emulated.launch = broken
        window.send(m.Step(1))
        window.until(lambda: window.snapshot.backend == "cpu")
        emulated.launch = original
        assert any("gradient of means is not finite" in e.text for e in window.of(m.Notice))
        assert not window.of(m.EngineFailed) and window.snapshot.iteration == 0


def test_numbers_that_could_not_be_read_still_wait(emulated):
    told = []
    later = cuda.Later()
    later.put(torch.tensor([1.0, 2.0]), told.append)
    with pytest.raises(RuntimeError):
        later.read(torch.zeros(1, 1))   # cannot be put beside the others
    assert not told
    later.settle()
    assert told == [[1.0, 2.0]]


def test_the_window_names_no_chip_before_the_kernels_are_loaded():
    """I15: asking a machine without CUDA for its GPU's name would raise in every snapshot."""
    with running_engine(backend="cuda", load_backend=lambda name, report: Ready("reference", "PyCUDA is missing")) as window:
        window.open()
        assert not window.of(m.EngineFailed) and window.snapshot.backend == "reference" and window.snapshot.device


def test_out_of_memory_on_the_cpu_pauses_with_a_sentence():
    class Full(Trainer):
        def step(self):
            raise MemoryError

    with running_engine(make_trainer=Full) as window:
        window.open(play=True)
        window.until(window.state("paused"))
        assert any("not enough memory for 20 Gaussians" in e.text for e in window.of(m.Notice))
        assert not window.of(m.EngineFailed)


def test_what_is_frozen_keeps_its_bits(emulated):
    """Through steps, a densification and a reset of opacities."""
    trainer = Trainer(tiny(), CONFIG, backend="cuda")
    frozen = torch.arange(len(trainer.params)) < 7
    trainer.state.rows.put(FROZEN, frozen)
    before = {name: tensor.detach()[frozen].clone() for name, tensor in trainer.params.trained().items()}
    for _ in range(CONFIG.iterations):
        trainer.step()
    trainer.settle()
    assert len(trainer.params) > 30 and trainer.params.uids[:7].tolist() == list(range(7))
    for name, tensor in trainer.params.trained().items():
        assert torch.equal(tensor.detach()[:7], before[name]), name
    assert trainer.state.rows[FROZEN].sum() == 7
