"""Smooth curves through key values: positions, orientations, numbers. Pure numpy, float64.

Quaternions are wxyz. `u` in [0,1] is the place inside a segment; segment i lies between keys i and i + 1.
"""

from __future__ import annotations

import numpy as np

TINY = 1e-12
WIDEST = 0.95 * np.pi
"""Half-angle [rad] between two quaternions up to which a slerp between them is well defined in double precision."""


# ---------------------------------------------------------------- positions


def knot_steps(points: np.ndarray) -> np.ndarray:
    """[n-1] knot intervals of the centripetal Catmull-Rom curve through points [n,3]: sqrt of the chord lengths.

    Exponent 1/2 gives no cusp and no loop inside a segment (Yuksel, Schaefer, Keyser, "Parameterization and applications
    of Catmull-Rom curves", Computer-Aided Design 43(7), 2011).
    """
    return np.sqrt(np.linalg.norm(np.diff(points, axis=0), axis=1))


def catmull_rom(four: np.ndarray, steps: np.ndarray, u: np.ndarray) -> np.ndarray:
    """[S,3] points between four[:,1] and four[:,2] of neighbouring keys [S,4,3] with knot intervals steps [S,3], at u [S].

    The tangents are those of the quadratic through three neighbours, (p1-p0)/d01 - (p2-p0)/(d01+d12) + (p2-p1)/d12 times
    d12 (Barry, Goldman, "A recursive evaluation algorithm for a class of Catmull-Rom splines", SIGGRAPH 1988), in Hermite
    form. Two keys in one place make the tangent there zero: the limit, since |p1-p0| = d01^2 falls faster than d01.
    """
    p0, p1, p2, p3 = np.moveaxis(four, 1, 0)
    d01, d12, d23 = (steps[:, k:k + 1] for k in range(3))
    before = _tangent(p0, p1, p2, d01, d12) * d12
    after = _tangent(p1, p2, p3, d12, d23) * d12
    u = u[:, None]
    return (p1 * (2 * u**3 - 3 * u**2 + 1) + before * (u**3 - 2 * u**2 + u)
            + p2 * (3 * u**2 - 2 * u**3) + after * (u**3 - u**2))


def _tangent(a: np.ndarray, b: np.ndarray, c: np.ndarray, dab: np.ndarray, dbc: np.ndarray) -> np.ndarray:
    moving = (dab > TINY) & (dbc > TINY)
    x, y = np.where(moving, dab, 1.0), np.where(moving, dbc, 1.0)
    return np.where(moving, (b - a) / x - (c - a) / (x + y) + (c - b) / y, 0.0)


# ---------------------------------------------------------------- numbers


def monotone_slopes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """[n,...] slopes at keys x [n], strictly rising, of y [n,...], for a C1 cubic that never overshoots.

    Weighted harmonic mean of the neighbouring secants, 0 where they differ in sign (Fritsch, Butland, "A method for
    constructing local monotone piecewise cubic interpolants", SIAM J. Sci. Stat. Comput. 5(2), 1984); at the ends the secant.
    """
    h = np.diff(x).reshape(-1, *[1] * (y.ndim - 1))
    secants = np.diff(y, axis=0) / h
    slopes = np.empty_like(y)
    slopes[0], slopes[-1] = secants[0], secants[-1]
    left, right, a, b = secants[:-1], secants[1:], h[:-1], h[1:]
    same = left * right > 0.0
    w1, w2 = 2 * b + a, b + 2 * a
    safe_left, safe_right = np.where(same, left, 1.0), np.where(same, right, 1.0)
    slopes[1:-1] = np.where(same, (w1 + w2) / (w1 / safe_left + w2 / safe_right), 0.0)
    return slopes


def monotone_cubic(x: np.ndarray, y: np.ndarray, i: np.ndarray, u: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """[S,...] values inside segments i [S] at u [S]."""
    shape = (-1, *[1] * (y.ndim - 1))
    h, u = (x[i + 1] - x[i]).reshape(shape), u.reshape(shape)
    return (y[i] * (2 * u**3 - 3 * u**2 + 1) + h * slopes[i] * (u**3 - 2 * u**2 + u)
            + y[i + 1] * (3 * u**2 - 2 * u**3) + h * slopes[i + 1] * (u**3 - u**2))


# ---------------------------------------------------------------- orientations


def aligned(quats: np.ndarray) -> np.ndarray:
    """Unit quaternions [n,4] of the same orientations, signed so that neighbours are less than half a turn apart."""
    unit = quats / np.linalg.norm(quats, axis=1, keepdims=True)
    turned = np.where((unit[1:] * unit[:-1]).sum(axis=1) < 0.0, -1.0, 1.0)
    return unit * np.concatenate([[1.0], np.cumprod(turned)])[:, None]


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Hamilton products [...,4]."""
    w, v, x, y = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    return np.concatenate([w * x - (v * y).sum(-1, keepdims=True), w * y + x * v + np.cross(v, y)], axis=-1)


def log(q: np.ndarray) -> np.ndarray:
    """[...,3] axis times half the turning angle, in [0, pi], of unit quaternions [...,4]."""
    size = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
    return q[..., 1:] * np.where(size > TINY, np.arctan2(size, q[..., :1]) / np.where(size > TINY, size, 1.0), 1.0)


def exp(v: np.ndarray) -> np.ndarray:
    """The unit quaternions [...,4] whose log is v [...,3]."""
    size = np.linalg.norm(v, axis=-1, keepdims=True)
    return np.concatenate([np.cos(size), v * np.sinc(size / np.pi)], axis=-1)


def conjugate(q: np.ndarray) -> np.ndarray:
    return q * np.array([1.0, -1.0, -1.0, -1.0])


def slerp(a: np.ndarray, b: np.ndarray, u: np.ndarray) -> np.ndarray:
    """[S,4] on the great circle from a to b [S,4] at u [S], without choosing a sign (Shoemake, SIGGRAPH 1985)."""
    return multiply(a, exp(u[:, None] * log(multiply(conjugate(a), b))))


def quadrangle(quats: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(leaving [n,4], arriving [n,4]): the inner points of squad() at keys of aligned quats [n,4] at rising times [n].

    Shoemake ("Quaternion calculus and fast animation", SIGGRAPH 1987 course notes) has for equal times
    s = q exp(-(log(q^-1 q_next) + log(q^-1 q_before)) / 4). Here each side gets the angular velocity
    w = (h_before l_next / h_next - h_next l_before / h_before) / (h_before + h_next), l the logs and h the time steps, so
    that it is continuous in time: log(q^-1 s) = (h_next w - l_next) / 2 leaving and -(h_before w + l_before) / 2 arriving,
    which is Shoemake's for equal steps. At the ends, and beside a key that repeats the orientation, the curve keeps to the
    slerp and to rest. Where orientations turn back by half a turn the inner points are held nearer, so that all slerps exist.
    """
    ahead = log(multiply(conjugate(quats[:-1]), quats[1:]))       # [n-1,3], and the other way round
    back = log(multiply(conjugate(quats[1:]), quats[:-1]))
    angles, steps = np.linalg.norm(ahead, axis=1), np.diff(times)[:, None]
    leaving, arriving = np.zeros((len(quats), 3)), np.zeros((len(quats), 3))
    if len(quats) > 2:
        l1, l0, h0, h1 = ahead[1:], back[:-1], steps[:-1], steps[1:]
        moving = np.minimum(angles[:-1], angles[1:])[:, None] >= 1e-9
        w = np.where(moving, (h0 * l1 / h1 - h1 * l0 / h0) / (h0 + h1), 0.0)
        leaving[1:-1] = _limited((h1 * w - l1) / 2, angles[1:])
        arriving[1:-1] = _limited(-(h0 * w + l0) / 2, angles[:-1])
    return multiply(quats, exp(leaving)), multiply(quats, exp(arriving))


def _limited(v: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """v [S,3], so short that two such points beside a segment of half-angle angles [S] are less than WIDEST apart."""
    most, sizes = (WIDEST - angles) / 2, np.linalg.norm(v, axis=1)
    return v * np.where(sizes > most, most / np.maximum(sizes, TINY), 1.0)[:, None]


def squad(quats: np.ndarray, leaving: np.ndarray, arriving: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
    """[S,4] unit quaternions inside segments i [S] at u [S] (Shoemake 1987)."""
    outer = slerp(quats[i], quats[i + 1], u)
    inner = slerp(leaving[i], arriving[i + 1], u)
    found = slerp(outer, inner, 2 * u * (1 - u))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


# ---------------------------------------------------------------- matrices


def rotation_of(quats: np.ndarray) -> np.ndarray:
    """[S,3,3] rotation matrices of unit quaternions [S,4]."""
    w, x, y, z = quats.T
    rows = [[1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]]
    return np.moveaxis(np.array(rows), -1, 0)


def quat_of(rotation: np.ndarray) -> np.ndarray:
    """[4] unit quaternion, w >= 0, of a rotation matrix [3,3]: the largest component first, so that nothing is divided by
    a small one (Shepperd, "Quaternion from rotation matrix", J. Guidance and Control 1(3), 1978)."""
    m = rotation
    squares = np.array([1 + m[0, 0] + m[1, 1] + m[2, 2], 1 + m[0, 0] - m[1, 1] - m[2, 2],
                        1 - m[0, 0] + m[1, 1] - m[2, 2], 1 - m[0, 0] - m[1, 1] + m[2, 2]])
    k = int(np.argmax(squares))
    q = np.array([[squares[0], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]],
                  [m[2, 1] - m[1, 2], squares[1], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]],
                  [m[0, 2] - m[2, 0], m[0, 1] + m[1, 0], squares[2], m[1, 2] + m[2, 1]],
                  [m[1, 0] - m[0, 1], m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], squares[3]]])[k]
    q = q / np.linalg.norm(q)
    return -q if q[0] < 0 else q
