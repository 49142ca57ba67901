// adam: the update of Kingma & Ba 2015 as torch.optim.Adam computes it, in place, one pass over memory.
#include "kernels.h"

// step_size = lr / (1 - beta1^t); rsqrt_bias2 = 1 / sqrt(1 - beta2^t).
GS_KERNEL void adam_step(int64_t n, Real* param, const Real* grad, Real* exp_avg, Real* exp_avg_sq, double step_size, double beta1,
                         double beta2, double rsqrt_bias2, double eps) {
    const Vec b1 = vsplat(Real(beta1)), c1 = vsplat(Real(1 - beta1)), b2 = vsplat(Real(beta2)), c2 = vsplat(Real(1 - beta2));
    const Vec size = vsplat(Real(step_size)), bias = vsplat(Real(rsqrt_bias2)), e = vsplat(Real(eps));
    parallel_ranges(n, 16 * PIECE, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += LANES) {
            const int64_t left = end - i;
            const Vec g = load(grad + i, left);
            const Vec m = b1 * load(exp_avg + i, left) + c1 * g;
            const Vec v = b2 * load(exp_avg_sq + i, left) + c2 * g * g;
            store(param + i, load(param + i, left) - size * m / (sqrt_(v) * bias + e), left);
            store(exp_avg + i, m, left);
            store(exp_avg_sq + i, v, left);
        }
    });
}
