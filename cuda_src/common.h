// Shared by every kernel, C++ and CUDA alike. ASCII only.
//
// Conventions
//   Real      the working precision: double under -DGS_DOUBLE, else float.
//   R         in math/*.h: a Real, or on the CPU a SIMD vector of Real (simd.h). One mathematics, both widths.
//   v_x       the cotangent dL/dx. Each function f is followed by f_vjp, which ADDS nothing: it returns cotangents.
//   quats     wxyz;  matrices row-major;  pixel centres at +0.5;  OpenCV camera axes (x right, y down, z forward).
#pragma once

#ifdef __CUDACC__
#define GS_HD __host__ __device__ __forceinline__
#elif defined(_MSC_VER)
#define GS_HD __forceinline
#else
#define GS_HD inline __attribute__((always_inline))
#endif

#ifdef GS_DOUBLE
typedef double Real;
#else
typedef float Real;
#endif

#ifndef TILE_SIZE
#define TILE_SIZE 16  // pixels a side; render/config.py passes its own value with -D
#endif

// A pinhole camera as kernels see it; mirrored field by field in render/backends/signatures.py.
struct CameraArgs {
    Real R[9];           // world -> camera rotation, row-major
    Real t[3];           // world -> camera translation
    Real center[3];      // camera centre in the world
    Real fx, fy, cx, cy; // px
    Real lo_x, hi_x, lo_y, hi_y; // clamp limits of x/z and y/z inside the Jacobian
    Real near_z, far_z;
    int width, height, tiles_x, tiles_y;
};

// The rules of compositing; mirrored in render/backends/signatures.py, filled from RasterConfig.
struct RasterArgs {
    Real alpha_max;
    Real alpha_gradient_cap; // where opacity*G > alpha_max, dalpha/dpower = min(opacity*G, cap): 0 exact, alpha_max, or inf
    Real cutoff;
    Real transmittance_min;
    Real eps2d;
    Real footprint_margin; // added to the squared Mahalanobis radius of every footprint: culling stays conservative
    int smooth_cutoff;
    int antialiased;
};

// ---- scalar forms of the helpers that math/*.h uses on either width
template <class R> struct Lanes { static GS_HD R splat(Real x) { return x; } };
template <class R> GS_HD R splat(Real x) { return Lanes<R>::splat(x); }
#ifdef __CUDACC__
GS_HD Real pick(bool m, Real a, Real b) { return m ? a : b; }
GS_HD Real sqrt_(Real x) { return sqrt(x); }
#else
#include <cmath>
GS_HD Real pick(bool m, Real a, Real b) { return m ? a : b; }
GS_HD Real sqrt_(Real x) { return std::sqrt(x); }
#endif
#ifndef __CUDACC__
#include "simd.h"  // the vector forms must be known before the templates below are
#endif
template <class R> GS_HD R min_(R a, R b) { return pick(a < b, a, b); }
template <class R> GS_HD R max_(R a, R b) { return pick(a > b, a, b); }
