"""The bundled demo's still life: meshes and textures made from formulas. Units: about a decimetre; z is up."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.ndimage import gaussian_filter

Array = np.ndarray


@dataclass
class Solid:
    """A triangle mesh with its look. `texture` is linear RGB [h,w,3]; without it `color` [3] is used."""

    name: str
    vertices: Array  # [V,3]
    faces: Array  # [F,3]
    uvs: Array  # [V,2]
    color: tuple[float, float, float] = (0.5, 0.5, 0.5)
    texture: Array | None = None
    roughness: float = 0.5
    gloss: float = 0.3  # specular weight; 0 = a perfectly matte surface
    smooth: bool = True
    points: int = 200  # share of the initial points
    normals: Array = field(init=False)

    def __post_init__(self) -> None:
        self.normals = vertex_normals(self.vertices, self.faces)


# ---------------------------------------------------------------- mesh building
def vertex_normals(vertices: Array, faces: Array) -> Array:
    """[V,3] area-weighted unit normals; vertices at one place share theirs, so that seams do not show."""
    _, index = np.unique(np.round(vertices, 5), axis=0, return_inverse=True)
    index = index.reshape(-1)
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    face_normals = np.cross(b - a, c - a)
    total = np.zeros((index.max() + 1, 3))
    for k in range(3):
        np.add.at(total, index[faces[:, k]], face_normals)
    normals = total[index]
    return normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)


def grid(points: Array) -> tuple[Array, Array, Array]:
    """A mesh over points [rows, columns, 3]: (vertices, faces, uvs), normals towards rows x columns."""
    rows, columns = points.shape[:2]
    i, j = np.meshgrid(np.arange(rows - 1), np.arange(columns - 1), indexing="ij")
    a = (i * columns + j).ravel()
    faces = np.concatenate([np.stack([a, a + columns, a + 1], 1), np.stack([a + 1, a + columns, a + columns + 1], 1)])
    v, u = np.meshgrid(np.linspace(0, 1, rows), np.linspace(0, 1, columns), indexing="ij")
    return points.reshape(-1, 3), faces, np.stack([u.ravel(), v.ravel()], 1)


def lathe(
    profile: list[tuple[float, float]],
    *,
    steps: int = 120,
    around: int = 96,
    curved: bool = True,
    at: tuple[float, float, float] = (0, 0, 0),
) -> tuple[Array, Array, Array]:
    """A profile of (radius, height), bottom to top on the outside, turned about the z axis through `at`."""
    knots = np.asarray(profile, float)
    length = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(knots, axis=0), axis=1))])
    where = np.linspace(0, length[-1], steps)
    line = (
        CubicSpline(length, knots)(where)
        if curved
        else np.stack([np.interp(where, length, knots[:, k]) for k in range(2)], 1)
    )
    radius = np.maximum(line[:, 0], 0)
    angle = np.linspace(0, 2 * np.pi, around + 1)
    points = np.stack(
        [
            -radius[:, None] * np.cos(angle),
            radius[:, None] * np.sin(angle),
            np.broadcast_to(line[:, 1, None], (steps, around + 1)),
        ],
        -1,
    )
    return grid(points + np.asarray(at, float))


def tube(path: Array, radius: Array | float, around: int = 20) -> tuple[Array, Array, Array]:
    """A tube along a path [P,3]; its frame is carried along without twisting."""
    tangent = np.gradient(path, axis=0)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    side = np.cross(tangent[0], [0.3, 0.5, 0.8])
    sides = []
    for t in tangent:
        side = side - t * (side @ t)
        side = side / np.linalg.norm(side)
        sides.append(side)
    across = np.asarray(sides)
    up = np.cross(tangent, across)
    angle = np.linspace(0, 2 * np.pi, around + 1)[None, :, None]
    reach = np.broadcast_to(np.asarray(radius, float).reshape(-1, 1, 1), (len(path), 1, 1))
    return grid(path[:, None] + reach * (np.cos(angle) * across[:, None] - np.sin(angle) * up[:, None]))


def ball(
    center: tuple[float, float, float], radius: float, squash: float = 1.0, dimple: float = 0.0, steps: int = 60
) -> tuple[Array, Array, Array]:
    """A sphere, flattened by `squash`, with a dimple at its pole as fruit has."""
    polar = np.linspace(0, np.pi, steps)
    r = radius * (1 - dimple * np.exp(-(((polar - np.pi) / 0.35) ** 2)))
    profile = [(float(a * np.sin(p)), float(-squash * a * np.cos(p))) for a, p in zip(r, polar, strict=True)]
    return lathe(profile, steps=steps, curved=False, at=center, around=72)


def block(
    size: tuple[float, float, float], at: tuple[float, float, float], turn: float, rounding: float = 0.02
) -> tuple[Array, Array, Array]:
    """A box standing on `at`, turned by `turn` radians about z, its edges rounded. uv = (face, height)."""
    n = 13
    pieces, uvs, faces, offset = [], [], [], 0
    for axis in range(3):
        for sign in (-1, 1):
            a, b = np.meshgrid(np.linspace(-1, 1, n), np.linspace(-1, 1, n), indexing="ij")
            cube = np.zeros((n, n, 3))
            cube[..., axis] = sign
            cube[..., (axis + 1) % 3], cube[..., (axis + 2) % 3] = a, b * -sign
            half = np.asarray(size) / 2
            # pull the outermost ring of vertices out to the edge, so that the rounding stays narrow
            inner = half - rounding
            p = np.sign(cube) * np.minimum(np.abs(cube) * half * 1.0001, half)
            core = np.clip(p, -inner, inner)
            out = p - core
            norm = np.linalg.norm(out, axis=-1, keepdims=True)
            p = core + out / np.maximum(norm, 1e-9) * np.minimum(norm, rounding)
            v, f, _ = grid(p)
            pieces.append(v)
            uvs.append(np.stack([np.full(len(v), (2 * axis + (sign > 0) + 0.5) / 6), v[:, 2] / size[2] + 0.5], 1))
            faces.append(f + offset)
            offset += len(v)
    v = np.concatenate(pieces)
    c, s = np.cos(turn), np.sin(turn)
    v = v @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1.0]]) + np.asarray(at) + [0, 0, size[2] / 2]
    return v, np.concatenate(faces), np.concatenate(uvs)


# ---------------------------------------------------------------- textures
def linear(hexcode: str) -> Array:
    """[3] linear RGB of an sRGB colour such as "e0b080"."""
    s = np.array([int(hexcode[k : k + 2], 16) for k in (0, 2, 4)]) / 255
    return np.where(s <= 0.04045, s / 12.92, ((s + 0.055) / 1.055) ** 2.4)


def blend(stops: list[tuple[float, str]], t: Array) -> Array:
    """[...,3] colours between stops (position, colour) at t, mixed in linear RGB."""
    places = [p for p, _ in stops]
    colors = np.stack([linear(c) for _, c in stops])
    return np.stack([np.interp(t, places, colors[:, k]) for k in range(3)], -1)


def smooth_noise(rng: np.random.Generator, shape: tuple[int, int], sigma: tuple[float, float]) -> Array:
    """[h,w] noise of unit deviation, periodic, with features of `sigma` texels."""
    noise = gaussian_filter(rng.standard_normal(shape), sigma, mode="wrap")
    return noise / noise.std()


def wood(rng: np.random.Generator, light: str, dark: str, size: int = 1024, planks: int = 6) -> Array:
    """[size,size,3] planks with a soft grain along u."""
    v, u = np.meshgrid(np.linspace(0, 1, size, endpoint=False), np.linspace(0, 1, size, endpoint=False), indexing="ij")
    plank = np.minimum((v * planks).astype(int), planks - 1)
    warp = smooth_noise(rng, (size, size), (18, 160)) * 0.35
    phase = rng.uniform(0, 10, planks)[plank]
    grain = 0.5 + 0.5 * np.sin((v * planks * 9 + warp * 4 + phase + 0.6 * np.sin(2 * np.pi * u + phase)) * 2.2)
    t = np.clip(0.25 + 0.45 * grain + 0.06 * smooth_noise(rng, (size, size), (3, 60)), 0, 1)
    color = blend([(0, light), (1, dark)], t) * (0.88 + 0.24 * rng.random(planks)[plank])[..., None]
    seam = np.abs((v * planks) % 1 - 0.5) > 0.487
    color[seam] *= 0.42
    return color


def glaze(rng: np.random.Generator) -> Array:
    """The vase: a deep blue that pools towards the foot, with two cream bands and a row of soft leaves."""
    v, u = np.meshgrid(np.linspace(0, 1, 512), np.linspace(0, 1, 1024, endpoint=False), indexing="ij")
    color = blend(
        [(0, "123a63"), (0.3, "1f5f93"), (0.62, "2e83b4"), (1, "69b3cf")],
        np.clip(v + 0.03 * smooth_noise(rng, v.shape, (24, 40)), 0, 1),
    )
    cream = linear("f2e6c8")
    leaf_u = (u * 9) % 1 - 0.5
    leaf = np.abs(leaf_u) < 0.30 * np.sqrt(np.clip(1 - ((v - 0.355) / 0.085) ** 2, 0, 1)) - 0.02
    vein = np.abs(leaf_u) < 0.03
    color[leaf & ~vein] = linear("efcf86")
    for middle, half in ((0.245, 0.012), (0.465, 0.012)):
        color[np.abs(v - middle) < half] = cream
    return color


def stripes(colors: list[str], count: int, *, along_v: bool = True) -> Array:
    """Broad bands that repeat `colors` `count` times over the texture."""
    t = np.linspace(0, 1, 512, endpoint=False)
    band = np.stack([linear(c) for c in colors])[(t * count * len(colors)).astype(int) % len(colors)]
    band = np.broadcast_to(band[:, None] if along_v else band[None, :], (512, 512, 3))
    return np.ascontiguousarray(band)


def skin(rng: np.random.Generator, stops: list[tuple[float, str]], mottle: float) -> Array:
    """Fruit: a colour that changes from pole to pole, softly mottled."""
    v = np.broadcast_to(np.linspace(0, 1, 256)[:, None], (256, 512))
    return blend(stops, np.clip(v + mottle * smooth_noise(rng, (256, 512), (10, 14)), 0, 1))


def cover(cloth: str, title: str) -> Array:
    """A book: six columns, one a side of the block; pages on three of them, a title bar on the spine."""
    image = np.broadcast_to(linear(cloth), (128, 384, 3)).copy()
    lines = 0.86 + 0.05 * np.sin(np.arange(128) * 2 * np.pi / 16)
    pages = linear("efe4cd") * lines[:, None]
    for side in (0, 1, 2):  # -x, +x and -y; +y is the spine
        image[14:114, side * 64 : (side + 1) * 64] = pages[14:114, None]
    image[40:88, 3 * 64 + 8 : 4 * 64 - 8] = linear(title)
    return image


# ---------------------------------------------------------------- the scene
def build(seed: int = 7) -> list[Solid]:
    """Everything in the picture but light and camera."""
    rng = np.random.default_rng(seed)
    return [studio(), *table(rng), *vase(rng), *bowl(rng), *books(), *pieces(rng)]


def studio() -> Solid:
    """A floor that curves up into a wall, so that every pixel of every view sees a soft surface."""
    profile = [(0.0, -0.30), (3.0, -0.30), (5.2, -0.24), (6.6, 0.25), (7.4, 1.4), (7.7, 3.2), (7.8, 5.5)]
    v, f, uv = lathe(profile, steps=90, around=90)
    texture = np.broadcast_to(
        blend([(0, "8aa5a4"), (0.35, "97b0ad"), (0.6, "b4c3bc"), (1, "dcd8ca")], np.linspace(0, 1, 256))[:, None],
        (256, 16, 3),
    )
    return Solid("studio", v, f[:, ::-1], uv, texture=np.ascontiguousarray(texture), gloss=0.0, points=700)


def table(rng: np.random.Generator) -> list[Solid]:
    """A round wooden top on a drum."""
    profile = [(1.45, -0.30), (1.45, -0.12), (1.86, -0.12), (1.9, -0.08), (1.9, -0.03), (1.87, 0.0), (0.0, 0.0)]
    v, f, uv = lathe(profile, steps=240, around=128, curved=False)
    uv = v[:, :2] / 4 + 0.5
    return [Solid("table", v, f, uv, texture=wood(rng, "d8a873", "9a6138"), roughness=0.35, gloss=0.25, points=1000)]


def vase(rng: np.random.Generator) -> list[Solid]:
    """The vase and its dried flowers."""
    at = (-0.35, 0.52, 0.0)
    profile = [
        (0.0, 0.0),
        (0.27, 0.0),
        (0.32, 0.06),
        (0.47, 0.42),
        (0.43, 0.74),
        (0.22, 1.0),
        (0.17, 1.14),
        (0.25, 1.26),
        (0.22, 1.25),
        (0.14, 1.12),
        (0.1, 0.9),
    ]
    v, f, uv = lathe(profile, at=at, steps=160)
    solids = [Solid("vase", v, f, uv, texture=glaze(rng), roughness=0.22, gloss=0.5, points=450)]
    heads = [
        (-0.42, 0.05, 0.95, "e9b52c"),
        (0.36, 0.22, 0.8, "f0c445"),
        (-0.05, -0.3, 1.1, "e2a21f"),
        (0.12, 0.38, 1.22, "f2cc5a"),
        (-0.3, 0.42, 0.62, "d9951c"),
        (0.5, -0.22, 0.5, "eebd3a"),
    ]
    for k, (dx, dy, height, color) in enumerate(heads):
        t = np.linspace(0, 1, 40)[:, None]
        foot = np.array([at[0] + 0.05 * np.cos(k), at[1] + 0.05 * np.sin(k), 1.0])
        path = foot + t * np.array([0, 0, height]) + t**2 * np.array([dx, dy, 0]) * 0.9
        v, f, uv = tube(path, 0.017 - 0.004 * t[:, 0])
        solids.append(Solid(f"stem{k}", v, f, uv, color=tuple(linear("6f7f3a")), roughness=0.6, gloss=0.1, points=40))
        v, f, uv = ball(tuple(path[-1]), 0.125 - 0.008 * k)
        solids.append(Solid(f"flower{k}", v, f, uv, color=tuple(linear(color)), gloss=0.0, points=60))
    return solids


def bowl(rng: np.random.Generator) -> list[Solid]:
    """A striped bowl of fruit, and one fruit that rolled out."""
    x, y = 0.78, 0.28
    profile = [
        (0.0, 0.0),
        (0.24, 0.0),
        (0.27, 0.05),
        (0.48, 0.2),
        (0.6, 0.43),
        (0.615, 0.45),
        (0.58, 0.43),
        (0.45, 0.23),
        (0.22, 0.09),
        (0.0, 0.07),
    ]
    v, f, uv = lathe(profile, at=(x, y, 0), steps=160)
    solids = [
        Solid(
            "bowl", v, f, uv, texture=stripes(["e8ddc5", "e8ddc5", "b5533c"], 7), roughness=0.3, gloss=0.35, points=350
        )
    ]
    orange = skin(rng, [(0, "d9751a"), (0.9, "ee9a34"), (1, "b9842c")], 0.03)
    lemon = skin(rng, [(0, "e9cf3f"), (1, "f4e070")], 0.05)
    apple = skin(rng, [(0, "8fae3a"), (0.45, "b8bf4b"), (0.7, "c2482f"), (1, "9c2a27")], 0.08)
    for name, (dx, dy, dz), r, squash, dimple, texture in (
        ("orange", (-0.2, 0.08, 0.38), 0.23, 0.96, 0.05, orange),
        ("apple", (0.17, 0.17, 0.4), 0.22, 0.94, 0.22, apple),
        ("lemon", (0.06, -0.2, 0.36), 0.19, 1.12, 0.0, lemon),
    ):
        v, f, uv = ball((x + dx, y + dy, dz), r, squash, dimple)
        solids.append(Solid(name, v, f, uv, texture=texture, roughness=0.32, gloss=0.35, points=120))
    v, f, uv = ball((0.62, -0.82, 0.205), 0.215, 0.95, 0.22)
    solids.append(Solid("rolled", v, f, uv, texture=apple, roughness=0.32, gloss=0.35, points=120))
    v, f, uv = tube(np.array([[0.62, -0.82, 0.33], [0.63, -0.82, 0.4], [0.66, -0.81, 0.47]]), 0.014)
    solids.append(Solid("stalk", v, f, uv, color=tuple(linear("5b4128")), gloss=0.1, points=10))
    return solids


def books() -> list[Solid]:
    """Two books with a knot lying on them."""
    solids = []
    for name, size, z, turn, cloth, title in (
        ("lower", (1.0, 0.72, 0.17), 0.0, 0.55, "6d2f38", "d9b56b"),
        ("upper", (0.86, 0.6, 0.13), 0.17, 0.28, "2f5d50", "e6dcc0"),
    ):
        v, f, uv = block(size, (-0.62, -0.6, z), turn)
        solids.append(
            Solid(name, v, f, uv, texture=cover(cloth, title), roughness=0.6, gloss=0.1, smooth=True, points=180)
        )
    t = np.linspace(0, 2 * np.pi, 260)
    p, q = 2, 3
    ring = 0.24 + 0.1 * np.cos(q * t)
    path = np.stack([ring * np.cos(p * t), ring * np.sin(p * t), -0.1 * np.sin(q * t)], 1)
    v, f, uv = tube(path + np.array([-0.62, -0.6, 0.3 + 0.175]), 0.068, around=32)
    solids.append(Solid("knot", v, f, uv, color=tuple(linear("e2664f")), roughness=0.3, gloss=0.4, points=300))
    return solids


def pieces(rng: np.random.Generator) -> list[Solid]:
    """Two chess pawns and a die's worth of wooden cubes."""
    profile = [
        (0.0, 0.0),
        (0.2, 0.0),
        (0.21, 0.05),
        (0.17, 0.1),
        (0.12, 0.15),
        (0.075, 0.32),
        (0.07, 0.4),
        (0.13, 0.43),
        (0.075, 0.46),
        (0.1, 0.51),
        (0.14, 0.6),
        (0.1, 0.7),
        (0.0, 0.74),
    ]
    solids = []
    for name, at, color in (("white_pawn", (0.12, -0.42, 0.0), "e6c896"), ("black_pawn", (0.28, -1.25, 0.0), "4a3527")):
        v, f, uv = lathe(profile, at=at, steps=140)
        solids.append(Solid(name, v, f, uv, color=tuple(linear(color)), roughness=0.3, gloss=0.3, points=140))
    for k, (at, turn, color) in enumerate(
        (((1.22, -0.5, 0.0), 0.4, "3f8f8a"), ((1.3, -0.82, 0.0), 1.0, "e0a63c"), ((1.25, -0.62, 0.24), 0.15, "b8483e"))
    ):
        v, f, uv = block((0.24, 0.24, 0.24), at, turn)
        solids.append(Solid(f"cube{k}", v, f, uv, color=tuple(linear(color)), roughness=0.45, gloss=0.2, points=90))
    v, f, uv = ball((-1.28, 0.2, 0.17), 0.17)
    solids.append(
        Solid(
            "marble",
            v,
            f,
            uv,
            texture=stripes(["dfe7e4", "3a6ea5", "dfe7e4", "c94f4f"], 2),
            roughness=0.25,
            gloss=0.4,
            points=90,
        )
    )
    return solids
