// SSIM of one window from its moments, and its derivatives. Source: Wang et al. 2004, equation 13.
#pragma once
#include "../common.h"

constexpr int SSIM_WINDOW = 11;
constexpr double SSIM_SIGMA = 1.5, SSIM_C1 = 0.01 * 0.01, SSIM_C2 = 0.03 * 0.03;

// Eq. L1: S = A B / (C D), A = 2 mx my + C1, B = 2 cov + C2, C = mx^2 + my^2 + C1, D = var x + var y + C2,
// var x = E x^2 - mx^2, cov = E xy - mx my. Derivatives with respect to the moments of x: mean, E x^2, E xy.
template <class R> struct SsimTerms { R value, d_mean, d_xx, d_xy; };
template <class R> GS_HD SsimTerms<R> ssim_terms(R mx, R my, R xx, R yy, R xy) {
    const Real two = 2, c1 = Real(SSIM_C1), c2 = Real(SSIM_C2);
    const R A = two * mx * my + c1, B = two * (xy - mx * my) + c2;
    const R C = mx * mx + my * my + c1, D = (xx - mx * mx) + (yy - my * my) + c2;
    const R rc = splat<R>(1) / C, rd = splat<R>(1) / D;
    SsimTerms<R> s;
    s.value = A * B * rc * rd;
    s.d_xy = two * A * rc * rd;
    s.d_xx = -s.value * rd;
    s.d_mean = two * my * B * rc * rd - two * mx * s.value * rc - two * mx * s.d_xx - my * s.d_xy;
    return s;
}
