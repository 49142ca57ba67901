// project: one thread a Gaussian.
#include "common.h"
#include "math/camera.h"
#include "math/covariance.h"
#include "math/rotation.h"

struct ProjectChain {
    Real rot[9], t[3];
    Affine<Real> affine;
    Footprint<Real> foot;
    bool in_range;
};
static __device__ __forceinline__ ProjectChain project_chain(const CameraArgs& c, Real eps2d, const Real* mean, const Real* quat,
                                                             const Real* scale) {
    ProjectChain g;
    quat_to_rotmat(quat, g.rot);
    world_to_camera(c, mean, g.t);
    g.in_range = g.t[2] >= c.near_z && g.t[2] <= c.far_z;
    g.t[2] = g.in_range ? g.t[2] : Real(1);
    g.affine = perspective(c, g.t);
    g.foot = footprint(c, g.rot, scale, g.affine.J00, g.affine.J02, g.affine.J11, g.affine.J12, eps2d);
    return g;
}

extern "C" __global__ void project_fwd(const CameraArgs c, const RasterArgs ra, int N, const Real* means, const Real* quats,
                                       const Real* scales, const Real* opacities, Real* means2d, Real* conics, Real* depths,
                                       Real* extents, Real* compensations) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    const ProjectChain g = project_chain(c, ra.eps2d, means + 3 * i, quats + 4 * i, scales + 3 * i);
    const Real comp = ra.antialiased ? compensation(g.foot) : Real(1), opacity = opacities[i] * comp;
    Real conic[3];
    conic_from_footprint(g.foot, conic);
    const bool touches = opacity >= ra.cutoff;
    const Real level = Real(2) * log((touches ? opacity : Real(1)) / ra.cutoff) + ra.footprint_margin;
    const Real ex = sqrt(level * g.foot.xx), ey = sqrt(level * g.foot.yy), mx = g.affine.mean2d[0], my = g.affine.mean2d[1];
    const Real sum = mx + my + conic[0] + conic[1] + conic[2] + ex + ey + opacity;  // not finite if any part is not
    const bool keep = g.in_range && touches && sum - sum == 0 && g.foot.det > 0 && mx + ex > 0 && mx - ex < c.width &&
                      my + ey > 0 && my - ey < c.height;
    means2d[2 * i] = keep ? mx : Real(0);
    means2d[2 * i + 1] = keep ? my : Real(0);
    for (int j = 0; j < 3; j++) conics[3 * i + j] = keep ? conic[j] : Real(0);
    depths[i] = keep ? g.t[2] : Real(0);
    extents[2 * i] = keep ? ex : Real(0);
    extents[2 * i + 1] = keep ? ey : Real(0);
    compensations[i] = keep ? comp : Real(0);
}

// Recomputes the forward chain; culled Gaussians (extents 0) get exact zeros. v_depths and v_compensations may be null.
extern "C" __global__ void project_bwd(const CameraArgs c, const RasterArgs ra, int N, const Real* means, const Real* quats,
                                       const Real* scales, const Real* extents, const Real* v_means2d, const Real* v_conics,
                                       const Real* v_depths, const Real* v_compensations, Real* v_means, Real* v_quats,
                                       Real* v_scales) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    Real v_m[3] = {}, v_q[4] = {}, v_s[3] = {};
    if (extents[2 * i] > 0) {
        const ProjectChain g = project_chain(c, ra.eps2d, means + 3 * i, quats + 4 * i, scales + 3 * i);
        Real conic[3], v_xx, v_xy, v_yy;
        conic_from_footprint(g.foot, conic);
        conic_vjp(conic, v_conics + 3 * i, v_xx, v_xy, v_yy);
        if (ra.antialiased && v_compensations)
            compensation_vjp(g.foot, ra.eps2d, compensation(g.foot), v_compensations[i], v_xx, v_xy, v_yy);
        Real v_rot[9], v_J00, v_J02, v_J11, v_J12, v_t[3];
        footprint_vjp(c, g.rot, scales + 3 * i, g.foot, v_xx, v_xy, v_yy, v_rot, v_s, v_J00, v_J02, v_J11, v_J12);
        quat_to_rotmat_vjp(quats + 4 * i, v_rot, v_q);
        perspective_vjp(c, g.t, g.affine, v_means2d + 2 * i, v_J00, v_J02, v_J11, v_J12, v_depths ? v_depths[i] : Real(0), v_t);
        world_to_camera_vjp(c, v_t, v_m);
    }
    for (int j = 0; j < 3; j++) v_means[3 * i + j] = v_m[j];
    for (int j = 0; j < 4; j++) v_quats[4 * i + j] = v_q[j];
    for (int j = 0; j < 3; j++) v_scales[3 * i + j] = v_s[j];
}
