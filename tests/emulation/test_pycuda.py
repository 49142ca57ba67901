"""The CUDA backend above PyCUDA, with a stand-in for PyCUDA that punishes what the real one does: nothing here has a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from render.backends import cuda
from render.backends.launches import LaunchError
from render.backends.signatures import CUDA_KERNELS
from render.config import RasterConfig
from tests import scenes
from tests.emulation.fake_pycuda import HOSTS, LogicError, activated, build_arg_buf, in_a_thread, unpack
from tests.emulation.layout import declarations
from tests.emulation.test_cuda_pictures import compare, run, run_fused


# ---------------------------------------------------------------- pictures
@pytest.mark.parametrize("runner", [run, run_fused], ids=["stages", "fused"])
def test_I03_I04_a_picture_and_its_gradients_through_pycuda_equal_the_cpu(gpu, runner):
    case = scenes.make_random(40, 37, 23, 21, off_center=0.3, aspect=1.3, opacity=(0.05, 0.9999))
    compare(case, RasterConfig(), 1e-10, runner)
    assert {"rasterize_fwd", "rasterize_bwd", "binning_emit16", "binning_ranges16"} <= set(gpu.launched)
    assert gpu.retained == 1 and gpu.pushes == 1


def test_I01_I02_forward_and_backward_in_a_cold_worker_thread(gpu):
    in_a_thread(lambda: compare(scenes.make_random(20, 37, 23, 21), RasterConfig(), 1e-10))
    assert gpu.retained == 1 and gpu.pushes == 1


def test_I02_kernels_loaded_in_one_thread_are_launched_in_another(gpu):
    k = cuda.kernels(torch.float32)
    values = activated(k)
    function = cuda._driver._functions["activate_fwd", False]
    with pytest.raises(LogicError, match="invalid device context"):   # what a launch would meet there by itself
        in_a_thread(lambda: function(*cuda.packed(CUDA_KERNELS["activate_fwd"], tuple(values), False), grid=(1, 1, 1),
                                     block=(128, 1, 1)))
    in_a_thread(lambda: k.activate_fwd(*values))
    assert torch.equal(values[4], torch.full((5, 4), 0.5))


# ---------------------------------------------------------------- arguments
def sample(kernel: str, double: bool) -> tuple[Any, ...]:
    """Values of the right kinds, all different from each other."""
    values: list[Any] = []
    for place, arg in enumerate(CUDA_KERNELS[kernel]):
        if arg.type in ("camera", "raster"):
            host = HOSTS[double]
            made = host.camera(scenes.make_camera(), RasterConfig()) if arg.type == "camera" else host.raster(RasterConfig())
            values.append(made)
        elif arg.shape is not None:
            values.append(None if arg.nullable and place % 2 else torch.empty(1))
        else:
            values.append({"i32": 100_000 + place, "i64": 2**40 + place}.get(arg.type, 0.5 + place))
    return tuple(values)


@pytest.mark.parametrize("double", [False, True], ids=["float", "double"])
@pytest.mark.parametrize("kernel", CUDA_KERNELS)
def test_I12_every_parameter_lies_where_C_looks_for_it(kernel, double):
    values = sample(kernel, double)
    read = unpack(kernel, double, build_arg_buf(tuple(cuda.packed(CUDA_KERNELS[kernel], values, double))))
    for arg, given, got in zip(CUDA_KERNELS[kernel], values, read, strict=True):
        if arg.type in ("camera", "raster"):
            assert bytes(got) == bytes(given), arg.name
        elif arg.shape is not None:
            assert got == (0 if given is None else given.data_ptr()), arg.name
        else:
            assert got == given, arg.name


def test_I12_declarations_name_the_types_of_the_signatures():
    words = {"camera": "CameraArgs", "raster": "RasterArgs", "real": "Real", "i16": "short", "i32": "int", "i64": "long long",
             "f64": "double"}
    assert set(declarations()) == set(CUDA_KERNELS)
    for kernel, arguments in CUDA_KERNELS.items():
        for arg, declared in zip(arguments, declarations()[kernel], strict=True):
            kind = " ".join(re.findall(r"\w+|\*", declared)[:-1]).removeprefix("const ").replace("unsigned short", "short")
            assert kind == words[arg.type] + (" *" if arg.shape is not None else ""), f"{kernel}: {arg.name} is {declared}"


def test_I12_pycuda_takes_no_python_numbers():
    for value in (3, 0.5, None, torch.zeros(1)):
        with pytest.raises(TypeError, match="parameter #1"):
            build_arg_buf((np.int32(1), value))
    with pytest.raises(OverflowError):
        cuda.packed(CUDA_KERNELS["activate_fwd"][:1], (2**31,), False)


WRONG: dict[str, Callable[[list[Any]], Any]] = {
    "dtype": lambda v: v[2].double(),
    "a strided view": lambda v: torch.ones(3, 5).T,
    "shape": lambda v: torch.ones(4, 3),
    "number of axes": lambda v: torch.ones(5, 3, 1),
    "another device": lambda v: v[2].to("meta"),
    "None": lambda v: None,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_I12_a_wrong_argument_is_refused_by_name(gpu, wrong):
    k = cuda.kernels(torch.float32)
    values = activated(k)
    values[2] = WRONG[wrong](values)
    with pytest.raises(LaunchError, match="^activate_fwd: log_scales must be a contiguous CPU real tensor"):
        k.activate_fwd(*values)
    assert gpu.launched == []


def test_I12_a_tensor_on_another_gpu_is_refused():
    class OnAnother:
        dtype, device, shape = torch.float32, torch.device("cuda", 1), (5, 4)

        def is_contiguous(self) -> bool:
            return True

    plan = cuda.Plan("activate_fwd", CUDA_KERNELS["activate_fwd"], torch.float32, torch.device("cuda", 0))
    with pytest.raises(LaunchError, match="quats must be a contiguous CUDA:0 real tensor"):
        plan.check([5, OnAnother(), *([None] * 5)])


def test_I13_nothing_is_launched_for_nothing(gpu):
    k = cuda.kernels(torch.float32)
    k.activate_fwd(*activated(k, 0))
    assert gpu.launched == []


def test_I09_a_launch_beside_the_default_stream_is_refused(gpu):
    k = cuda.kernels(torch.float32)
    gpu.stream = 94_000_000_001
    with pytest.raises(LaunchError, match="activate_fwd: .*default stream"):
        k.activate_fwd(*activated(k))
    assert gpu.launched == []


def test_debug_names_the_kernel_and_the_output_that_became_NaN(gpu, monkeypatch):
    monkeypatch.setenv("SPLATSCOPE_DEBUG", "1")
    k = cuda.kernels(torch.float64)
    values = activated(k)
    k.activate_fwd(*values)
    values[2][3, 1] = float("nan")
    with pytest.raises(FloatingPointError, match=r"activate_fwd wrote NaN into scales, first at row 3 \(1 numbers of 15\)"):
        k.activate_fwd(*values)
