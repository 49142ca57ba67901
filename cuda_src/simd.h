// SIMD by compiler vector extensions: one source for AVX-512, AVX2, NEON and anything else. CPU only.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "common.h"  // which includes this file again, in the right place

#ifndef GS_VECTOR_BYTES
#if defined(__AVX512F__)
#define GS_VECTOR_BYTES 64
#elif defined(__AVX__)
#define GS_VECTOR_BYTES 32
#else
#define GS_VECTOR_BYTES 16
#endif
#endif

#ifdef GS_DOUBLE
typedef int64_t Int;
#else
typedef int32_t Int;
#endif
typedef Real Vec __attribute__((vector_size(GS_VECTOR_BYTES)));
typedef Int Mask __attribute__((vector_size(GS_VECTOR_BYTES)));  // comparisons give -1 or 0 per lane
constexpr int LANES = GS_VECTOR_BYTES / int(sizeof(Real));

template <size_t... I> GS_HD Vec repeat(Real x, std::index_sequence<I...>) { return Vec{(void(I), x)...}; }
template <size_t... I> GS_HD Vec count_up(std::index_sequence<I...>) { return Vec{Real(I)...}; }
GS_HD Vec vsplat(Real x) { return repeat(x, std::make_index_sequence<LANES>{}); }  // compiles to one broadcast
GS_HD Vec lane_index() { return count_up(std::make_index_sequence<LANES>{}); }
template <> struct Lanes<Vec> { static GS_HD Vec splat(Real x) { return vsplat(x); } };
GS_HD Vec pick(Mask m, Vec a, Vec b) { return m ? a : b; }
GS_HD Mask pick(Mask m, Mask a, Mask b) { return m ? a : b; }
GS_HD Vec vmin(Vec a, Vec b) { return a < b ? a : b; }
GS_HD Vec vmax(Vec a, Vec b) { return a > b ? a : b; }
GS_HD Mask sign_bits() { return Mask{} + std::numeric_limits<Int>::min(); }
GS_HD Vec vabs(Vec a) { return (Vec)((Mask)a & ~sign_bits()); }
GS_HD Vec vnegative(Vec a) { return (Vec)((Mask)a | sign_bits()); }  // -|a|
GS_HD Vec load(const Real* p) { Vec v; std::memcpy(&v, p, sizeof v); return v; }
GS_HD void store(Real* p, Vec v) { std::memcpy(p, &v, sizeof v); }
// The first n lanes, for the ends of arrays; whole vectors take the short way.
GS_HD Vec load(const Real* p, int64_t n) {
    if (n >= LANES) return load(p);
    Vec v{};
    std::memcpy(&v, p, size_t(n) * sizeof(Real));
    return v;
}
GS_HD void store(Real* p, Vec v, int64_t n) {
    if (n >= LANES) store(p, v);
    else std::memcpy(p, &v, size_t(n) * sizeof(Real));
}
GS_HD Mask load_mask(const Int* p) { Mask v; std::memcpy(&v, p, sizeof v); return v; }
GS_HD void store_mask(Int* p, Mask v) { std::memcpy(p, &v, sizeof v); }

GS_HD Vec sqrt_(Vec x) {  // compiles to one vector square root
    Vec r;
    for (int l = 0; l < LANES; l++) r[l] = std::sqrt(x[l]);
    return r;
}

// Lanes of a strided array: v[l] = p[l * stride] for l < n, `fill` beyond.
GS_HD Vec gather(const Real* p, int stride, int n, Real fill = 0) {
    Vec r = vsplat(fill);
    if (n >= LANES) {
        for (int l = 0; l < LANES; l++) r[l] = p[l * stride];
    } else {
        for (int l = 0; l < n; l++) r[l] = p[l * stride];
    }
    return r;
}
GS_HD void scatter(Real* p, int stride, int n, Vec v) {
    if (n >= LANES) {
        for (int l = 0; l < LANES; l++) p[l * stride] = v[l];
    } else {
        for (int l = 0; l < n; l++) p[l * stride] = v[l];
    }
}

// 2^x for x in about [-126, 127]. Float: round to nearest by the 1.5*2^23 trick, a degree-5 polynomial on [-1/2, 1/2]
// (relative error 2e-7; coefficients are a minimax fit with p(0) = 1), exponent added as an integer. Double: libm.
GS_HD Vec exp2_(Vec x) {
#ifdef GS_DOUBLE
    Vec r;
    for (int l = 0; l < LANES; l++) r[l] = std::exp2(x[l]);
    return r;
#else
    const float magic = 12582912.0f;  // 1.5 * 2^23
    x = vmax(x, vsplat(-126.0f));     // smaller results are zero to everyone who asks; NaN becomes -126 too
    Vec shifted = x + magic;
    Vec f = x - (shifted - magic);
    Vec p = f * 1.326471433e-03f + 9.671512635e-03f;
    p = p * f + 5.550733774e-02f;
    p = p * f + 2.402224209e-01f;
    p = p * f + 6.931469776e-01f;
    p = p * f + 1.0f;
    return (Vec)((Mask)p + ((Mask)shifted << 23));
#endif
}

// e^x over the whole range of the type, NaN kept: what the activations need.
GS_HD Vec exp_(Vec x) {
#ifdef GS_DOUBLE
    Vec r;
    for (int l = 0; l < LANES; l++) r[l] = std::exp(x[l]);
    return r;
#else
    const Vec y = x * 1.44269504f;
    const Vec r = pick(y > 127.5f, Vec{} + HUGE_VALF, exp2_(vmin(y, vsplat(127.5f))));
    return pick(x == x, r, x);
#endif
}

// Sum over lanes, in a fixed order (halves first).
template <int N> struct Halve {
    typedef Real V __attribute__((vector_size(N * sizeof(Real))));
    static GS_HD Real sum(V v) {
        typedef typename Halve<N / 2>::V H;
        H lo, hi;
        std::memcpy(&lo, &v, sizeof lo);
        std::memcpy(&hi, (const char*)&v + sizeof lo, sizeof hi);
        return Halve<N / 2>::sum(lo + hi);
    }
};
template <> struct Halve<2> {
    typedef Real V __attribute__((vector_size(2 * sizeof(Real))));
    static GS_HD Real sum(V v) { return v[0] + v[1]; }
};
GS_HD Real hsum(Vec v) { return Halve<LANES>::sum(v); }
GS_HD bool any(Mask m) {
    typedef uint64_t Words __attribute__((vector_size(GS_VECTOR_BYTES)));
    const Words w = (Words)m;
    uint64_t r = 0;
    for (int l = 0; l < GS_VECTOR_BYTES / 8; l++) r |= w[l];
    return r != 0;
}

#if defined(__clang__) || __GNUC__ >= 12
#define GS_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif

// out[k] = sum over lanes of v[k], k < N <= 16, in a fixed order. For 16 float lanes all sums together by a transposing
// tree (15 additions); elsewhere one after the other.
template <int N> GS_HD void sum_lanes(const Vec* v, Real* out) {
#if defined(GS_SHUFFLE) && GS_VECTOR_BYTES == 64 && !defined(GS_DOUBLE)
    // lane 4k+j of the result is the sum of input 4j+k, so input 4j+k is fed with quantity 4k+j
    auto in = [&](int slot) { const int q = 4 * (slot % 4) + slot / 4; return q < N ? v[q] : Vec{}; };
    auto fold8 = [](Vec a, Vec b) {
        return GS_SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               GS_SHUFFLE(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    };
    auto fold4 = [](Vec a, Vec b) {
        return GS_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
               GS_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    };
    auto fold2 = [](Vec a, Vec b) {
        return GS_SHUFFLE(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
               GS_SHUFFLE(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    };
    auto fold1 = [](Vec a, Vec b) {
        return GS_SHUFFLE(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
               GS_SHUFFLE(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
    };
    auto quad = [&](int s) { return fold4(fold8(in(s), in(s + 1)), fold8(in(s + 2), in(s + 3))); };
    const Vec r = fold1(fold2(quad(0), quad(4)), fold2(quad(8), quad(12)));
    std::memcpy(out, &r, N * sizeof(Real));
#else
    for (int k = 0; k < N; k++) out[k] = hsum(v[k]);
#endif
}
