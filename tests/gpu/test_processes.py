"""CUDA through cold processes, worker threads, kills, and many starts and stops of the engine."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from app import messages as m
from app.engine.work import Ready
from app.training.trainer import Trainer
from tests.app.engine_doubles import open_tiny, running_engine
from tests.gpu.pictures import EVERYWHERE

ROOT = Path(__file__).resolve().parents[2]


def child(what: str, way: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "tests.gpu.child", what, *(["--emulated"] if way == "emulated" else [])],
                            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    out, error = process.communicate(timeout=240)
    assert process.returncode == 0 and out.endswith("done\n"), error[-3000:]
    assert "PyCUDA" not in error, error[-3000:]   # as what it says of a context that was left on a stack


@pytest.mark.parametrize("way", EVERYWHERE, indirect=True)
def test_I01_I02_I03_forward_and_backward_in_a_worker_thread_of_a_cold_process(way):
    finish(child("thread", way))


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["torch-first", "pycuda-first"])
def test_I04_either_may_be_imported_first(card, order):
    finish(child(order, "card"))


@pytest.mark.parametrize("way", EVERYWHERE, indirect=True)
def test_after_a_kill_in_the_middle_of_a_step_the_next_process_trains(way):
    for _ in range(2):
        process = child("train", way)
        assert process.stdout is not None and process.stderr is not None
        try:
            lines = [process.stdout.readline() for _ in range(3)]
            assert lines == [f"step {i}\n" for i in (1, 2, 3)], process.stderr.read()[-3000:]
            time.sleep(0.003)   # somewhere in a step
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("way", EVERYWHERE, indirect=True)
def test_I07_after_many_starts_and_stops_of_the_engine_the_memory_is_back(way):
    def cycle() -> None:
        with running_engine(make_trainer=Trainer, open_scene=open_tiny, load_backend=lambda name, report: Ready(name),
                            backend="cuda") as window:
            window.open()
            window.send(m.Step(1))
            window.until(lambda: window.snapshot.iteration == 1 and window.snapshot.state == "paused")
            assert not window.of(m.EngineFailed)

    def free() -> int:
        gc.collect()
        if way == "emulated":
            return 0
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]

    for _ in range(3 if way == "card" else 1):   # what is loaded once for the life of the process
        cycle()
    before = free()
    for _ in range(200 if way == "card" else 2):
        cycle()
    assert before - free() <= 1e6
