// One ellipse at one pixel, as every rasterizing kernel sees it.
#pragma once
#include "common.h"
#include "math/blend.h"

#define WARP 32

struct SplatRecord {                 // what the pixel loop reads
    Real mx, my, a, b, c, lo;        // conic, log2(opacity)
    Real color[3], depth;
};
static __device__ __forceinline__ SplatRecord load_splat(int id, const Real* means2d, const Real* conics, const Real* opacities,
                                                         const Real* colors, const Real* depths) {
    return {means2d[2 * id], means2d[2 * id + 1], conics[3 * id], conics[3 * id + 1], conics[3 * id + 2], log2(opacities[id]),
            {colors[3 * id], colors[3 * id + 1], colors[3 * id + 2]}, depths ? depths[id] : Real(0)};
}
static __device__ __forceinline__ Real splat_exponent(const SplatRecord& g, Real dx, Real dy) {
    return g.lo - Real(0.5 * LOG2E) * (g.a * dx * dx + g.c * dy * dy) - Real(LOG2E) * g.b * dx * dy;
}
static __device__ __forceinline__ Alpha<Real> splat_alpha(const RasterArgs& ra, Real raw) {
    return ra.smooth_cutoff ? alpha_rule<true>(ra, raw) : alpha_rule<false>(ra, raw);
}

// ---- backward, back to front. A pixel's state: T in front of what was passed, `behind` = sum over what was passed of
// w (g.c + gz z), with the background's and v_T's share: what becoming more opaque hides.
struct PixelState {
    Real T, behind;
};
struct PixelPull {                   // the picture's cotangents at a pixel
    Real g[3], gz;
};
static __device__ __forceinline__ PixelPull load_pull(long long pixel, const Real* v_image, const Real* v_depth_image) {
    return {{v_image[3 * pixel], v_image[3 * pixel + 1], v_image[3 * pixel + 2]}, v_depth_image ? v_depth_image[pixel] : Real(0)};
}
static __device__ __forceinline__ PixelState last_state(Real T, const PixelPull& v, const Real* background, Real v_transmittance) {
    return {T, T * (v.g[0] * background[0] + v.g[1] * background[1] + v.g[2] * background[2] + v_transmittance)};
}
// Passes one Gaussian that was blended: w receives its weight, the result is dL/dalpha.
static __device__ __forceinline__ Real pass_splat(const SplatRecord& s, const PixelPull& v, Real alpha, PixelState& state, Real& w) {
    const Real rcp = Real(1) / (Real(1) - alpha);
    state.T *= rcp;
    w = alpha * state.T;
    const Real dot = v.g[0] * s.color[0] + v.g[1] * s.color[1] + v.g[2] * s.color[2] + v.gz * s.depth;
    const Real v_alpha = state.T * dot - state.behind * rcp;
    state.behind += w * dot;
    return v_alpha;
}

// What one Gaussian receives: from one pixel, or summed over several. power = dL/dpower, which is opacity dL/dopacity.
struct SplatGradient {
    Real mean[2], conic[3], power, color[3], depth, abs_mean[2];
};
static __device__ __forceinline__ SplatGradient splat_gradient(const SplatRecord& s, const PixelPull& v, Real dx, Real dy, Real v_power,
                                                               Real w) {
    const Real vx = v_power * (s.a * dx + s.b * dy), vy = v_power * (s.b * dx + s.c * dy), half = Real(-0.5) * v_power;
    return {{vx, vy}, {half * dx * dx, -v_power * dx * dy, half * dy * dy}, v_power, {w * v.g[0], w * v.g[1], w * v.g[2]}, w * v.gz,
            {fabs(vx), fabs(vy)}};
}
static __device__ __forceinline__ void accumulate(SplatGradient& sum, const SplatGradient& v) {
    for (int j = 0; j < 2; j++) sum.mean[j] += v.mean[j];
    for (int j = 0; j < 3; j++) sum.conic[j] += v.conic[j];
    sum.power += v.power;
    for (int j = 0; j < 3; j++) sum.color[j] += v.color[j];
    sum.depth += v.depth;
    for (int j = 0; j < 2; j++) sum.abs_mean[j] += v.abs_mean[j];
}
struct SplatGradients {              // zeroed arrays to add to; depths and abs_means2d may be null
    Real *means2d, *conics, *opacities, *colors, *depths, *abs_means2d;
};
static __device__ __forceinline__ void add_gradient(const SplatGradients& to, int id, const SplatGradient& v, Real opacity) {
    for (int j = 0; j < 2; j++) atomicAdd(&to.means2d[2 * id + j], v.mean[j]);
    for (int j = 0; j < 3; j++) atomicAdd(&to.conics[3 * id + j], v.conic[j]);
    atomicAdd(&to.opacities[id], v.power / opacity);
    for (int j = 0; j < 3; j++) atomicAdd(&to.colors[3 * id + j], v.color[j]);
    if (to.depths) atomicAdd(&to.depths[id], v.depth);
    for (int j = 0; to.abs_means2d && j < 2; j++) atomicAdd(&to.abs_means2d[2 * id + j], v.abs_mean[j]);
}
