"""The audited function: found by name, called as it needs to be called, and every way it can fail in one sentence."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from app.inspection.audit.types import PARAMETERS, AuditError, Probe

SIGNATURE = "render(means, quats, scales, opacities, sh, viewmat, K, width, height, background)"
SHIPPED = {"cpu": "splatscope_cpu", "reference": "splatscope_reference", "plain": "plain_torch", "plain_torch": "plain_torch",
           "gsplat": "gsplat", "diff_gaussian_rasterization": "diff_gaussian_rasterization",
           "splatscope_cpu": "splatscope_cpu", "splatscope_reference": "splatscope_reference"}
"""Short names of the functions in app/inspection/audit/adapters.py."""
DTYPES = {"float64": torch.float64, "float32": torch.float32}


def load(name: str) -> Callable[..., Any]:
    """The function that `module:function`, or the short name of a shipped adapter, stands for; modules are looked for in the
    working folder too. Raises AuditError."""
    module_name, colon, function_name = name.partition(":")
    if not colon:
        if name not in SHIPPED:
            raise AuditError(f"{name!r} names no rasterizer; write module:function, or one of {', '.join(SHIPPED)}")
        module_name, function_name = "app.inspection.audit.adapters", SHIPPED[name]
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())   # an installed command does not look there, `python -m` does
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise AuditError(f"there is no module {module_name}, here or among the installed ones") from None
        raise AuditError(f"importing {module_name} failed: {first_line(error)}") from error
    except (Exception, SystemExit) as error:   # foreign code may try to end the process
        raise AuditError(f"importing {module_name} failed: {first_line(error)}") from error
    function: Any = module
    for part in function_name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise AuditError(f"{module_name} has no function {function_name}")
    try:
        inspect.signature(function).bind(*range(10))
    except TypeError as error:
        raise AuditError(f"{name} cannot be called as {SIGNATURE}: {error}") from None
    except ValueError:   # a built-in without a signature is tried as it is
        pass
    return function


def first_line(error: BaseException) -> str:
    """Kind and first line of an exception."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


@dataclass(frozen=True)
class Target:
    """The function, and how it wants its tensors."""

    name: str
    function: Callable[..., Any]
    dtype: torch.dtype
    device: torch.device
    sh_degree: int

    def leaves(self, probe: Probe) -> dict[str, Tensor]:
        """The probe's parameters in the target's type, on its device, requiring gradients."""
        tensors = probe.tensors() | {"sh": probe.sh[:, :(self.sh_degree + 1) ** 2]}
        return {name: tensor.detach().to(self.device, self.dtype).contiguous().clone().requires_grad_()
                for name, tensor in tensors.items()}

    def call(self, leaves: dict[str, Tensor], probe: Probe) -> Tensor:
        """The function's picture as it returns it. Raises AuditError."""
        camera = probe.camera
        viewmat, K = (torch.as_tensor(m).to(self.device, self.dtype).contiguous() for m in (camera.viewmat, camera.K))
        *gaussians, background = (leaves[name] for name in PARAMETERS)
        try:
            image = self.function(*gaussians, viewmat, K, camera.width, camera.height, background)
        except AuditError:
            raise
        except (Exception, SystemExit) as error:   # foreign code may try to end the process
            raise AuditError(f"{self.name} raised {first_line(error)} (scene {probe.name})") from error
        self._check(image, camera.height, camera.width)
        return image

    def _check(self, image: Any, height: int, width: int) -> None:
        if not isinstance(image, Tensor):
            what = f"a {type(image).__name__} of {len(image)}" if isinstance(image, (tuple, list)) else type(image).__name__
            raise AuditError(f"{self.name} returned {what}; it must return one tensor, the image [H,W,3]")
        if tuple(image.shape) != (height, width, 3):
            raise AuditError(f"{self.name} returned a tensor of shape {list(image.shape)}; "
                             f"the image must be [H,W,3] = [{height}, {width}, 3]")
        if not image.is_floating_point():
            kind = str(image.dtype).removeprefix("torch.")
            raise AuditError(f"{self.name} returned an image of {kind}; it must be float32 or float64")
        if not image.requires_grad:
            raise AuditError(f"{self.name} returned an image that is not differentiable: it does not depend on its arguments "
                             "through autograd")

    def image(self, probe: Probe) -> Tensor:
        """[H,W,3] float64 on the CPU."""
        return self.call(self.leaves(probe), probe).detach().to("cpu", torch.float64)

    def gradients(self, probe: Probe, cotangent: Tensor) -> dict[str, Tensor | None]:
        """Gradients of sum(cotangent * image) by parameter, float64 on the CPU; None where there is none.

        SH bands that the target cannot take have gradient 0 in the result, whose shapes are those of the probe.
        """
        leaves = self.leaves(probe)
        image = self.call(leaves, probe)
        try:
            loss = (image * cotangent.to(image)).sum()
            found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        except (Exception, SystemExit) as error:   # foreign code may try to end the process
            raise AuditError(f"the backward of {self.name} raised {first_line(error)} (scene {probe.name})") from error
        result: dict[str, Tensor | None] = {}
        for name, gradient in zip(leaves, found, strict=True):
            result[name] = None if gradient is None else gradient.detach().to("cpu", torch.float64)
        sh = result["sh"]
        if sh is not None and sh.shape != probe.sh.shape:
            result["sh"] = torch.cat([sh, sh.new_zeros(probe.sh.shape[0], probe.sh.shape[1] - sh.shape[1], 3)], dim=1)
        return result


def ways(dtype: str | None) -> Iterator[tuple[torch.dtype, torch.device, int]]:
    """How a function may be called, the most telling way first."""
    devices = [torch.device("cpu")] + ([torch.device("cuda")] if torch.cuda.is_available() else [])
    for device in devices:
        for kind in [dtype] if dtype else ["float64", "float32"]:
            for degree in (3, 2, 1, 0):
                yield DTYPES[kind], device, degree


def prepare(name: str, function: Callable[..., Any], probe: Probe, dtype: str | None, notes: list[str]) -> Target:
    """The first way in which the function draws the probe and its gradient; what it cannot do is added to `notes`.

    `dtype` "float64" or "float32" asks for one; None tries both. Raises AuditError with the failure of the way that ought
    to have worked: full SH, the last type tried.
    """
    failures: dict[tuple[torch.dtype, torch.device, int], AuditError] = {}
    for way in ways(dtype):
        target = Target(name, function, *way)
        try:
            target.gradients(probe, torch.ones(probe.camera.height, probe.camera.width, 3, dtype=torch.float64))
        except AuditError as error:
            if not isinstance(error.__cause__, Exception):   # its own fault, and the same in every other way
                raise
            failures[way] = error
            continue
        _explain(target, dtype, notes)
        return target
    error = [e for (_, _, degree), e in failures.items() if degree == 3][-1]
    wants_cuda = any(word in str(e).lower() for e in failures.values() for word in ("cuda", "gpu"))
    if wants_cuda and not torch.cuda.is_available():
        raise AuditError(f"{name} seems to need an NVIDIA GPU, and PyTorch finds none here: {error}") from error.__cause__
    raise error


def _explain(target: Target, asked: str | None, notes: list[str]) -> None:
    """One sentence for each thing that was asked of the target and that it could not do."""
    if target.device.type == "cuda":
        notes.append("It runs only on the GPU; the tensors were put there.")
    if target.dtype == torch.float32 and not asked:
        notes.append("It takes float32 only, so tolerances are those of float32.")
    if target.sh_degree < 3:
        notes.append(f"It takes spherical harmonics up to degree {target.sh_degree} only; higher bands were left out.")
