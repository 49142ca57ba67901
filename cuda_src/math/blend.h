// Alpha of one Gaussian at one pixel and front-to-back compositing. Source: Kerbl et al. 2023; Porter & Duff 1984.
// Exponents are in base 2: p2 = log2(opacity) - log2(e)/2 * (dx,dy) Q (dx,dy)^T, so that alpha is one exp2.
#pragma once
#include "../common.h"

constexpr double LOG2E = 1.4426950408889634;

// Eq. B1: a = opacity * exp(power);  Eq. B2: alpha = min(a, alpha_max), 0 below the cutoff.
// Eq. B3 (smooth cutoff): alpha <- alpha s((alpha-c)/c), s(t) = t^2 (3-2t) on [0,1]: C1, 0 at c, 1 at 2c.
// ramp_slope is d(alpha s)/d(alpha), 1 where the cutoff is hard.
template <class R> struct Alpha { R value, ramp_slope; };
template <bool SMOOTH, class R> GS_HD Alpha<R> alpha_rule(const RasterArgs& a, R raw) {
    const R zero = splat<R>(0), one = splat<R>(1), c = splat<R>(a.cutoff);
    R alpha = min_(raw, splat<R>(a.alpha_max));
    if (!SMOOTH) return {pick(alpha >= c, alpha, zero), one};
    const Real two = 2, three = 3, six = 6;
    const R rc = one / c;
    const R t = min_(max_((alpha - c) * rc, zero), one);
    const R s = t * t * (three - two * t);
    return {alpha * s, s + alpha * six * t * (one - t) * rc};
}
// Eq. B4: dalpha/dpower before the ramp. Up to alpha_max it is a; beyond, min(a, cap): the three gradient modes are
// cap = 0 (exact), inf (straight_through), alpha_max (straight_through_clamped). dalpha/dopacity is this over opacity.
template <class R> GS_HD R alpha_gradient(const RasterArgs& a, R raw) {
    return pick(raw <= splat<R>(a.alpha_max), raw, min_(raw, splat<R>(a.alpha_gradient_cap)));
}
