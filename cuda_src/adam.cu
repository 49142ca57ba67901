// adam: one thread a number, in place. Rows (of `row` numbers) of unseen Gaussians stand still where extents are 0, and all do
// where *ok is 0, which says that a gradient was not finite; null = everything moves.
//
// rest1 = 1 - beta1 and rest2 = 1 - beta2 come from the host in double: here they would cost a float kernel double arithmetic.
#include "common.h"

extern "C" __global__ void adam_step(long long n, Real* param, const Real* grad, Real* exp_avg, Real* exp_avg_sq, Real step_size,
                                     Real beta1, Real rest1, Real beta2, Real rest2, Real rsqrt_bias2, Real eps,
                                     const Real* extents, int row, const int* ok) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || (ok && !*ok) || (extents && !(extents[2 * (i / row)] > 0))) return;
    const Real g = grad[i];
    const Real m = beta1 * exp_avg[i] + rest1 * g;
    const Real v = beta2 * exp_avg_sq[i] + rest2 * g * g;
    param[i] -= step_size * m / (sqrt(v) * rsqrt_bias2 + eps);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
}
