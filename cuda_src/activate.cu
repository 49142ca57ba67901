// activate: one thread a Gaussian.
#include "common.h"
#include "math/rotation.h"

extern "C" __global__ void activate_fwd(int N, const Real* quats, const Real* log_scales, const Real* logit_opacities, Real* unit_quats,
                                        Real* scales, Real* opacities) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    Real u[4], inverse_norm;
    normalize_quat(quats + 4 * i, u, inverse_norm);
    for (int j = 0; j < 4; j++) unit_quats[4 * i + j] = u[j];
    for (int j = 0; j < 3; j++) scales[3 * i + j] = exp(log_scales[3 * i + j]);
    opacities[i] = Real(1) / (Real(1) + exp(-logit_opacities[i]));
}

// What received nothing passes nothing: 0 * Inf of a culled Gaussian must not reach the optimiser.
extern "C" __global__ void activate_bwd(int N, const Real* quats, const Real* scales, const Real* opacities, const Real* v_unit_quats,
                                        const Real* v_scales, const Real* v_opacities, Real* v_quats, Real* v_log_scales,
                                        Real* v_logit_opacities) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    const Real* v = v_unit_quats + 4 * i;
    Real u[4], v_q[4], inverse_norm;
    normalize_quat(quats + 4 * i, u, inverse_norm);
    normalize_quat_vjp(u, inverse_norm, v, v_q);
    const bool turned = v[0] != 0 || v[1] != 0 || v[2] != 0 || v[3] != 0;
    for (int j = 0; j < 4; j++) v_quats[4 * i + j] = turned ? v_q[j] : Real(0);
    for (int j = 0; j < 3; j++) v_log_scales[3 * i + j] = v_scales[3 * i + j] != 0 ? v_scales[3 * i + j] * scales[3 * i + j] : Real(0);
    const Real o = opacities[i];
    v_logit_opacities[i] = v_opacities[i] != 0 ? v_opacities[i] * o * (Real(1) - o) : Real(0);
}
