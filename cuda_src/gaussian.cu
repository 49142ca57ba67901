// gaussian: activate, project and sh in one kernel, and their backward in one. One thread a Gaussian.
//
// Between the raw parameters and the ellipses nothing is written and read back. The single stages stay for inspection;
// both call one_gaussian.h, so that they are one function.
#include "one_gaussian.h"

// shN [N,rest,3]: rest = coefficients in storage beyond the first. A culled Gaussian (extents 0) reads no coefficient.
// opacities_eff = opacity times compensation where that is applied: what is blended.
extern "C" __global__ void gaussian_fwd(const CameraArgs c, const RasterArgs ra, int N, int degree, int rest, const Real* means,
                                        const Real* quats, const Real* log_scales, const Real* logit_opacities, const Real* sh0,
                                        const Real* shN, Real* means2d, Real* conics, Real* depths, Real* extents,
                                        Real* compensations, Real* colors, Real* opacities_eff) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    const Activated a = activate_one(quats + 4 * i, log_scales + 3 * i, logit_opacities[i]);
    const ProjectedRows out = {means2d, conics, depths, extents, compensations};
    const Real comp = project_one(c, ra, means + 3 * i, a.quat, a.scale, a.opacity, i, out);
    Real rgb[3] = {};
    if (comp > 0) sh_one(c, degree, means + 3 * i, sh0 + 3 * i, shN + (long long)3 * rest * i, rgb);
    for (int ch = 0; ch < 3; ch++) colors[3 * i + ch] = rgb[ch] > 0 ? rgb[ch] : Real(0);
    opacities_eff[i] = ra.antialiased ? a.opacity * comp : a.opacity;
}

// Recomputes the chain. Gaussians that were culled get exact zeros in every group. v_depths may be null; v_shN may be null
// while no band beyond the first is in use (degree 0), which spares writing its zeros.
extern "C" __global__ void gaussian_bwd(const CameraArgs c, const RasterArgs ra, int N, int degree, int rest, const Real* means,
                                        const Real* quats, const Real* log_scales, const Real* logit_opacities, const Real* shN,
                                        const Real* extents, const Real* colors, const Real* v_means2d, const Real* v_conics,
                                        const Real* v_depths, const Real* v_colors, const Real* v_opacities_eff, Real* v_means,
                                        Real* v_quats, Real* v_log_scales, Real* v_logit_opacities, Real* v_sh0, Real* v_shN) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    const long long rowN = (long long)3 * rest * i;
    Real v_m[3] = {}, v_q[4] = {}, v_s[3] = {}, v_o = 0;
    if (extents[2 * i] > 0) {
        Real rgb[3], v_direct[3];
        for (int ch = 0; ch < 3; ch++) rgb[ch] = colors[3 * i + ch] > 0 ? v_colors[3 * i + ch] : Real(0);
        sh_one_vjp(c, degree, v_shN ? 1 + rest : 1, means + 3 * i, shN + rowN, rgb, v_sh0 + 3 * i, v_shN ? v_shN + rowN : v_shN,
                   v_direct);
        const Activated a = activate_one(quats + 4 * i, log_scales + 3 * i, logit_opacities[i]);
        const ProjectChain g = project_chain(c, ra.eps2d, means + 3 * i, a.quat, a.scale);
        const Real v_eff = v_opacities_eff[i], comp = ra.antialiased ? compensation(g.foot) : Real(1);
        Real v_unit[4], v_scale[3];
        project_one_vjp(c, ra, g, a.quat, a.scale, v_means2d + 2 * i, v_conics + 3 * i, v_depths ? v_depths[i] : Real(0),
                        v_eff * a.opacity, v_m, v_unit, v_scale);
        activate_one_vjp(a, v_unit, v_scale, v_eff * comp, v_q, v_s, v_o);
        for (int j = 0; j < 3; j++) v_m[j] += v_direct[j];
    } else {
        for (int ch = 0; ch < 3; ch++) v_sh0[3 * i + ch] = 0;
        for (int k = 0; v_shN && k < 3 * rest; k++) v_shN[rowN + k] = 0;
    }
    for (int j = 0; j < 3; j++) v_means[3 * i + j] = v_m[j];
    for (int j = 0; j < 4; j++) v_quats[4 * i + j] = v_q[j];
    for (int j = 0; j < 3; j++) v_log_scales[3 * i + j] = v_s[j];
    v_logit_opacities[i] = v_o;
}
