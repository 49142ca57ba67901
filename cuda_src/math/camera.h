// World to camera to pixel, and the affine approximation around a mean. Source: Zwicker et al. 2001 (EWA splatting),
// Kerbl et al. 2023; the clamp that honours an off-centre principal point follows gsplat's rule.
#pragma once
#include "../common.h"

// Eq. C1: t = W m + p.
template <class R> GS_HD void world_to_camera(const CameraArgs& c, const R m[3], R t[3]) {
    for (int i = 0; i < 3; i++) t[i] = c.R[3 * i] * m[0] + c.R[3 * i + 1] * m[1] + c.R[3 * i + 2] * m[2] + c.t[i];
}
template <class R> GS_HD void world_to_camera_vjp(const CameraArgs& c, const R v_t[3], R v_m[3]) {
    for (int j = 0; j < 3; j++) v_m[j] = c.R[j] * v_t[0] + c.R[3 + j] * v_t[1] + c.R[6 + j] * v_t[2];
}

// Eq. C2: pixel = (fx x/z + cx, fy y/z + cy).
// Eq. C3: J = [[fx/z, 0, -fx u/z], [0, fy/z, -fy w/z]] with u, w = x/z, y/z clamped to the limits; the pixel is not clamped.
template <class R> struct Affine {
    R mean2d[2];
    R J00, J02, J11, J12;
    R rz, u, w;  // 1/z and the clamped ratios
};
template <class R> GS_HD Affine<R> perspective(const CameraArgs& c, const R t[3]) {
    Affine<R> a;
    a.rz = splat<R>(1) / t[2];
    const R x = t[0] * a.rz, y = t[1] * a.rz;
    a.mean2d[0] = c.fx * x + c.cx;
    a.mean2d[1] = c.fy * y + c.cy;
    a.u = min_(max_(x, splat<R>(c.lo_x)), splat<R>(c.hi_x));
    a.w = min_(max_(y, splat<R>(c.lo_y)), splat<R>(c.hi_y));
    a.J00 = c.fx * a.rz;
    a.J02 = -c.fx * a.u * a.rz;
    a.J11 = c.fy * a.rz;
    a.J12 = -c.fy * a.w * a.rz;
    return a;
}
template <class R>
GS_HD void perspective_vjp(const CameraArgs& c, const R t[3], const Affine<R>& a, const R v_mean2d[2], R v_J00, R v_J02,
                           R v_J11, R v_J12, R v_depth, R v_t[3]) {
    const R x = t[0] * a.rz, y = t[1] * a.rz, zero = splat<R>(0);
    // a clamped ratio is a constant
    const R v_u = pick((x >= c.lo_x) & (x <= c.hi_x), -c.fx * a.rz * v_J02, zero);
    const R v_w = pick((y >= c.lo_y) & (y <= c.hi_y), -c.fy * a.rz * v_J12, zero);
    const R v_x = c.fx * v_mean2d[0] + v_u, v_y = c.fy * v_mean2d[1] + v_w;  // of the ratios x/z, y/z
    const R v_rz = c.fx * (v_J00 - a.u * v_J02) + c.fy * (v_J11 - a.w * v_J12) + t[0] * v_x + t[1] * v_y;
    v_t[0] = a.rz * v_x;
    v_t[1] = a.rz * v_y;
    v_t[2] = v_depth - a.rz * a.rz * v_rz;
}
