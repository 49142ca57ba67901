// sh: one thread a Gaussian. Coefficients may stand in one array or two, see sh.cpp.
#include "common.h"
#include "math/sh.h"

extern "C" __global__ void sh_fwd(const CameraArgs c, int N, int degree, const Real* means, const Real* sh0, int stride0,
                                  const Real* shN, int strideN, const Real* extents, Real* colors) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    Real rgb[3] = {};
    if (!extents || extents[2 * i] > 0) {
        Real d[3], inverse_distance, b[16];
        view_direction(c, means + 3 * i, d, inverse_distance);
        sh_basis(degree, d[0], d[1], d[2], b);
        const long long row0 = (long long)stride0 * i, rowN = (long long)strideN * i - 3;
        for (int ch = 0; ch < 3; ch++) rgb[ch] = Real(0.5) + b[0] * sh0[row0 + ch];
#pragma unroll
        for (int k = 1; k < 16; k++)
            if (k < (degree + 1) * (degree + 1))
                for (int ch = 0; ch < 3; ch++) rgb[ch] += b[k] * shN[rowN + 3 * k + ch];
    }
    for (int ch = 0; ch < 3; ch++) colors[3 * i + ch] = rgb[ch] > 0 ? rgb[ch] : Real(0);
}

// Every coefficient's gradient is written, those beyond the degree as zeros (total = coefficients in storage).
extern "C" __global__ void sh_bwd(const CameraArgs c, int N, int degree, int total, const Real* means, const Real* sh0, int stride0,
                                  const Real* shN, int strideN, const Real* extents, const Real* colors, const Real* v_colors,
                                  Real* v_means, Real* v_sh0, int v_stride0, Real* v_shN, int v_strideN) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    const bool seen = !extents || extents[2 * i] > 0;
    Real g[3], d[3], inverse_distance, b[16], v_b[16] = {}, v_d[3], v_m[3];
    for (int ch = 0; ch < 3; ch++) g[ch] = seen && colors[3 * i + ch] > 0 ? v_colors[3 * i + ch] : Real(0);
    view_direction(c, means + 3 * i, d, inverse_distance);
    sh_basis(degree, d[0], d[1], d[2], b);
    const long long rowN = (long long)strideN * i - 3, v_rowN = (long long)v_strideN * i - 3;
    for (int ch = 0; ch < 3; ch++) v_sh0[(long long)v_stride0 * i + ch] = b[0] * g[ch];
#pragma unroll
    for (int k = 1; k < 16; k++) {
        const bool used = k < (degree + 1) * (degree + 1);
        if (used) v_b[k] = shN[rowN + 3 * k] * g[0] + shN[rowN + 3 * k + 1] * g[1] + shN[rowN + 3 * k + 2] * g[2];
        if (k < total)
            for (int ch = 0; ch < 3; ch++) v_shN[v_rowN + 3 * k + ch] = used ? b[k] * g[ch] : Real(0);
    }
    sh_basis_vjp(degree, d[0], d[1], d[2], v_b, v_d);
    view_direction_vjp(d, inverse_distance, v_d, v_m);
    for (int j = 0; j < 3; j++) v_means[3 * i + j] = v_m[j];
    (void)sh0;
    (void)stride0;
}
