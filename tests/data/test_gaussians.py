"""Splat PLYs: graphdeco's layout there and back, every variant that other tools write, and clear refusals."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from plyfile import PlyData, PlyElement

from app.data.gaussians import GaussianArrays, read_gaussians, write_gaussians
from app.data.ply import read_header, read_points, write_points
from app.data.scene import PointCloud, SceneError
from tests.realdata import real_data

GRAPHDECO = ["x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2", *(f"f_rest_{i}" for i in range(45)), "opacity",
             "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"]
FIELDS = ("means", "log_scales", "logit_opacities", "sh0", "shN")


def some(count: int = 20, degree: int = 3, seed: int = 0) -> GaussianArrays:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    return GaussianArrays(normal(count, 3), normal(count, 4), normal(count, 3), normal(count), normal(count, 1, 3),
                          normal(count, (degree + 1) ** 2 - 1, 3))


def assert_same(found: GaussianArrays, expected: GaussianArrays) -> None:
    """Bit-equal except quaternions, which are normalised on the way in."""
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    unit = expected.quats / np.linalg.norm(expected.quats.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(found.quats, unit, atol=1e-6)


finite = st.floats(-(2.0**100), 2.0**100, width=32)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_c01_round_trip(tmp_path_factory, data):
    count, degree = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 3))

    def draw(*shape: int) -> np.ndarray:
        return data.draw(arrays(np.float32, shape, elements=finite))

    quats = draw(count, 4)
    quats[np.linalg.norm(quats.astype(np.float64), axis=1) < 1e-30, 0] = 1.0
    gaussians = GaussianArrays(draw(count, 3), quats, draw(count, 3), draw(count), draw(count, 1, 3),
                               draw(count, (degree + 1) ** 2 - 1, 3))
    path = tmp_path_factory.mktemp("ply") / "a.ply"
    assert write_gaussians(path, gaussians) == 0
    loaded = read_gaussians(path)
    assert loaded.notices == () and loaded.gaussians.sh_degree == degree
    assert_same(loaded.gaussians, gaussians)


def test_c01_the_header_is_graphdecos(tmp_path):
    write_gaussians(tmp_path / "a.ply", some())
    header = read_header(tmp_path / "a.ply")
    assert header.format == "binary_little_endian" and [element.name for element in header.elements] == ["vertex"]
    assert list(header.elements[0].properties) == GRAPHDECO
    assert header.elements[0].row_bytes == 4 * len(GRAPHDECO)
    vertex = PlyData.read(tmp_path / "a.ply")["vertex"]
    assert not np.any([vertex[name] for name in ("nx", "ny", "nz")])


@pytest.mark.parametrize(("band", "channel"), [(0, 0), (0, 2), (14, 0), (14, 2), (7, 1)])
def test_c01_each_coefficient_lands_at_its_index(tmp_path, band, channel):
    """Red's 15 higher bands come first, then green's, then blue's."""
    gaussians = some(1)
    gaussians.shN[:] = 0.0
    gaussians.shN[0, band, channel] = 2.5
    write_gaussians(tmp_path / "a.ply", gaussians)
    vertex = PlyData.read(tmp_path / "a.ply")["vertex"]
    values = [float(vertex[f"f_rest_{i}"][0]) for i in range(45)]
    assert values.index(2.5) == 15 * channel + band and sum(values) == 2.5
    np.testing.assert_array_equal(read_gaussians(tmp_path / "a.ply").gaussians.shN, gaussians.shN)


def test_c03_raw_values_and_a_quarter_turn_survive(tmp_path):
    gaussians = some(1)
    gaussians.quats[0] = np.array([1.0, 1.0, 0.0, 0.0]) * 3.0  # 90 degrees about x, wxyz, not unit
    gaussians.logit_opacities[0], gaussians.log_scales[0] = -2.0, (-4.0, -5.0, -6.0)
    write_gaussians(tmp_path / "a.ply", gaussians)
    vertex = PlyData.read(tmp_path / "a.ply")["vertex"]
    assert vertex["opacity"][0] == -2.0 and [vertex[f"scale_{i}"][0] for i in range(3)] == [-4.0, -5.0, -6.0]
    assert vertex["rot_0"][0] == vertex["rot_1"][0] == 3.0 and vertex["rot_2"][0] == 0.0
    np.testing.assert_allclose(read_gaussians(tmp_path / "a.ply").gaussians.quats, [[0.5**0.5, 0.5**0.5, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize("rest", [0, 9, 24, 45])
def test_c02_degree_from_the_number_of_coefficients(tmp_path, rest):
    degree = {0: 0, 9: 1, 24: 2, 45: 3}[rest]
    write_gaussians(tmp_path / "a.ply", some(3, degree))
    assert read_gaussians(tmp_path / "a.ply").gaussians.sh_degree == degree


def rewrite(source, target, *, drop=(), rename=None, extra=None, text=False, byte_order="<"):
    """The vertex element with properties removed, renamed or added."""
    vertex = PlyData.read(source)["vertex"]
    names = [p.name for p in vertex.properties if p.name not in drop]
    values = {(rename or {}).get(name, name): vertex[name] for name in names} | (extra or {})
    rows = np.empty(len(vertex.data), dtype=[(name, column.dtype.str[1:]) for name, column in values.items()])
    for name, column in values.items():
        rows[name] = column
    PlyData([PlyElement.describe(rows, "vertex")], text=text, byte_order=byte_order).write(target)


@pytest.mark.parametrize("drop", [("f_rest_44",), ("f_rest_3",), tuple(f"f_rest_{i}" for i in range(35))])
def test_c02_another_number_of_coefficients_is_refused(tmp_path, drop):
    write_gaussians(tmp_path / "a.ply", some(3))
    rewrite(tmp_path / "a.ply", tmp_path / "b.ply", drop=drop)
    with pytest.raises(SceneError, match=f"has {45 - len(drop)} f_rest properties; .* 0, 9, 24, 45"):
        read_gaussians(tmp_path / "b.ply")


def test_order_precision_and_company_of_properties_do_not_matter(tmp_path):
    gaussians = some(7)
    write_gaussians(tmp_path / "a.ply", gaussians)
    vertex = PlyData.read(tmp_path / "a.ply")["vertex"]
    rows = np.empty(7, dtype=[(name, "f8") for name in reversed(GRAPHDECO)] + [("label", "u1")])
    for name in GRAPHDECO:
        rows[name] = vertex[name]
    faces = np.array([([0, 1, 2],)], dtype=[("vertex_indices", "i4", (3,))])
    for text in (True, False):
        PlyData([PlyElement.describe(rows, "vertex"), PlyElement.describe(faces, "face")], text=text,
                byte_order=">").write(tmp_path / "b.ply")
        assert_same(read_gaussians(tmp_path / "b.ply").gaussians, gaussians)


def test_c06_export_drops_rows_that_are_not_finite_and_counts_them(tmp_path):
    gaussians = some(10)
    gaussians.means[1, 0], gaussians.quats[2, 1], gaussians.shN[3, 14, 2] = np.nan, np.inf, np.nan
    gaussians.logit_opacities[4] = -np.inf
    assert write_gaussians(tmp_path / "a.ply", gaussians) == 4
    assert_same(read_gaussians(tmp_path / "a.ply").gaussians, gaussians.rows(np.array([0, 5, 6, 7, 8, 9])))


def test_c08_import_drops_bad_rows_and_bounds_infinite_opacities_with_a_notice(tmp_path):
    gaussians = some(10)
    write_gaussians(tmp_path / "a.ply", gaussians)
    ply = PlyData.read(tmp_path / "a.ply", mmap=False)
    rows = ply["vertex"].data
    rows["x"][3], rows["scale_1"][7] = np.nan, np.inf
    for name in ("rot_0", "rot_1", "rot_2", "rot_3"):
        rows[name][9] = 0.0
    rows["opacity"][0], rows["opacity"][1] = np.inf, -np.inf
    ply.write(tmp_path / "b.ply")
    loaded = read_gaussians(tmp_path / "b.ply")
    assert len(loaded.gaussians) == 7 and loaded.gaussians.finite().all()
    assert loaded.gaussians.logit_opacities[:2].tolist() == [20.0, -20.0]
    assert any("3 of 10 Gaussians in b.ply are left out: 2 with values that are not finite, 1 with a zero" in text
               for text in loaded.notices)
    assert any("2 infinite opacities" in text for text in loaded.notices)


REAL = {"models/pc_short.ply": (100, 3), "odd/models/pc_short.ascii.ply": (100, 3), "odd/models/pc_short.sh1.ply": (100, 1),
        "odd/models/pc_short.bigendian.ply": (100, 3), "odd/models/pc_short.no_normals.ply": (100, 3),
        "odd/models/pc_short.extra_properties_and_element.ply": (100, 3), "odd/models/pc_short.sh0.ply": (100, 0),
        "odd/models/pc_short.unnormalized_quats.ply": (100, 3), "odd/models/pc_short.0_vertices.ply": (0, 3),
        "models/playbot_lod4.sh2.ply": (8406, 2), "models/playbot_lod5.sh1.ply": (3000, 1),
        "models/playbot_lod5.sh0.ply": (3000, 0), "models/test-splat.3-points-from-train.ply": (3, 3),
        "models/playbot_lod5.sh2.compressed.ply": (3000, 2), "models/biker.compressed.ply": (152746, 0),
        "refs/splat_transform_tiny.ply": (400, 0)}


@pytest.mark.parametrize("name", REAL)
def test_every_real_variant_reads(name):
    gaussians = read_gaussians(real_data(*name.split("/"))).gaussians
    assert (len(gaussians), gaussians.sh_degree) == REAL[name]
    assert gaussians.finite().all()
    np.testing.assert_allclose(np.linalg.norm(gaussians.quats, axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize("variant", ["ascii", "bigendian", "no_normals", "extra_properties_and_element",
                                     "unnormalized_quats", "sh0", "sh1"])
def test_variants_of_one_model_agree(variant):
    expected = read_gaussians(real_data("models", "pc_short.ply")).gaussians
    found = read_gaussians(real_data("odd", "models", f"pc_short.{variant}.ply")).gaussians
    expected.shN = expected.shN[:, :found.shN.shape[1]]
    for name in FIELDS:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(np.abs((found.quats * expected.quats).sum(axis=1)), 1.0, atol=1e-6)


def test_compressed_ply_equals_the_uncompressed_model():
    """SuperSplat's format, written by splat-transform from the same 3,000 splats in another order."""
    from scipy.spatial import cKDTree

    plain = read_gaussians(real_data("models", "playbot_lod5.sh2.ply")).gaussians
    packed = read_gaussians(real_data("models", "playbot_lod5.sh2.compressed.ply")).gaussians
    distance, index = cKDTree(packed.means).query(plain.means)
    assert distance.max() < 1e-3 and len(set(index)) == 3000
    packed = packed.rows(index)
    assert np.abs((plain.quats * packed.quats).sum(axis=1)).min() > 0.9999
    for name, bound in (("log_scales", 0.005), ("sh0", 0.025), ("shN", 0.017), ("logit_opacities", 1e-5)):
        assert np.abs(getattr(plain, name) - getattr(packed, name)).max() < bound, name


def test_infinite_opacities_of_a_real_model_are_bounded():
    loaded = read_gaussians(real_data("models", "biker.compressed.ply"))
    assert any("198 infinite opacities" in text for text in loaded.notices)


@pytest.mark.parametrize(("name", "words"), [
    ("odd/models/invalid/empty.ply", "is empty"), ("odd/models/invalid/missing_opacity.ply", "it has no opacity"),
    ("odd/models/invalid/truncated.ply", "is cut short"), ("odd/models/invalid/truncated.splat", r"\.splat format"),
    ("odd/models/beetle.mesh_not_a_splat.ascii.ply", "a mesh or point cloud"),
    ("odd/models/khr_conformance_matrix.glb", "glTF"), ("models/minimal.ksplat", "ksplat"),
    ("models/playbot_lod5.v3.spz", "SPZ format.*splat-transform"), ("models/playbot_lod5.sog", "SOG"),
    ("models/README.md", "does not begin with 'ply'")])
def test_invalid_files_are_refused_quickly_and_clearly(name, words):
    path = real_data(*name.split("/"))
    started = time.perf_counter()
    with pytest.raises(SceneError, match=words) as caught:
        read_gaussians(path)
    assert time.perf_counter() - started < 1.0
    assert path.name in str(caught.value) and "\n" not in str(caught.value)


ASCII = b"ply\nformat ascii 1.0\nelement vertex %d\nproperty float x\nproperty float y\nproperty float z\nend_header\n"
HEAD = b"ply\nformat binary_little_endian 1.0\nelement vertex %s\nproperty float x\nproperty float y\nproperty float z\n"


@pytest.mark.parametrize(("content", "words"), [
    (b"", "empty"), (b"hello", "no PLY"), (b"ply\nformat ascii 1.0\n", "no end_header"),
    (HEAD % b"many" + b"end_header\n", "'element vertex many', which is not PLY"),
    (HEAD % b"5" + b"property half a\nend_header\n", "property half a"),
    (HEAD % b"1000000000000" + b"end_header\n", "cut short.*1,000,000,000,000 vertices"),
    (HEAD % b"-1" + b"end_header\n", "cut short"),
    (b"ply\nformat binary_pdp 1.0\nend_header\n", "binary_pdp"),
    (ASCII % 99999999 + b"1 2 3\n", "cut short"), (ASCII % 1 + b"1 b 3\n", "damaged"),
    (b"ply\nformat ascii 1.0\nelement vertex 1\nproperty list uchar float x\nend_header\n1 2\n", "lists"),
    (b"ply\nformat ascii 1.0\nelement face 0\nproperty float x\nend_header\n", "no element 'vertex'"),
    (b"ply\nformat ascii 1.0\nelement vertex 0\nproperty float q\nend_header\n", "no x, y, z")])
def test_damaged_point_clouds_are_one_sentence(tmp_path, content, words):
    (tmp_path / "a.ply").write_bytes(content)
    with pytest.raises(SceneError, match=words) as caught:
        read_points(tmp_path / "a.ply")
    assert "\n" not in str(caught.value)


def test_every_truncation_is_refused(tmp_path):
    write_gaussians(tmp_path / "a.ply", some(2, 0))
    whole = (tmp_path / "a.ply").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "b.ply").write_bytes(whole[:length])
        with pytest.raises(SceneError):
            read_gaussians(tmp_path / "b.ply")


def test_point_clouds(tmp_path):
    cloud = PointCloud(np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.array([[0, 128, 255], [9, 8, 7]], np.uint8))
    write_points(tmp_path / "a.ply", cloud)
    found = read_points(tmp_path / "a.ply")
    np.testing.assert_array_equal(found.positions, cloud.positions)
    np.testing.assert_array_equal(found.colors, cloud.colors)
    colors = {name: cloud.colors[:, i].astype(np.float32) / 255 for i, name in enumerate(("red", "green", "blue"))}
    rewrite(tmp_path / "a.ply", tmp_path / "f.ply", drop=("red", "green", "blue"), extra=colors)
    np.testing.assert_array_equal(read_points(tmp_path / "f.ply").colors, cloud.colors)
    rewrite(tmp_path / "a.ply", tmp_path / "g.ply", drop=("red", "green", "blue"), text=True)
    assert (read_points(tmp_path / "g.ply").colors == 128).all()
    cloud.positions[0, 1] = np.nan
    write_points(tmp_path / "n.ply", cloud)
    assert read_points(tmp_path / "n.ply").positions.tolist() == [[4, 5, 6]]


def test_a_splat_ply_gives_initial_points(tmp_path):
    gaussians = some(4)
    gaussians.sh0[:] = 0.0
    write_gaussians(tmp_path / "a.ply", gaussians)
    points = read_points(tmp_path / "a.ply")
    np.testing.assert_array_equal(points.positions, gaussians.means)
    assert set(points.colors.ravel().tolist()) <= {127, 128}


def test_other_tools_read_our_ply(tmp_path):
    """plyfile reads it by name; D06: a path that is not ASCII."""
    gaussians = some(5)
    path = tmp_path / "データ ä é" / "out (1).ply"
    write_gaussians(path, gaussians)
    vertex = PlyData.read(path)["vertex"]
    np.testing.assert_array_equal(vertex["f_rest_16"], gaussians.shN[:, 1, 1])
    np.testing.assert_array_equal(vertex["rot_3"], gaussians.quats[:, 3])
    assert_same(read_gaussians(path).gaussians, gaussians)
