// adam: one thread a number, in place. Rows (of `row` numbers) of unseen Gaussians stand still where extents are 0, and all do
// where *ok is 0, which says that a gradient was not finite; null = everything moves.
#include "common.h"

extern "C" __global__ void adam_step(long long n, Real* param, const Real* grad, Real* exp_avg, Real* exp_avg_sq, double step_size,
                                     double beta1, double beta2, double rsqrt_bias2, double eps, const Real* extents, int row,
                                     const int* ok) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || (ok && !*ok) || (extents && !(extents[2 * (i / row)] > 0))) return;
    const Real g = grad[i];
    const Real m = Real(beta1) * exp_avg[i] + Real(1 - beta1) * g;
    const Real v = Real(beta2) * exp_avg_sq[i] + Real(1 - beta2) * g * g;
    param[i] -= Real(step_size) * m / (sqrt(v) * Real(rsqrt_bias2) + Real(eps));
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
}
