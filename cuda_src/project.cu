// project: one thread a Gaussian.
#include "one_gaussian.h"

extern "C" __global__ void project_fwd(const CameraArgs c, const RasterArgs ra, int N, const Real* means, const Real* quats,
                                       const Real* scales, const Real* opacities, Real* means2d, Real* conics, Real* depths,
                                       Real* extents, Real* compensations) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    project_one(c, ra, means + 3 * i, quats + 4 * i, scales + 3 * i, opacities[i], i, {means2d, conics, depths, extents, compensations});
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
        project_one_vjp(c, ra, g, quats + 4 * i, scales + 3 * i, v_means2d + 2 * i, v_conics + 3 * i, v_depths ? v_depths[i] : Real(0),
                        v_compensations ? v_compensations[i] : Real(0), v_m, v_q, v_s);
    }
    for (int j = 0; j < 3; j++) v_means[3 * i + j] = v_m[j];
    for (int j = 0; j < 4; j++) v_quats[4 * i + j] = v_q[j];
    for (int j = 0; j < 3; j++) v_scales[3 * i + j] = v_s[j];
}
