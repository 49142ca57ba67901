// One Gaussian in one thread: what the kernels of single stages and the fused ones of gaussian.cu do, over math/*.h.
#pragma once
#include "common.h"
#include "math/camera.h"
#include "math/covariance.h"
#include "math/rotation.h"
#include "math/sh.h"

#define GS_DEVICE static __device__ __forceinline__

// ---- activate
struct Activated {
    Real quat[4], inverse_norm, scale[3], opacity;
};
GS_DEVICE Activated activate_one(const Real* quat, const Real* log_scale, Real logit_opacity) {
    Activated a;
    normalize_quat(quat, a.quat, a.inverse_norm);
    for (int j = 0; j < 3; j++) a.scale[j] = exp(log_scale[j]);
    a.opacity = Real(1) / (Real(1) + exp(-logit_opacity));
    return a;
}
// What received nothing passes nothing: 0 * Inf of a culled Gaussian must not reach the optimiser.
GS_DEVICE void activate_one_vjp(const Activated& a, const Real v_quat[4], const Real v_scale[3], Real v_opacity, Real* v_raw_quat,
                                Real* v_log_scale, Real& v_logit_opacity) {
    Real v_q[4];
    normalize_quat_vjp(a.quat, a.inverse_norm, v_quat, v_q);
    const bool turned = v_quat[0] != 0 || v_quat[1] != 0 || v_quat[2] != 0 || v_quat[3] != 0;
    for (int j = 0; j < 4; j++) v_raw_quat[j] = turned ? v_q[j] : Real(0);
    for (int j = 0; j < 3; j++) v_log_scale[j] = v_scale[j] != 0 ? v_scale[j] * a.scale[j] : Real(0);
    v_logit_opacity = v_opacity != 0 ? v_opacity * a.opacity * (Real(1) - a.opacity) : Real(0);
}

// ---- project
struct ProjectChain {
    Real rot[9], t[3];
    Affine<Real> affine;
    Footprint<Real> foot;
    bool in_range;
};
GS_DEVICE ProjectChain project_chain(const CameraArgs& c, Real eps2d, const Real* mean, const Real* quat, const Real* scale) {
    ProjectChain g;
    quat_to_rotmat(quat, g.rot);
    world_to_camera(c, mean, g.t);
    g.in_range = g.t[2] >= c.near_z && g.t[2] <= c.far_z;
    g.t[2] = g.in_range ? g.t[2] : Real(1);
    g.affine = perspective(c, g.t);
    g.foot = footprint(c, g.rot, scale, g.affine.J00, g.affine.J02, g.affine.J11, g.affine.J12, eps2d);
    return g;
}
// Writes row i of the five outputs, zeros where the Gaussian is culled. Returns its compensation, 0 = culled.
struct ProjectedRows {
    Real *means2d, *conics, *depths, *extents, *compensations;
};
GS_DEVICE Real project_one(const CameraArgs& c, const RasterArgs& ra, const Real* mean, const Real* quat, const Real* scale, Real opacity,
                           int i, const ProjectedRows& out) {
    const ProjectChain g = project_chain(c, ra.eps2d, mean, quat, scale);
    const Real comp = ra.antialiased ? compensation(g.foot) : Real(1), effective = opacity * comp;
    Real conic[3];
    conic_from_footprint(g.foot, conic);
    const bool touches = effective >= ra.cutoff;
    const Real level = Real(2) * log((touches ? effective : Real(1)) / ra.cutoff) + ra.footprint_margin;
    const Real ex = sqrt(level * g.foot.xx), ey = sqrt(level * g.foot.yy), mx = g.affine.mean2d[0], my = g.affine.mean2d[1];
    const Real sum = mx + my + conic[0] + conic[1] + conic[2] + ex + ey + effective;  // not finite if any part is not
    const bool keep = g.in_range && touches && sum - sum == 0 && g.foot.det > 0 && mx + ex > 0 && mx - ex < c.width &&
                      my + ey > 0 && my - ey < c.height;
    out.means2d[2 * i] = keep ? mx : Real(0);
    out.means2d[2 * i + 1] = keep ? my : Real(0);
    for (int j = 0; j < 3; j++) out.conics[3 * i + j] = keep ? conic[j] : Real(0);
    out.depths[i] = keep ? g.t[2] : Real(0);
    out.extents[2 * i] = keep ? ex : Real(0);
    out.extents[2 * i + 1] = keep ? ey : Real(0);
    out.compensations[i] = keep ? comp : Real(0);
    return keep ? comp : Real(0);
}
// Of a Gaussian that was kept, its chain recomputed. v_compensation counts only where the compensation is applied.
GS_DEVICE void project_one_vjp(const CameraArgs& c, const RasterArgs& ra, const ProjectChain& g, const Real* quat, const Real* scale,
                               const Real* v_mean2d, const Real* v_conic, Real v_depth, Real v_compensation, Real v_mean[3],
                               Real v_quat[4], Real v_scale[3]) {
    Real conic[3], v_xx, v_xy, v_yy;
    conic_from_footprint(g.foot, conic);
    conic_vjp(conic, v_conic, v_xx, v_xy, v_yy);
    if (ra.antialiased && v_compensation != 0)
        compensation_vjp(g.foot, ra.eps2d, compensation(g.foot), v_compensation, v_xx, v_xy, v_yy);
    Real v_rot[9], v_J00, v_J02, v_J11, v_J12, v_t[3];
    footprint_vjp(c, g.rot, scale, g.foot, v_xx, v_xy, v_yy, v_rot, v_scale, v_J00, v_J02, v_J11, v_J12);
    quat_to_rotmat_vjp(quat, v_rot, v_quat);
    perspective_vjp(c, g.t, g.affine, v_mean2d, v_J00, v_J02, v_J11, v_J12, v_depth, v_t);
    world_to_camera_vjp(c, v_t, v_mean);
}

// ---- sh: sh0 and shN point at the Gaussian's first and second coefficient
GS_DEVICE void sh_one(const CameraArgs& c, int degree, const Real* mean, const Real* sh0, const Real* shN, Real rgb[3]) {
    Real d[3], inverse_distance, b[16];
    view_direction(c, mean, d, inverse_distance);
    sh_basis(degree, d[0], d[1], d[2], b);
    for (int ch = 0; ch < 3; ch++) rgb[ch] = Real(0.5) + b[0] * sh0[ch];
#pragma unroll
    for (int k = 1; k < 16; k++)
        if (k < (degree + 1) * (degree + 1))
            for (int ch = 0; ch < 3; ch++) rgb[ch] += b[k] * shN[3 * (k - 1) + ch];
}
// g = the cotangent behind the clamp at 0. All `total` coefficients are written, those beyond the degree as zeros.
GS_DEVICE void sh_one_vjp(const CameraArgs& c, int degree, int total, const Real* mean, const Real* shN, const Real g[3], Real* v_sh0,
                          Real* v_shN, Real v_mean[3]) {
    Real d[3], inverse_distance, b[16], v_b[16] = {}, v_d[3];
    view_direction(c, mean, d, inverse_distance);
    sh_basis(degree, d[0], d[1], d[2], b);
    for (int ch = 0; ch < 3; ch++) v_sh0[ch] = b[0] * g[ch];
#pragma unroll
    for (int k = 1; k < 16; k++) {
        const bool used = k < (degree + 1) * (degree + 1);
        if (used) v_b[k] = shN[3 * (k - 1)] * g[0] + shN[3 * (k - 1) + 1] * g[1] + shN[3 * (k - 1) + 2] * g[2];
        if (k < total)
            for (int ch = 0; ch < 3; ch++) v_shN[3 * (k - 1) + ch] = used ? b[k] * g[ch] : Real(0);
    }
    sh_basis_vjp(degree, d[0], d[1], d[2], v_b, v_d);
    view_direction_vjp(d, inverse_distance, v_d, v_mean);
}
