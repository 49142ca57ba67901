// adam: the update of Kingma & Ba 2015 as torch.optim.Adam computes it, in place, one pass over memory.
#include "kernels.h"

namespace {
struct AdamRates {
    Vec b1, c1, b2, c2, size, bias, e;
};
GS_HD void update(const AdamRates& r, int64_t begin, int64_t end, Real* param, const Real* grad, Real* exp_avg, Real* exp_avg_sq) {
    for (int64_t i = begin; i < end; i += LANES) {
        const int64_t left = end - i;
        const Vec g = load(grad + i, left);
        const Vec m = r.b1 * load(exp_avg + i, left) + r.c1 * g;
        const Vec v = r.b2 * load(exp_avg_sq + i, left) + r.c2 * g * g;
        store(param + i, load(param + i, left) - r.size * m / (sqrt_(v) * r.bias + r.e), left);
        store(exp_avg + i, m, left);
        store(exp_avg_sq + i, v, left);
    }
}
}  // namespace

// step_size = lr / (1 - beta1^t); rsqrt_bias2 = 1 / sqrt(1 - beta2^t). With extents, rows (of `row` numbers) of unseen
// Gaussians (extents 0) stand still; null = all move.
GS_KERNEL void adam_step(int64_t n, Real* param, const Real* grad, Real* exp_avg, Real* exp_avg_sq, double step_size, double beta1,
                         double beta2, double rsqrt_bias2, double eps, const Real* extents, int row) {
    const AdamRates r = {vsplat(Real(beta1)), vsplat(Real(1 - beta1)), vsplat(Real(beta2)), vsplat(Real(1 - beta2)),
                         vsplat(Real(step_size)), vsplat(Real(rsqrt_bias2)), vsplat(Real(eps))};
    if (!extents) {
        parallel_ranges(n, 16 * PIECE, [&](int64_t begin, int64_t end) { update(r, begin, end, param, grad, exp_avg, exp_avg_sq); });
        return;
    }
    parallel_ranges(n / row, PIECE, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end;) {  // neighbours that are seen go together: rows of few numbers fill no vector
            int64_t stop = i;
            while (stop < end && extents[2 * stop] > 0) stop++;
            if (stop > i) update(r, i * row, stop * row, param, grad, exp_avg, exp_avg_sq);
            i = stop + 1;
        }
    });
}
