"""Render the bundled demo: `python -m assets.make_demo` (needs the `demo` extra, minutes on one core).

Writes demo/ (photographs, transforms_train.json, transforms_test.json, points.ply) and the icons beside this file.
The cameras, the pictures and the points come from one seed; rendering is a path tracer's (Mitsuba 3).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from assets.still_life import Solid, build

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT, FOCAL = 320, 240, 340.0
TARGET = np.array([0.0, 0.0, 0.55])
EXPOSURE = 1.0


# ---------------------------------------------------------------- cameras
def look_at(eye: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[4,4] camera to world with OpenGL axes (+x right, +y up, -z forward), z being up in the world."""
    back = (eye - target) / np.linalg.norm(eye - target)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3] = np.stack([right, np.cross(back, right), back, eye], axis=1)
    return pose


def dome(count: int, rng: np.random.Generator, first_angle: float, elevations: tuple[float, float]) -> list[np.ndarray]:
    """Poses spread over a dome by the golden angle, each a little off the regular place."""
    poses = []
    for k in range(count):
        azimuth = first_angle + k * np.pi * (3 - np.sqrt(5)) + rng.normal(0, 0.04)
        share = (k + 0.5) / count
        elevation = np.radians(elevations[0] + (elevations[1] - elevations[0]) * share**1.3 + rng.normal(0, 1.0))
        radius = 5.35 + rng.uniform(-0.35, 0.35)
        eye = TARGET + radius * np.array(
            [np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), np.sin(elevation)]
        )
        poses.append(look_at(eye, TARGET + rng.normal(0, 0.06, 3)))
    return poses


# ---------------------------------------------------------------- rendering
def mitsuba(variant: str, threads: int) -> Any:
    """Mitsuba, imported here because only this script needs it."""
    import drjit
    import mitsuba as mi

    mi.set_variant(variant)
    drjit.set_thread_count(threads)
    return mi


def mesh(mi: Any, solid: Solid) -> Any:
    reflectance: dict[str, Any] = {"type": "rgb", "value": list(map(float, solid.color))}
    if solid.texture is not None:
        reflectance = {
            "type": "bitmap",
            "bitmap": mi.Bitmap(solid.texture.astype(np.float32)),
            "raw": True,
            "filter_type": "bilinear",
        }
    bsdf: dict[str, Any] = {"type": "diffuse", "reflectance": reflectance}
    if solid.gloss > 0:
        bsdf = {"type": "principled", "base_color": reflectance, "roughness": solid.roughness, "specular": solid.gloss}
    props = mi.Properties()
    props["mesh_bsdf"] = mi.load_dict({"type": "twosided", "bsdf": bsdf})
    shape = mi.Mesh(
        solid.name,
        len(solid.vertices),
        len(solid.faces),
        props=props,
        has_vertex_normals=solid.smooth,
        has_vertex_texcoords=True,
    )
    params = mi.traverse(shape)
    params["vertex_positions"] = solid.vertices.astype(np.float32).ravel()
    params["faces"] = solid.faces.astype(np.uint32).ravel()
    params["vertex_texcoords"] = solid.uvs.astype(np.float32).ravel()
    if solid.smooth:
        params["vertex_normals"] = solid.normals.astype(np.float32).ravel()
    params.update()
    return shape


def softbox(mi: Any, place: list[float], size: float, radiance: list[float]) -> dict[str, Any]:
    transform = mi.ScalarTransform4f().look_at(
        origin=place, target=[0, 0, 0.4], up=[0.1, 0, 1]
    ) @ mi.ScalarTransform4f().scale(size)
    return {
        "type": "rectangle",
        "to_world": transform,
        "emitter": {"type": "area", "radiance": {"type": "rgb", "value": radiance}},
    }


def load(mi: Any, solids: list[Solid]) -> Any:
    """The scene with a warm key light, a cool fill and a dim sky: large sources, which are free of noise soonest."""
    return mi.load_dict(
        {
            "type": "scene",
            "integrator": {"type": "path", "max_depth": 7},
            "sky": {"type": "constant", "radiance": {"type": "rgb", "value": [0.36, 0.40, 0.46]}},
            "key": softbox(mi, [4.5, -3.5, 8.5], 1.7, [26.0, 23.4, 19.6]),
            "fill": softbox(mi, [-6.0, 3.5, 8.0], 1.8, [4.0, 4.7, 5.8]),
            **{solid.name: mesh(mi, solid) for solid in solids},
        }
    )


def photograph(mi: Any, scene: Any, pose: np.ndarray, spp: int, seed: int) -> np.ndarray:
    """[H,W,3] uint8 sRGB."""
    # Mitsuba's camera looks along +z with +x to the left
    matrix = pose @ np.diag([-1.0, 1.0, -1.0, 1.0])
    sensor = mi.load_dict(
        {
            "type": "perspective",
            "fov": float(np.degrees(2 * np.arctan(WIDTH / 2 / FOCAL))),
            "fov_axis": "x",
            "near_clip": 0.01,
            "to_world": mi.ScalarTransform4f(matrix),
            "film": {
                "type": "hdrfilm",
                "width": WIDTH,
                "height": HEIGHT,
                "pixel_format": "rgb",
                "rfilter": {"type": "gaussian"},
            },
            "sampler": {"type": "orthogonal", "sample_count": spp},
        }
    )
    light = np.array(mi.render(scene, sensor=sensor, spp=spp, seed=seed))[..., :3] * EXPOSURE
    # a soft shoulder keeps highlights from clipping; below 0.7 the picture is linear
    over = np.maximum(light - 0.7, 0)
    light = np.minimum(light, 0.7) + 0.3 * (1 - np.exp(-over / 0.3))
    coded = np.where(light <= 0.0031308, 12.92 * light, 1.055 * np.maximum(light, 1e-9) ** (1 / 2.4) - 0.055)
    return np.clip(np.round(coded * 255), 0, 255).astype(np.uint8)


# ---------------------------------------------------------------- initial points
def sample(solid: Solid, count: int, rng: np.random.Generator) -> np.ndarray:
    """[count,3] points spread over the surface by area, lifted a hair above it."""
    a, b, c = (solid.vertices[solid.faces[:, k]] for k in range(3))
    normal = np.cross(b - a, c - a)
    area = np.linalg.norm(normal, axis=1)
    face = rng.choice(len(area), count, p=area / area.sum())
    u, v = rng.random((2, count, 1))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    place = a[face] + u * (b - a)[face] + v * (c - a)[face]
    return place + 1e-3 * normal[face] / np.maximum(area[face, None], 1e-12)


def visible(mi: Any, scene: Any, points: np.ndarray, eye: np.ndarray) -> np.ndarray:
    """[P] bool: nothing stands between the eye and the point."""
    toward = points - eye
    distance = np.linalg.norm(toward, axis=1)
    direction = toward / distance[:, None]
    if mi.variant().startswith("scalar"):
        return np.array(
            [
                not scene.ray_test(
                    mi.Ray3f(o=mi.Point3f(eye), d=mi.Vector3f(d), maxt=float(t) - 5e-3, time=0.0, wavelengths=[])
                )
                for d, t in zip(direction, distance, strict=True)
            ]
        )
    ray = mi.Ray3f(o=mi.Point3f(*map(float, eye)), d=mi.Vector3f(direction.T.astype(np.float32)))
    ray.maxt = mi.Float(distance.astype(np.float32) - 5e-3)
    return ~np.array(scene.ray_test(ray))


def observe(
    mi: Any, scene: Any, points: np.ndarray, poses: list[np.ndarray], pictures: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """([P] number of views that see the point, [P,3] its mean colour there): what structure from motion would know."""
    seen, total = np.zeros(len(points)), np.zeros((len(points), 3))
    for pose, picture in zip(poses, pictures, strict=True):
        local = (points - pose[:3, 3]) @ pose[:3, :3]
        depth = np.maximum(-local[:, 2], 1e-6)
        x, y = FOCAL * local[:, 0] / depth + WIDTH / 2, -FOCAL * local[:, 1] / depth + HEIGHT / 2
        inside = (local[:, 2] < -0.1) & (x >= 0) & (x < WIDTH) & (y >= 0) & (y < HEIGHT)
        inside &= visible(mi, scene, points, pose[:3, 3])
        seen += inside
        total[inside] += picture[y[inside].astype(int), x[inside].astype(int)]
    return seen, total / np.maximum(seen, 1)[:, None]


def initial_points(
    mi: Any,
    scene: Any,
    solids: list[Solid],
    poses: list[np.ndarray],
    pictures: list[np.ndarray],
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """([P,3] float32, [P,3] uint8): surface points that at least three views see, with a reconstruction's noise."""
    kept, colors = [], []
    for solid in solids:
        points = sample(solid, solid.points * 4, rng)
        seen, color = observe(mi, scene, points, poses, pictures)
        good = np.flatnonzero(seen >= 3)[: solid.points]
        kept.append(points[good])
        colors.append(color[good])
    points = np.concatenate(kept)
    spread = 0.004 * np.linalg.norm(points - TARGET, axis=1, keepdims=True).clip(1)
    points = points + rng.normal(0, 1, points.shape) * spread
    return points.astype(np.float32), np.round(np.concatenate(colors)).astype(np.uint8)


# ---------------------------------------------------------------- files
def write_ply(path: Path, points: np.ndarray, colors: np.ndarray) -> None:
    rows = np.empty(len(points), [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    rows["xyz"], rows["rgb"] = points, colors
    names = "".join(f"property float {c}\n" for c in "xyz") + "".join(
        f"property uchar {c}\n" for c in ("red", "green", "blue")
    )
    path.write_bytes(
        f"ply\nformat binary_little_endian 1.0\nelement vertex {len(points)}\n{names}end_header\n".encode()
        + rows.tobytes()
    )


def write_split(folder: Path, split: str, poses: list[np.ndarray], pictures: list[np.ndarray]) -> None:
    (folder / split).mkdir(parents=True, exist_ok=True)
    frames = []
    for k, (pose, picture) in enumerate(zip(poses, pictures, strict=True)):
        name = f"{split}/{k:03d}.jpg"
        Image.fromarray(picture).save(folder / name, quality=95, subsampling=0, optimize=True)
        frames.append({"file_path": name, "transform_matrix": [[round(float(x), 8) for x in row] for row in pose]})
    head = {
        "w": WIDTH,
        "h": HEIGHT,
        "fl_x": FOCAL,
        "fl_y": FOCAL,
        "cx": WIDTH / 2,
        "cy": HEIGHT / 2,
        "camera_angle_x": float(2 * np.arctan(WIDTH / 2 / FOCAL)),
        "ply_file_path": "points.ply",
    }
    text = ",\n".join("  " + json.dumps(frame) for frame in frames)
    (folder / f"transforms_{split}.json").write_text(
        json.dumps(head)[:-1] + ', "frames": [\n' + text + "\n]}\n", encoding="utf-8"
    )


def icon(path: Path) -> None:
    """Three soft splats on a dark tile, as PNG and ICO."""
    size = 512
    tile = Image.new("RGBA", (size, size), (0, 0, 0, 0))
    ImageDraw.Draw(tile).rounded_rectangle((16, 16, size - 16, size - 16), 96, fill=(24, 27, 33, 255))
    y, x = np.mgrid[0:size, 0:size] + 0.5
    light = np.asarray(tile.convert("RGB"), float) / 255
    for (cx, cy), (a, b), turn, color in (
        ((200, 205), (128, 72), 0.6, (0.22, 0.62, 0.93)),
        ((318, 236), (112, 64), -0.7, (0.96, 0.62, 0.22)),
        ((246, 330), (138, 56), 0.12, (0.91, 0.34, 0.36)),
    ):
        dx, dy = x - cx, y - cy
        u, v = dx * np.cos(turn) + dy * np.sin(turn), -dx * np.sin(turn) + dy * np.cos(turn)
        alpha = np.minimum(0.98, 1.15 * np.exp(-0.5 * ((u / a) ** 2 + (v / b) ** 2) * 2.2))[..., None]
        light = light * (1 - alpha) + alpha * np.asarray(color)
    picture = Image.fromarray((light * 255).astype(np.uint8)).convert("RGBA")
    picture.putalpha(tile.getchannel("A"))
    picture = picture.filter(ImageFilter.GaussianBlur(0.6)).resize((256, 256), Image.Resampling.LANCZOS)
    picture.save(path.with_suffix(".png"))
    picture.save(path.with_suffix(".ico"), sizes=[(16, 16), (32, 32), (48, 48), (256, 256)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "demo", help="folder to write")
    parser.add_argument("--spp", type=int, default=121, help="paths a pixel: the square of a prime")
    parser.add_argument("--train", type=int, default=60, help="training views")
    parser.add_argument("--test", type=int, default=8, help="held-out views")
    parser.add_argument("--threads", type=int, default=1, help="threads of the renderer")
    parser.add_argument(
        "--variant", default="scalar_rgb", help="scalar_rgb runs anywhere; llvm_ad_rgb is faster where LLVM fits"
    )
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    icon(HERE / "icon.png")
    rng = np.random.default_rng(args.seed)
    solids = build(args.seed)
    mi = mitsuba(args.variant, args.threads)
    scene = load(mi, solids)
    splits = {"train": dome(args.train, rng, 0.2, (12, 62)), "test": dome(args.test, rng, 0.9, (18, 50))}
    pictures: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    start = time.monotonic()
    for split, poses in splits.items():
        for k, pose in enumerate(poses):
            pictures[split].append(photograph(mi, scene, pose, args.spp, seed=1000 * (split == "test") + k))
            print(f"{split} {k + 1}/{len(poses)}  {time.monotonic() - start:.0f} s", flush=True)
        write_split(args.out, split, poses, pictures[split])
    points, colors = initial_points(mi, scene, solids, splits["train"], pictures["train"], rng)
    write_ply(args.out / "points.ply", points, colors)
    size = sum(f.stat().st_size for f in args.out.rglob("*") if f.is_file())
    print(f"{len(points)} points, {size / 1e6:.2f} MB in {args.out}")


if __name__ == "__main__":
    main()
