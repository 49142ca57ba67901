// activate: raw parameters -> Gaussians. exp of log_scales, sigmoid of logit_opacities, quats to unit length.
#include "kernels.h"
#include "math/rotation.h"

GS_KERNEL void activate_fwd(int64_t N, const Real* quats, const Real* log_scales, const Real* logit_opacities, Real* unit_quats,
                            Real* scales, Real* opacities) {
    parallel_ranges(N, PIECE, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += LANES) {
            const int n = int(std::min<int64_t>(LANES, end - i));
            Vec q[4], u[4], inverse_norm;
            for (int j = 0; j < 4; j++) q[j] = gather(quats + 4 * i + j, 4, n);
            normalize_quat(q, u, inverse_norm);
            for (int j = 0; j < 4; j++) scatter(unit_quats + 4 * i + j, 4, n, u[j]);
            for (int j = 0; j < 3; j++) scatter(scales + 3 * i + j, 3, n, exp_(gather(log_scales + 3 * i + j, 3, n)));
            const Vec one = vsplat(1);
            scatter(opacities + i, 1, n, one / (one + exp_(-gather(logit_opacities + i, 1, n))));
        }
    });
}

// v_quats of unit quats in, of raw quats out; ds/dlog_s = s; do/dlogit = o (1 - o). What received nothing passes nothing:
// a culled Gaussian may hold Inf or NaN, and 0 * Inf must not reach the optimiser.
GS_KERNEL void activate_bwd(int64_t N, const Real* quats, const Real* scales, const Real* opacities, const Real* v_unit_quats,
                            const Real* v_scales, const Real* v_opacities, Real* v_quats, Real* v_log_scales, Real* v_logit_opacities) {
    parallel_ranges(N, PIECE, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += LANES) {
            const int n = int(std::min<int64_t>(LANES, end - i));
            Vec q[4], u[4], v_u[4], v_q[4], inverse_norm;
            for (int j = 0; j < 4; j++) q[j] = gather(quats + 4 * i + j, 4, n);
            for (int j = 0; j < 4; j++) v_u[j] = gather(v_unit_quats + 4 * i + j, 4, n);
            normalize_quat(q, u, inverse_norm);
            normalize_quat_vjp(u, inverse_norm, v_u, v_q);
            const Vec zero = vsplat(0);
            const Mask turned = (v_u[0] != zero) | (v_u[1] != zero) | (v_u[2] != zero) | (v_u[3] != zero);
            for (int j = 0; j < 4; j++) scatter(v_quats + 4 * i + j, 4, n, pick(turned, v_q[j], zero));
            for (int j = 0; j < 3; j++) {
                const Vec v = gather(v_scales + 3 * i + j, 3, n), s = gather(scales + 3 * i + j, 3, n);
                scatter(v_log_scales + 3 * i + j, 3, n, pick(v != zero, v * s, zero));
            }
            const Vec v = gather(v_opacities + i, 1, n), o = gather(opacities + i, 1, n);
            scatter(v_logit_opacities + i, 1, n, pick(v != zero, v * o * (vsplat(1) - o), zero));
        }
    });
}
