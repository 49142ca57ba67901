"""Where a C compiler puts the parameters of each kernel: a struct is made of every declaration, and its offsets printed."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from render.backends import compile, nvcc
from render.backends.signatures import CUDA_FILES

_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(([^)]*)\)')


@cache
def declarations() -> dict[str, list[str]]:
    """The parameters of each kernel as the .cu files declare them, as in "const Real* means"."""
    found = {}
    for file in CUDA_FILES:
        for name, parameters in _KERNEL.findall(nvcc.source(file)):
            found[name] = [" ".join(word.replace("__restrict__", "").split()) for word in parameters.split(",")]
    return found


@cache
def offsets(double: bool) -> dict[str, list[tuple[int, int]]]:
    """(offset, bytes) of each parameter of each kernel."""
    compiler, folder = compile.find_compiler(), compile.source_folder()
    assert compiler is not None, "the layout needs a C++ compiler"
    structs, prints = [], []
    for name, parameters in declarations().items():
        structs.append(f"struct P_{name} {{ {' '.join(f'{p};' for p in parameters)} }};\n")
        fields = [re.findall(r"\w+", p)[-1] for p in parameters]
        cells = ", ".join(f"int(offsetof(P_{name}, {f})), int(sizeof(P_{name}::{f}))" for f in fields)
        prints.append(f'    std::printf("{name}"); for (int cell : {{{cells}}}) std::printf(" %d", cell); std::puts("");\n')
    program = ('#include "common.h"\n#include <cstddef>\n#include <cstdio>\n#include <initializer_list>\n'
               f"{''.join(structs)}int main() {{\n{''.join(prints)}}}\n")
    with tempfile.TemporaryDirectory() as scratch:
        main, built = Path(scratch) / "layout.cpp", Path(scratch) / "layout"
        main.write_text(program)
        subprocess.run([*compiler.command, "-std=c++20", "-w", "-I", str(folder), *(["-DGS_DOUBLE"] if double else []),
                        str(main), "-o", str(built)], check=True, timeout=120)
        said = subprocess.run([str(built)], capture_output=True, text=True, check=True, timeout=60).stdout
    found = {}
    for line in said.splitlines():
        name, *cells = line.split()
        found[name] = list(zip(map(int, cells[::2]), map(int, cells[1::2])))
    return found
