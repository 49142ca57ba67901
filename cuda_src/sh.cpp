// sh: view-dependent colours. CPU traversal: the basis with SIMD over Gaussians, the sums over coefficients per Gaussian.
//
// Coefficients may stand in one array [N,K,3] or in two (sh0 [N,1,3], shN [N,K-1,3]): each comes with its row stride.
#include "kernels.h"
#include "math/sh.h"

namespace {
struct Basis {
    alignas(64) Real b[16][LANES];
};
GS_HD void direction(const CameraArgs& c, const Real* means, int n, Vec d[3], Vec& inverse_distance) {
    Vec m[3];
    for (int j = 0; j < 3; j++) m[j] = gather(means + j, 3, n, Real(1) + c.center[j]);
    view_direction(c, m, d, inverse_distance);
}
}  // namespace

// colors = max(0, 1/2 + sum_k b_k sh_k). Gaussians with extents 0 are skipped (colour 0); extents may be null.
GS_KERNEL void sh_fwd(const CameraArgs* camera, int64_t N, int degree, const Real* means, const Real* sh0, int64_t stride0,
                      const Real* shN, int64_t strideN, const Real* extents, Real* colors) {
    const CameraArgs c = *camera;
    const int K = (degree + 1) * (degree + 1);
    parallel_ranges(N, PIECE, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += LANES) {
            const int n = int(std::min<int64_t>(LANES, end - i));
            Vec d[3], inverse_distance, b[16];
            direction(c, means + 3 * i, n, d, inverse_distance);
            sh_basis(degree, d[0], d[1], d[2], b);
            Basis basis;
            for (int k = 0; k < K; k++) store(basis.b[k], b[k]);
            for (int l = 0; l < n; l++) {
                Real* out = colors + 3 * (i + l);
                if (extents && !(extents[2 * (i + l)] > 0)) {
                    out[0] = out[1] = out[2] = 0;
                    continue;
                }
                const Real* s0 = sh0 + stride0 * (i + l);
                const Real* sn = shN + strideN * (i + l) - 3;
                Real r[3];
                for (int ch = 0; ch < 3; ch++) r[ch] = Real(0.5) + basis.b[0][l] * s0[ch];
                for (int k = 1; k < K; k++)
                    for (int ch = 0; ch < 3; ch++) r[ch] += basis.b[k][l] * sn[3 * k + ch];
                for (int ch = 0; ch < 3; ch++) out[ch] = r[ch] > 0 ? r[ch] : Real(0);
            }
        }
    });
}

// v_sh0, v_shN: all rows are written, coefficients beyond the degree as zeros (total = coefficients in storage).
// A colour clamped at 0 passes nothing on. v_means receives the part through the view direction only.
GS_KERNEL void sh_bwd(const CameraArgs* camera, int64_t N, int degree, int total, const Real* means, const Real* sh0, int64_t stride0,
                      const Real* shN, int64_t strideN, const Real* extents, const Real* colors, const Real* v_colors,
                      Real* v_means, Real* v_sh0, int64_t v_stride0, Real* v_shN, int64_t v_strideN) {
    const CameraArgs c = *camera;
    const int K = (degree + 1) * (degree + 1);
    (void)sh0;
    (void)stride0;
    parallel_ranges(N, PIECE, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += LANES) {
            const int n = int(std::min<int64_t>(LANES, end - i));
            Vec d[3], inverse_distance, b[16], v_b[16], v_d[3], v_m[3];
            direction(c, means + 3 * i, n, d, inverse_distance);
            sh_basis(degree, d[0], d[1], d[2], b);
            Basis basis, v_basis;
            for (int k = 0; k < K; k++) store(basis.b[k], b[k]);
            for (int k = 0; k < K; k++) store(v_basis.b[k], vsplat(0));
            for (int l = 0; l < n; l++) {
                const Real* color = colors + 3 * (i + l);
                const bool seen = !extents || extents[2 * (i + l)] > 0;
                Real g[3];
                for (int ch = 0; ch < 3; ch++) g[ch] = seen && color[ch] > 0 ? v_colors[3 * (i + l) + ch] : Real(0);
                Real* o0 = v_sh0 + v_stride0 * (i + l);
                Real* on = v_shN + v_strideN * (i + l) - 3;
                const Real* sn = shN + strideN * (i + l) - 3;
                for (int ch = 0; ch < 3; ch++) o0[ch] = basis.b[0][l] * g[ch];
                if (g[0] == 0 && g[1] == 0 && g[2] == 0) {
                    for (int k = 3; k < 3 * total; k++) on[k] = 0;
                    continue;
                }
                for (int k = 1; k < K; k++) {
                    v_basis.b[k][l] = sn[3 * k] * g[0] + sn[3 * k + 1] * g[1] + sn[3 * k + 2] * g[2];
                    for (int ch = 0; ch < 3; ch++) on[3 * k + ch] = basis.b[k][l] * g[ch];
                }
                for (int k = 3 * K; k < 3 * total; k++) on[k] = 0;
            }
            for (int k = 0; k < K; k++) v_b[k] = load(v_basis.b[k]);
            sh_basis_vjp(degree, d[0], d[1], d[2], v_b, v_d);
            view_direction_vjp(d, inverse_distance, v_d, v_m);
            for (int j = 0; j < 3; j++) scatter(v_means + 3 * i + j, 3, n, v_m[j]);
        }
    });
}
