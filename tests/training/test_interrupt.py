"""A step, a picture or a measurement can be given up for whoever waits (U07), and nothing is lost by it."""

from __future__ import annotations

import itertools
import threading

import pytest
import torch

from app.config import DensifyConfig, TrainConfig
from app.training.evaluate import evaluation_job
from app.training.trainer import Trainer
from render import interrupt
from render.backends import cpu
from render.interrupt import Interrupted
from render.stages.ssim import photometric_loss
from tests.training.test_trainer import fingerprint
from tests.training.tiny import make_scene

CONFIG = TrainConfig(iterations=12, micro_batch=2, schedule_iterations=30_000,
                     densify=DensifyConfig(start=4, stop=9, every=4, grad_threshold=1e-6))


class AtCheck(interrupt.Request):
    """Made at the n-th look that Python takes at it."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.left = n

    def __bool__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.fixture
def listening():
    yield interrupt.listen
    interrupt.listen(None)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_steps_given_up_at_any_point_and_taken_again_leave_the_bits_of_a_run_that_was_not(backend, listening):
    scene = make_scene(3, 12, size=32, points=30)
    plain, broken = (Trainer(scene, CONFIG, backend=backend) for _ in range(2))
    given_up = 0
    for iteration in range(CONFIG.iterations):
        report, places = plain.step(), itertools.count(iteration % 5, 5)
        while True:
            before = fingerprint(broken), broken.gradients(), broken.last_view_index
            listening(AtCheck(next(places)))
            try:
                again = broken.step()
                break
            except Interrupted:
                given_up += 1
                assert before[0] == fingerprint(broken) and before[2] == broken.last_view_index
                assert all(broken.gradients()[name] is value for name, value in before[1].items())
                assert all(t.grad is None for t in broken.params.trained().values())
        listening(None)
        assert (again.view_name, again.loss, again.densified) == (report.view_name, report.loss, report.densified)
    assert given_up >= 20 and fingerprint(plain) == fingerprint(broken)
    assert len(plain.params) > 30   # it densified


def test_a_kernel_skips_what_is_left_and_its_launch_raises(listening):
    k = cpu.kernels(torch.float32)
    raw = torch.randn(100_000, 4)
    quats = torch.empty_like(raw)
    request = interrupt.Request()

    def activate() -> None:
        n = len(raw)
        quats.fill_(7.0)
        k.activate_fwd(n, raw, torch.zeros(n, 3), torch.zeros(n), quats, torch.empty(n, 3), torch.empty(n))

    listening(request)
    request.make()
    activate()
    assert not (quats == 7.0).any()   # not interruptible: done
    with interrupt.interruptible(), pytest.raises(Interrupted):
        activate()
    assert (quats == 7.0).all()
    request.clear()
    with interrupt.interruptible():
        activate()
    assert not (quats == 7.0).any()


def test_a_thread_that_listens_to_nothing_is_never_interrupted(listening):
    request = interrupt.Request()
    listening(request)
    request.make()
    trainer = Trainer(make_scene(3, 12, size=32, points=30), CONFIG, backend="cpu")
    done = []
    with interrupt.interruptible():
        other = threading.Thread(target=lambda: done.append(trainer.step()))
        other.start()
        other.join()
    assert done[0].iteration == 1
    with pytest.raises(Interrupted):
        trainer.step()


def test_a_measurement_given_up_is_taken_again(listening):
    scene = make_scene(6, 12, size=32, points=30, test_every=2)
    trainer = Trainer(scene, CONFIG, backend="reference")

    def measured(request: interrupt.Request | None):
        listening(request)
        job, turns = evaluation_job(trainer, scene.test), 0
        while True:
            try:
                next(job)
                turns += 1
            except StopIteration as end:
                return end.value, turns

    (plain, turns), (again, more) = measured(None), measured(OnceAt(3))
    assert plain == again and more == turns + 1


class OnceAt(AtCheck):
    """The same, but the listener clears it."""

    def __bool__(self) -> bool:
        self.left -= 1
        return self.left == -1


def test_the_reference_loss_can_be_given_up_on_the_way_there_and_back(listening):
    """Its SSIM of a whole picture takes up to a second each way."""
    target = torch.rand(24, 20, 3)

    def attempt(n: int) -> tuple[str, torch.Tensor | None]:
        image = (target * 0.5 + 0.1).requires_grad_()
        listening(AtCheck(n))
        where = "forward"
        try:
            with interrupt.interruptible():
                loss, _ = photometric_loss(image, target, backend="reference")
                where = "backward"
                loss.backward()
        except Interrupted:
            return where, None
        finally:
            listening(None)
        return "done", image.grad

    places = [attempt(n)[0] for n in range(200)]
    assert places.count("forward") >= 4 and places.count("backward") >= 4 and places[-1] == "done"
    assert torch.equal(attempt(10**6)[1], attempt(10**6 + 1)[1])


def test_the_losses_of_all_views_given_up_anywhere_are_those_of_a_measurement_that_was_not(listening):
    scene = make_scene(4, 12, size=32, points=30, test_every=2)
    trainer = Trainer(scene, CONFIG, backend="reference")
    plain = evaluation_job(trainer, scene.views)
    expected = None
    while expected is None:
        try:
            next(plain)
        except StopIteration as end:
            expected = end.value
    job, n = evaluation_job(trainer, scene.views), 0
    while True:
        listening(OnceAt(n) if n % 3 else None)   # else a view with many places to stop at would never be done
        n += 1
        try:
            next(job)
        except StopIteration as end:
            assert end.value == expected and n > 2 * len(scene.views) + 1
            return
