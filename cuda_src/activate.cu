// activate: one thread a Gaussian.
#include "one_gaussian.h"

extern "C" __global__ void activate_fwd(int N, const Real* quats, const Real* log_scales, const Real* logit_opacities, Real* unit_quats,
                                        Real* scales, Real* opacities) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    const Activated a = activate_one(quats + 4 * i, log_scales + 3 * i, logit_opacities[i]);
    for (int j = 0; j < 4; j++) unit_quats[4 * i + j] = a.quat[j];
    for (int j = 0; j < 3; j++) scales[3 * i + j] = a.scale[j];
    opacities[i] = a.opacity;
}

extern "C" __global__ void activate_bwd(int N, const Real* quats, const Real* scales, const Real* opacities, const Real* v_unit_quats,
                                        const Real* v_scales, const Real* v_opacities, Real* v_quats, Real* v_log_scales,
                                        Real* v_logit_opacities) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    Activated a;
    normalize_quat(quats + 4 * i, a.quat, a.inverse_norm);
    for (int j = 0; j < 3; j++) a.scale[j] = scales[3 * i + j];
    a.opacity = opacities[i];
    activate_one_vjp(a, v_unit_quats + 4 * i, v_scales + 3 * i, v_opacities[i], v_quats + 4 * i, v_log_scales + 3 * i,
                     v_logit_opacities[i]);
}
