// project: Gaussians -> means2d, conics, depths, extents, compensations. CPU traversal: SIMD over Gaussians.
#include "kernels.h"
#include "math/camera.h"
#include "math/covariance.h"
#include "math/rotation.h"

namespace {
struct Chain {  // one vector of Gaussians, forward
    Vec m[3], q[4], s[3], rot[9], t[3];
    Affine<Vec> affine;
    Footprint<Vec> foot;
    Mask in_range;
};
GS_HD Chain forward(const CameraArgs& c, const RasterArgs& ra, const Real* means, const Real* quats, const Real* scales, int n) {
    Chain g;
    for (int i = 0; i < 3; i++) g.m[i] = gather(means + i, 3, n);
    for (int i = 0; i < 4; i++) g.q[i] = gather(quats + i, 4, n);
    for (int i = 0; i < 3; i++) g.s[i] = gather(scales + i, 3, n);
    quat_to_rotmat(g.q, g.rot);
    world_to_camera(c, g.m, g.t);
    g.in_range = (g.t[2] >= c.near_z) & (g.t[2] <= c.far_z);
    g.t[2] = pick(g.in_range, g.t[2], vsplat(1));
    g.affine = perspective(c, g.t);
    g.foot = footprint(c, g.rot, g.s, g.affine.J00, g.affine.J02, g.affine.J11, g.affine.J12, ra.eps2d);
    return g;
}
GS_HD Vec log_(Vec x) {
    Vec r;
    for (int l = 0; l < LANES; l++) r[l] = std::log(x[l]);
    return r;
}
}  // namespace

// extents: half-size of the box that holds alpha >= cutoff (widened by footprint_margin); 0 = culled.
GS_KERNEL void project_fwd(const CameraArgs* camera, const RasterArgs* raster, int64_t N, const Real* means, const Real* quats,
                           const Real* scales, const Real* opacities, Real* means2d, Real* conics, Real* depths, Real* extents,
                           Real* compensations) {
    const CameraArgs c = *camera;
    const RasterArgs ra = *raster;
    parallel_ranges(N, PIECE, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += LANES) {
            const int n = int(std::min<int64_t>(LANES, end - i));
            Chain g = forward(c, ra, means + 3 * i, quats + 4 * i, scales + 3 * i, n);
            const Vec zero = vsplat(0), one = vsplat(1);
            const Vec comp = ra.antialiased ? compensation(g.foot) : one;
            const Vec opacity = gather(opacities + i, 1, n) * comp;
            Vec conic[3];
            conic_from_footprint(g.foot, conic);
            const Mask visible_alpha = opacity >= ra.cutoff;
            const Vec level = Real(2) * log_(pick(visible_alpha, opacity, one) / ra.cutoff) + ra.footprint_margin;
            const Vec ex = sqrt_(level * g.foot.xx), ey = sqrt_(level * g.foot.yy);
            const Vec mx = g.affine.mean2d[0], my = g.affine.mean2d[1];
            const Vec sum = mx + my + conic[0] + conic[1] + conic[2] + ex + ey + opacity;  // not finite if any part is not
            const Mask keep = g.in_range & visible_alpha & (sum - sum == zero) & (g.foot.det > zero) & (mx + ex > zero) &
                              (mx - ex < Real(c.width)) & (my + ey > zero) & (my - ey < Real(c.height));
            scatter(means2d + 2 * i, 2, n, pick(keep, mx, zero));
            scatter(means2d + 2 * i + 1, 2, n, pick(keep, my, zero));
            for (int j = 0; j < 3; j++) scatter(conics + 3 * i + j, 3, n, pick(keep, conic[j], zero));
            scatter(depths + i, 1, n, pick(keep, g.t[2], zero));
            scatter(extents + 2 * i, 2, n, pick(keep, ex, zero));
            scatter(extents + 2 * i + 1, 2, n, pick(keep, ey, zero));
            scatter(compensations + i, 1, n, pick(keep, comp, zero));
        }
    });
}

// Recomputes the forward chain; culled Gaussians (extents 0) get exact zeros.
GS_KERNEL void project_bwd(const CameraArgs* camera, const RasterArgs* raster, int64_t N, const Real* means, const Real* quats,
                           const Real* scales, const Real* extents, const Real* v_means2d, const Real* v_conics,
                           const Real* v_depths, const Real* v_compensations, Real* v_means, Real* v_quats, Real* v_scales) {
    const CameraArgs c = *camera;
    const RasterArgs ra = *raster;
    parallel_ranges(N, PIECE, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += LANES) {
            const int n = int(std::min<int64_t>(LANES, end - i));
            const Vec zero = vsplat(0);
            const Mask keep = gather(extents + 2 * i, 2, n) > zero;
            Vec v_m[3] = {zero, zero, zero}, v_q[4] = {zero, zero, zero, zero}, v_s[3] = {zero, zero, zero};
            if (any(keep)) {
                const Chain g = forward(c, ra, means + 3 * i, quats + 4 * i, scales + 3 * i, n);
                Vec conic[3], v_conic[3], v_mean2d[2], v_xx, v_xy, v_yy;
                conic_from_footprint(g.foot, conic);
                for (int j = 0; j < 3; j++) v_conic[j] = gather(v_conics + 3 * i + j, 3, n);
                for (int j = 0; j < 2; j++) v_mean2d[j] = gather(v_means2d + 2 * i + j, 2, n);
                conic_vjp(conic, v_conic, v_xx, v_xy, v_yy);
                if (ra.antialiased && v_compensations)
                    compensation_vjp(g.foot, ra.eps2d, compensation(g.foot), gather(v_compensations + i, 1, n), v_xx, v_xy, v_yy);
                Vec v_rot[9], v_J00, v_J02, v_J11, v_J12, v_t[3];
                footprint_vjp(c, g.rot, g.s, g.foot, v_xx, v_xy, v_yy, v_rot, v_s, v_J00, v_J02, v_J11, v_J12);
                quat_to_rotmat_vjp(g.q, v_rot, v_q);
                const Vec v_depth = v_depths ? gather(v_depths + i, 1, n) : zero;
                perspective_vjp(c, g.t, g.affine, v_mean2d, v_J00, v_J02, v_J11, v_J12, v_depth, v_t);
                world_to_camera_vjp(c, v_t, v_m);
            }
            for (int j = 0; j < 3; j++) scatter(v_means + 3 * i + j, 3, n, pick(keep, v_m[j], zero));
            for (int j = 0; j < 4; j++) scatter(v_quats + 4 * i + j, 4, n, pick(keep, v_q[j], zero));
            for (int j = 0; j < 3; j++) scatter(v_scales + 3 * i + j, 3, n, pick(keep, v_s[j], zero));
        }
    });
}
