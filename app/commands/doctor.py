"""`splatscope doctor`: what was found, what will be used, how to get more. It needs no GPU, display or compiler."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from render.config import setting

CPU_FLAGS = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512bw", "neon", "asimd", "sve")
BACKEND_MEANING = {
    "cuda": "CUDA kernels on the GPU",
    "cpu": "compiled C++ kernels on all cores",
    "reference": "plain PyTorch, slow: the executable definition",
}


@dataclass(frozen=True)
class DoctorArgs:
    json: bool = setting(False, "Print one JSON object instead of text.")


def run(args: DoctorArgs) -> int:
    """Print the report; always 0, since looking cannot fail."""
    report = examine()
    print(json.dumps(report, indent=2) if args.json else as_text(report))
    return 0


def examine() -> dict[str, Any]:
    """Everything that was found, as JSON-ready values; None where there is nothing."""
    from app.gui.display import display_problem
    from render.backends import compile as compilation

    packages, missing = installed()
    gpu, cache = find_gpu(), find_cache()
    report: dict[str, Any] = {
        "splatscope": packages.pop("splatscope", None),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "compiler": find_compiler(),
        "cxx_problem": compilation.cxx_problem(),
        "cpu": find_cpu(),
        "gpu": gpu,
        "display": {"name": os.environ.get("DISPLAY"), "problem": display_problem()},
        "packages": packages,
        "missing_packages": missing,
        "cache": cache,
        "uses": what_runs(cache["writable"]),
    }
    report["advice"] = advise(report)
    return report


# ---------------------------------------------------------------- what there is
def find_compiler() -> dict[str, Any] | None:
    from render.backends import compile as compilation

    found = compilation.find_compiler()
    return None if found is None else {"name": found.name, "path": str(found.path), "version": found.version}


def find_cpu() -> dict[str, Any]:
    from app.training.backend import usable_cores

    model, flags = platform.processor() or platform.machine(), []
    info = Path("/proc/cpuinfo")
    if info.exists():
        text = info.read_text(encoding="utf-8", errors="replace")
        name = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
        words = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.M)
        model = name.group(1).strip() if name else model
        flags = [f for f in CPU_FLAGS if words and f in words.group(1).split()]
    return {"model": model, "cores": usable_cores(), "features": flags}


def find_gpu() -> dict[str, Any]:
    """NVIDIA devices and the driver, asked from the system; toolkit and PyCUDA, and what the renderer misses for CUDA."""
    from render.backends import cuda, nvcc

    devices = []
    smi = shutil.which("nvidia-smi")
    if smi:
        for line in _output(
            [smi, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        ).splitlines():
            cells = [c.strip() for c in line.split(",")]
            if len(cells) == 3:
                devices.append(dict(zip(("name", "driver", "memory"), cells, strict=True)))
    compiler = nvcc.find_nvcc()
    return {
        "devices": devices,
        "driver_cuda": _driver_cuda(),
        "nvcc": compiler and {"path": compiler.path, "version": compiler.version},
        "pycuda": _pycuda(),
        "missing": list(cuda.problems()),
    }


def _driver_cuda() -> str | None:
    """The newest CUDA that the installed driver runs, such as "12.4"."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    return (
        f"{version.value // 1000}.{version.value % 1000 // 10}"
        if driver.cuDriverGetVersion(ctypes.byref(version)) == 0
        else None
    )


def _pycuda() -> str | None:
    try:
        return metadata.version("pycuda")
    except metadata.PackageNotFoundError:
        return None


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def installed() -> tuple[dict[str, str], list[str]]:
    """({distribution: version}, required ones that are missing), as our own package metadata lists them."""
    found: dict[str, str] = {}
    missing = []
    try:
        found["splatscope"] = metadata.version("splatscope")
        requirements = metadata.requires("splatscope") or []
    except metadata.PackageNotFoundError:
        return found, ["splatscope"]
    for requirement in requirements:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if "extra ==" not in requirement:
                missing.append(name)
    return found, missing


def find_cache() -> dict[str, Any]:
    from render.backends import compile as compilation

    folder = Path(compilation.cache_folder())
    files = [f for f in folder.rglob("*") if f.is_file()] if folder.exists() else []
    parent = next(p for p in (folder, *folder.parents) if p.exists())
    return {
        "path": str(folder),
        "files": len(files),
        "bytes": sum(f.stat().st_size for f in files),
        "writable": parent.is_dir() and os.access(parent, os.W_OK),
    }


def what_runs(cache_writable: bool) -> dict[str, Any]:
    """The backend that `auto` means here, asked from the renderer itself."""
    from render.backends import compile as compilation
    from render.pipeline import resolve_backend

    backend = resolve_backend("auto")
    if backend == "cpu" and not cache_writable and not compilation.is_built():
        backend = "reference"  # the kernels cannot be built, and that is what `auto` falls back to
    return {"backend": backend, "meaning": BACKEND_MEANING[backend]}


# ---------------------------------------------------------------- what to do
def advise(report: dict[str, Any]) -> list[str]:
    """One sentence for each thing that would give more."""
    gpu, advice = report["gpu"], []
    if report["missing_packages"]:
        advice.append(
            f"Required packages are missing: {', '.join(report['missing_packages'])}; run `pip install -e .` again."
        )
    if report["compiler"] is None:
        advice.append(
            "No C++ compiler was found, so the plain PyTorch renderer runs, which is slow; install g++ or "
            "clang, or run `pip install ziglang`."
        )
    if not report["cache"]["writable"]:
        advice.append(
            f"The cache folder {report['cache']['path']} is not writable, so kernels that are not in it yet cannot be "
            "compiled and the plain PyTorch renderer runs instead, which is slow; make it writable or set "
            "SPLATSCOPE_CACHE to another folder."
        )
    if report["cxx_problem"]:
        advice.append(report["cxx_problem"])
    if report["display"]["problem"]:
        advice.append(report["display"]["problem"])
    nvcc = gpu["nvcc"]
    if nvcc and gpu["driver_cuda"] and _numbers(nvcc["version"]) > _numbers(gpu["driver_cuda"]):
        advice.append(
            f"nvcc is of CUDA {nvcc['version']} but the driver runs at most CUDA {gpu['driver_cuda']}; "
            "update the driver or install an older toolkit."
        )
    return advice


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in version.split("."))


def as_text(report: dict[str, Any]) -> str:
    compiler, cpu, gpu, display, cache = (report[k] for k in ("compiler", "cpu", "gpu", "display", "cache"))
    rows = [
        (
            "Compiler",
            f"{compiler['version'] or compiler['name']}, {compiler['path']}" if compiler else "none found",
        ),
        ("CPU", f"{cpu['model']}, {cpu['cores']} cores usable, {' '.join(cpu['features']) or 'features unknown'}"),
        (
            "GPU",
            "; ".join(f"{d['name']}, {d['memory']}, driver {d['driver']}" for d in gpu["devices"])
            or "no NVIDIA GPU found",
        ),
        (
            "CUDA",
            ", ".join(
                filter(
                    None,
                    [
                        gpu["driver_cuda"] and f"driver up to {gpu['driver_cuda']}",
                        gpu["nvcc"] and f"nvcc {gpu['nvcc']['version']} ({gpu['nvcc']['path']})",
                        gpu["pycuda"] and f"PyCUDA {gpu['pycuda']}",
                    ],
                )
            )
            or "no driver, toolkit or PyCUDA found",
        ),
        (
            "Display",
            "no window can open (see below)" if display["problem"] else f"{display['name'] or 'desktop'}, OpenGL found",
        ),
        ("Cache", f"{cache['path']} ({cache['files']} files, {cache['bytes'] / 1e6:.1f} MB)"),
        ("Packages", ", ".join(f"{name} {version}" for name, version in report["packages"].items())),
        ("Will use", f"backend {report['uses']['backend']} ({report['uses']['meaning']})"),
    ]
    lines = [f"splatscope {report['splatscope']}, Python {report['python']}, {report['platform']}", ""]
    lines += [f"{name:<9} {text}" for name, text in rows]
    if gpu["missing"]:
        lines += ["", "To run on an NVIDIA GPU:", *(f"  - {sentence}." for sentence in gpu["missing"])]
    if report["advice"]:
        lines += ["", "To get more:", *(f"  - {sentence}" for sentence in report["advice"])]
    return "\n".join(lines)
