// sh: one thread a Gaussian. Coefficients may stand in one array or two, see sh.cpp.
#include "one_gaussian.h"

extern "C" __global__ void sh_fwd(const CameraArgs c, int N, int degree, const Real* means, const Real* sh0, int stride0,
                                  const Real* shN, int strideN, const Real* extents, Real* colors) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    Real rgb[3] = {};
    if (!extents || extents[2 * i] > 0)
        sh_one(c, degree, means + 3 * i, sh0 + (long long)stride0 * i, shN + (long long)strideN * i, rgb);
    for (int ch = 0; ch < 3; ch++) colors[3 * i + ch] = rgb[ch] > 0 ? rgb[ch] : Real(0);
}

// Every coefficient's gradient is written, those beyond the degree as zeros (total = coefficients in storage).
extern "C" __global__ void sh_bwd(const CameraArgs c, int N, int degree, int total, const Real* means, const Real* sh0, int stride0,
                                  const Real* shN, int strideN, const Real* extents, const Real* colors, const Real* v_colors,
                                  Real* v_means, Real* v_sh0, int v_stride0, Real* v_shN, int v_strideN) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    const bool seen = !extents || extents[2 * i] > 0;
    Real g[3], v_m[3];
    for (int ch = 0; ch < 3; ch++) g[ch] = seen && colors[3 * i + ch] > 0 ? v_colors[3 * i + ch] : Real(0);
    sh_one_vjp(c, degree, total, means + 3 * i, shN + (long long)strideN * i, g, v_sh0 + (long long)v_stride0 * i,
               v_shN + (long long)v_strideN * i, v_m);
    for (int j = 0; j < 3; j++) v_means[3 * i + j] = v_m[j];
    (void)sh0;
    (void)stride0;
}
