// How fast the inner loops can be: 64 Gaussians over one 16x16 tile, everything in L1, one core, no lists, no culling,
// no stopping rule. Prints JSON: Gaussian-pixel evaluations per second, forward and backward. Same vectors as the
// kernels (cuda_src/simd.h), but loops of its own, with the state in registers where that is faster.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "simd.h"

constexpr int COUNT = 64, SIDE = 16, VECTORS = SIDE / LANES;
struct Gaussian { float mx, my, A, B, C, lo, r, g, b; };

template <int ROWS> __attribute__((noinline)) void forward(const Gaussian* gaussians, float* T_, float* C_) {
    for (int v = 0; v < VECTORS; v++)
        for (int y = 0; y < SIDE; y += ROWS) {
            Vec T[ROWS], C[3][ROWS];
            for (int r = 0; r < ROWS; r++) T[r] = vsplat(1), C[0][r] = C[1][r] = C[2][r] = vsplat(0);
            const Vec columns = lane_index() + (float(v * LANES) + 0.5f);
            for (int i = 0; i < COUNT; i++) {
                const Gaussian& g = gaussians[i];
                const Vec dx = columns - g.mx, Ax = dx * g.A;
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; r++) {
                    const float dy = float(y + r) + 0.5f - g.my;
                    const Vec alpha = vmin(exp2_((Ax + g.B * dy) * dx + (g.C * dy * dy + g.lo)), vsplat(0.99f));
                    const Vec w = pick(alpha >= 1.0f / 255, alpha * T[r], vsplat(0));
                    T[r] -= w;
                    C[0][r] += w * g.r, C[1][r] += w * g.g, C[2][r] += w * g.b;
                }
            }
            for (int r = 0; r < ROWS; r++) {
                store(T_ + SIDE * (y + r) + v * LANES, T[r]);
                for (int ch = 0; ch < 3; ch++) store(C_ + SIDE * (SIDE * ch + y + r) + v * LANES, C[ch][r]);
            }
        }
}

__attribute__((noinline)) void backward(const Gaussian* gaussians, float* T_, float* S_, const float* g_, float* out) {
    const Vec zero = vsplat(0), one = vsplat(1);
    for (int i = 0; i < COUNT; i++) {
        const Gaussian& g = gaussians[i];
        Vec q[9] = {};
        for (int v = 0; v < VECTORS; v++) {
            const Vec dx = lane_index() + (float(v * LANES) + 0.5f - g.mx), Ax = dx * g.A;
            Vec a0 = zero, a3 = zero, a5 = zero;
            for (int y = 0; y < SIDE; y++) {
                const int at = SIDE * y + v * LANES;
                const float dy = float(y) + 0.5f - g.my;
                const Vec raw = exp2_((Ax + g.B * dy) * dx + (g.C * dy * dy + g.lo));
                const Vec clamped = vmin(raw, vsplat(0.99f)), alpha = pick(clamped >= 1.0f / 255, clamped, zero);
                const Vec T = load(T_ + at), w = alpha * T;
                store(T_ + at, T - w);
                const Vec g0 = load(g_ + at), g1 = load(g_ + 256 + at), g2 = load(g_ + 512 + at);
                q[6] += w * g0, q[7] += w * g1, q[8] += w * g2;
                const Vec dot = g0 * g.r + g1 * g.g + g2 * g.b, S = load(S_ + at) - w * dot;
                store(S_ + at, S);
                const Vec v_power = pick(raw < 0.99f, alpha * (T * dot - S * (one / (one - alpha))), zero);
                a0 += v_power, a3 += v_power * dy, a5 += v_power * (dy * dy);
            }
            q[0] += a0, q[1] += a0 * dx, q[2] += a0 * dx * dx, q[3] += a3, q[4] += a3 * dx, q[5] += a5;
        }
        sum_lanes<9>(q, out + 16 * i);
    }
}

template <class F> double rate(F&& f) {  // the best of many short runs: other programs can only slow it down
    using clock = std::chrono::steady_clock;
    double best = 1e9;
    for (int k = 0; k < 60; k++) {
        const auto start = clock::now();
        for (int j = 0; j < 100; j++) f();
        best = std::min(best, std::chrono::duration<double>(clock::now() - start).count() / 100);
    }
    return COUNT * SIDE * SIDE / best;
}

int main() {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> u(0, 1);
    std::vector<Gaussian> gaussians(COUNT);
    for (Gaussian& g : gaussians) {
        const float sx = 2 + 4 * u(random), sy = 2 + 4 * u(random), rho = 0.8f * (u(random) - 0.5f), d = 1 - rho * rho;
        const float a = 1 / (sx * sx * d), b = -rho / (sx * sy * d), c = 1 / (sy * sy * d), log2e = 1.442695f;
        g = {16 * u(random), 16 * u(random), -0.5f * log2e * a, -log2e * b, -0.5f * log2e * c, std::log2(0.02f + 0.2f * u(random)),
             u(random), u(random), u(random)};
    }
    alignas(64) static float T[256], C[768], S[256], g[768], out[16 * COUNT];
    for (float& x : g) x = u(random) - 0.5f;
    const double fwd = std::max({rate([&] { forward<1>(gaussians.data(), T, C); }), rate([&] { forward<2>(gaussians.data(), T, C); }),
                                 rate([&] { forward<4>(gaussians.data(), T, C); })});
    const double bwd = rate([&] {
        std::fill_n(T, 256, 1.0f);
        for (int i = 0; i < 256; i++) S[i] = g[i] * C[i] + g[256 + i] * C[256 + i] + g[512 + i] * C[512 + i];
        backward(gaussians.data(), T, S, g, out);
    });
    std::printf("{\"forward\": %.4e, \"backward\": %.4e}\n", fwd, bwd);
}
