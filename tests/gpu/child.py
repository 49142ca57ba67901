"""python -m tests.gpu.child WHAT [--emulated]: what the GPU tests do in processes of their own."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading


def emulation(emulated: bool) -> contextlib.AbstractContextManager[None]:
    if not emulated:
        return contextlib.nullcontext()
    from render.backends import cuda
    from tests.emulation.host import Emulated

    return cuda.driven_by(Emulated(orders=1))


def picture() -> None:
    from render.config import RasterConfig
    from tests import scenes
    from tests.gpu.pictures import compare

    compare(scenes.make_random(30, 37, 23, 21), RasterConfig(), fused=True)


def in_a_thread() -> None:
    """Everything for the first time, in a thread; then again in another, which only launches."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            picture()
            current_context_is_the_primary_one()
        except BaseException as error:
            failed.append(error)
            raise

    for _ in range(2):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    if failed:
        raise SystemExit(1)


def current_context_is_the_primary_one() -> None:
    import ctypes

    from render.backends import cuda

    if isinstance(cuda._driver, cuda.PyCuda):
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        current, primary, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        driver.cuDeviceGet(ctypes.byref(device), cuda._driver.index)
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(primary), device)
        driver.cuCtxGetCurrent(ctypes.byref(current))
        driver.cuDevicePrimaryCtxRelease(device)
        assert current.value == primary.value != 0, (current, primary)


def train(emulated: bool) -> None:
    """Say each step that was taken, without end."""
    import torch

    from app.config import TrainConfig
    from app.training.trainer import Trainer
    from tests.training.tiny import make_scene

    scene = make_scene(3, 12, size=32, points=30 if emulated else 5000)
    trainer = Trainer(scene, TrainConfig(iterations=10**6), backend="cuda")
    while True:
        report = trainer.step()
        assert torch.isfinite(trainer.params.means).all()
        print(f"step {report.iteration}", flush=True)


def main(what: str, emulated: bool) -> None:
    if what == "pycuda-first" and not emulated:
        importlib.import_module("pycuda.driver").init()
    import torch

    if what == "torch-first" and not emulated:
        torch.zeros(1, device="cuda")
        importlib.import_module("pycuda.driver")
    with emulation(emulated):
        if what == "train":
            train(emulated)
        elif what == "thread":
            in_a_thread()
        else:
            picture()
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], "--emulated" in sys.argv)
