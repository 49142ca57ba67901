// Quaternions (w,x,y,z) and rotation matrices. Source: Shoemake 1985; the VJP is its derivative entry by entry.
#pragma once
#include "../common.h"

// Eq. R1: R(q) for a unit quaternion; for any other it is the same polynomial (no hidden normalisation).
template <class R> GS_HD void quat_to_rotmat(const R q[4], R m[9]) {
    const R w = q[0], x = q[1], y = q[2], z = q[3];
    const Real one = 1, two = 2;
    m[0] = one - two * (y * y + z * z); m[1] = two * (x * y - w * z);       m[2] = two * (x * z + w * y);
    m[3] = two * (x * y + w * z);       m[4] = one - two * (x * x + z * z); m[5] = two * (y * z - w * x);
    m[6] = two * (x * z - w * y);       m[7] = two * (y * z + w * x);       m[8] = one - two * (x * x + y * y);
}
template <class R> GS_HD void quat_to_rotmat_vjp(const R q[4], const R v[9], R v_q[4]) {
    const R w = q[0], x = q[1], y = q[2], z = q[3];
    const Real two = 2;
    v_q[0] = two * (x * (v[7] - v[5]) + y * (v[2] - v[6]) + z * (v[3] - v[1]));
    v_q[1] = two * (w * (v[7] - v[5]) + y * (v[1] + v[3]) + z * (v[2] + v[6]) - two * x * (v[4] + v[8]));
    v_q[2] = two * (w * (v[2] - v[6]) + x * (v[1] + v[3]) + z * (v[5] + v[7]) - two * y * (v[0] + v[8]));
    v_q[3] = two * (w * (v[3] - v[1]) + x * (v[2] + v[6]) + y * (v[5] + v[7]) - two * z * (v[0] + v[4]));
}

// Eq. R2: u = q/|q|. The norm is part of the function, so its gradient is orthogonal to q: (I - u u^T) v_u / |q|.
// Length 0 names no rotation: identity, gradient 0.
template <class R> GS_HD void normalize_quat(const R q[4], R u[4], R& inverse_norm) {
    const R square = q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3];
    const R one = splat<R>(1), zero = splat<R>(0);
    const auto named = square != zero;
    inverse_norm = pick(named, one / sqrt_(pick(named, square, one)), zero);
    for (int i = 0; i < 4; i++) u[i] = pick(named, q[i] * inverse_norm, i == 0 ? one : zero);
}
template <class R> GS_HD void normalize_quat_vjp(const R u[4], R inverse_norm, const R v_u[4], R v_q[4]) {
    const R along = u[0] * v_u[0] + u[1] * v_u[1] + u[2] * v_u[2] + u[3] * v_u[3];
    for (int i = 0; i < 4; i++) v_q[i] = (v_u[i] - u[i] * along) * inverse_norm;
}
