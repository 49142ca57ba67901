"""Damaged input of every kind: thousands of small accidents end in one sentence or in a scene, never in a traceback."""

from __future__ import annotations

import numpy as np
import pytest

from app.data.gaussians import read_gaussians, write_gaussians
from app.data.open import open_scene
from app.data.ply import write_table
from app.data.scene import SceneError
from tests.data.synthetic import NAMES, OPENCV, colmap_scene, transforms_scene
from tests.data.test_gaussians import some


def compressed(count: int = 3, **without: np.ndarray) -> dict[str, np.ndarray]:
    """The vertex columns of a compressed PLY."""
    words = np.arange(count, dtype=np.uint32) * 12345
    names = ["packed_position", "packed_rotation", "packed_scale", "packed_color"]
    return {name: words for name in names if name not in without}


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """One to three bytes changed, removed or inserted in the first 3,000."""
    result = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(min(len(result), 3000)))
        kind = rng.integers(3)
        if kind == 0:
            result[at] = rng.integers(256)
        elif kind == 1:
            del result[at:at + rng.integers(1, 9)]
        else:
            result[at:at] = rng.integers(0, 256, rng.integers(1, 9), dtype=np.uint8).tobytes()
    return bytes(result)


SCENES = {"binary": lambda root: colmap_scene(root, NAMES[:3], points=4, camera=OPENCV),
          "text": lambda root: colmap_scene(root, NAMES[:3], points=4, camera=OPENCV, text=True),
          "json": lambda root: transforms_scene(root, NAMES[:2], k1=0.01)}


@pytest.mark.parametrize("kind", SCENES)
def test_damaged_scenes(tmp_path, kind):
    root, rng = SCENES[kind](tmp_path), np.random.default_rng(0)
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    outcomes = {True: 0, False: 0}
    for _ in range(150):
        file = files[rng.integers(len(files))]
        whole = file.read_bytes()
        file.write_bytes(damaged(whole, rng))
        try:
            open_scene(root, resolution=1).views[0].load()
            outcomes[True] += 1
        except SceneError as error:
            assert "\n" not in str(error) and str(root) in str(error)
            outcomes[False] += 1
        file.write_bytes(whole)
    assert min(outcomes.values()) > 10, "the damage neither always nor never matters"


def test_damaged_gaussians(tmp_path):
    write_gaussians(tmp_path / "a.ply", some(3, 1))
    whole, rng, refused = (tmp_path / "a.ply").read_bytes(), np.random.default_rng(0), 0
    for _ in range(200):
        (tmp_path / "a.ply").write_bytes(damaged(whole, rng))
        try:
            assert read_gaussians(tmp_path / "a.ply").gaussians.finite().all()
        except SceneError as error:
            assert "\n" not in str(error)
            refused += 1
    assert 20 < refused < 200


@pytest.mark.parametrize("name", ["packed_rotation", "packed_scale", "packed_color"])
def test_an_incomplete_compressed_ply_names_what_is_absent(tmp_path, name):
    from plyfile import PlyData, PlyElement

    write_table(tmp_path / "v.ply", compressed(**{name: np.zeros(0)}))
    vertex = PlyData.read(tmp_path / "v.ply")["vertex"]
    bounds = [f"{end}_{axis}" for end in ("min", "max") for axis in ("x", "y", "z", "scale_x", "scale_y", "scale_z")]
    chunk = PlyElement.describe(np.zeros(1, dtype=[(bound, "f4") for bound in bounds]), "chunk")
    PlyData([chunk, vertex], byte_order="<").write(tmp_path / "a.ply")
    with pytest.raises(SceneError, match=f"vertices without {name} as 4-byte words"):
        read_gaussians(tmp_path / "a.ply")
    PlyData([vertex], byte_order="<").write(tmp_path / "b.ply")
    with pytest.raises(SceneError, match="no chunk element"):
        read_gaussians(tmp_path / "b.ply")
