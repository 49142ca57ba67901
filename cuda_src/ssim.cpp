// ssim: the photometric loss, L1 and SSIM (Wang et al. 2004) in one pass, and its backward in one.
//
// Images are [H,W,3]; the 11-tap window (sigma 1.5, zero outside) is separable and steps by 3 in a row, so a row is one
// run of W*3 numbers. A job is a block of ROWS x COLUMNS numbers whose horizontal sums stay in L2. Sums over the image
// are added per block, then over blocks in order.
#include "kernels.h"
#include "math/ssim.h"

namespace {
constexpr int RADIUS = SSIM_WINDOW / 2, MARGIN = 3 * RADIUS;
constexpr int ROWS = 64, COLUMNS = 240, HALO = ROWS + 2 * RADIUS;
static_assert(COLUMNS % LANES == 0, "a block must hold whole vectors");

struct Window {
    Real w[RADIUS + 1];  // w[0] is the centre
    Window() {
        double sum = 0, g[RADIUS + 1];
        for (int t = 0; t <= RADIUS; t++) g[t] = std::exp(-double(t) * t / (2 * SSIM_SIGMA * SSIM_SIGMA)), sum += t ? 2 * g[t] : g[t];
        for (int t = 0; t <= RADIUS; t++) w[t] = Real(g[t] / sum);
    }
};

struct Grid {
    int H, W3, across, down;
    Grid(int height, int width) : H(height), W3(3 * width), across((W3 + COLUMNS - 1) / COLUMNS), down((H + ROWS - 1) / ROWS) {}
    int64_t blocks() const { return int64_t(across) * down; }
};

typedef Real Line[COLUMNS + 2 * MARGIN];
// One row of the block with its margins; zero outside the image.
GS_HD void read_line(const Real* image, const Grid& g, int y, int x0, Line& out) {
    if (y < 0 || y >= g.H) {
        std::fill_n(out, COLUMNS + 2 * MARGIN, Real(0));
        return;
    }
    const int lo = std::max(0, x0 - MARGIN), hi = std::min(g.W3, x0 + COLUMNS + MARGIN);
    std::fill_n(out, lo - (x0 - MARGIN), Real(0));
    std::copy(image + int64_t(y) * g.W3 + lo, image + int64_t(y) * g.W3 + hi, out + (lo - (x0 - MARGIN)));
    std::fill(out + (hi - (x0 - MARGIN)), out + COLUMNS + 2 * MARGIN, Real(0));
}
GS_HD Vec across_taps(const Window& k, const Real* at) {  // at = the centre tap
    Vec sum = load(at) * k.w[0];
    for (int t = 1; t <= RADIUS; t++) sum += (load(at - 3 * t) + load(at + 3 * t)) * k.w[t];
    return sum;
}
template <int M> using Strip = Real[M][HALO][COLUMNS];  // M maps after the horizontal pass
GS_HD Vec down_taps(const Window& k, const Real (*rows)[COLUMNS], int r, int x) {  // r = output row, centre at r + RADIUS
    Vec sum = load(&rows[r + RADIUS][x]) * k.w[0];
    for (int t = 1; t <= RADIUS; t++) sum += (load(&rows[r + RADIUS - t][x]) + load(&rows[r + RADIUS + t][x])) * k.w[t];
    return sum;
}
GS_HD Real lanes_sum(Vec v, int n) {
    Real s = 0;
    for (int l = 0; l < n; l++) s += v[l];
    return s;
}

// Not inside the kernels: what is thread_local in an exported function would be exported, which Windows refuses.
template <int N> Strip<N>& strip_of_this_thread() {
    thread_local Strip<N> strip;
    return strip;
}
}  // namespace

GS_KERNEL int64_t ssim_blocks(int height, int width) { return Grid(height, width).blocks(); }

// partials [blocks,3]: sums of |x-y|, (x-y)^2 and SSIM. maps [3,H,W,3] or null: dSSIM/d(mean x), d(E x^2), d(E xy).
GS_KERNEL void ssim_fwd(int height, int width, const Real* image, const Real* target, double* partials, Real* maps) {
    const Grid g(height, width);
    const Window k;
    const int64_t plane = int64_t(g.H) * g.W3;
    parallel_jobs(g.blocks(), [&](int64_t block) {
        const int x0 = int(block % g.across) * COLUMNS, y0 = int(block / g.across) * ROWS;
        auto& strip = strip_of_this_thread<5>();
        alignas(64) Line x, y, xx, yy, xy;
        double l1 = 0, mse = 0, ssim = 0;
        const int rows = std::min(ROWS, g.H - y0), columns = std::min(COLUMNS, g.W3 - x0);
        for (int r = 0; r < rows + 2 * RADIUS; r++) {
            read_line(image, g, y0 + r - RADIUS, x0, x);
            read_line(target, g, y0 + r - RADIUS, x0, y);
            for (int i = 0; i < COLUMNS + 2 * MARGIN; i++) xx[i] = x[i] * x[i], yy[i] = y[i] * y[i], xy[i] = x[i] * y[i];
            for (int i = 0; i < columns; i += LANES) {
                const Real* lines[5] = {x, y, xx, yy, xy};
                for (int m = 0; m < 5; m++) store(&strip[m][r][i], across_taps(k, lines[m] + MARGIN + i));
            }
            if (r < RADIUS || r >= rows + RADIUS) continue;
            Vec sum1{}, sum2{};
            for (int i = 0; i < columns; i += LANES) {  // beyond the image both are 0
                const Vec d = load(x + MARGIN + i) - load(y + MARGIN + i);
                if (columns - i < LANES) {
                    l1 += lanes_sum(vabs(d), columns - i);
                    mse += lanes_sum(d * d, columns - i);
                    continue;
                }
                sum1 += vabs(d);
                sum2 += d * d;
            }
            l1 += hsum(sum1);
            mse += hsum(sum2);
        }
        for (int r = 0; r < rows; r++) {
            Vec sum{};
            for (int i = 0; i < columns; i += LANES) {
                Vec mean[5];
                for (int m = 0; m < 5; m++) mean[m] = down_taps(k, strip[m], r, i);
                const SsimTerms<Vec> s = ssim_terms(mean[0], mean[1], mean[2], mean[3], mean[4]);
                const int n = std::min(LANES, columns - i);
                if (n == LANES) sum += s.value; else ssim += lanes_sum(s.value, n);
                if (!maps) continue;
                Real* out = maps + int64_t(y0 + r) * g.W3 + x0 + i;
                store(out, s.d_mean, n);
                store(out + plane, s.d_xx, n);
                store(out + 2 * plane, s.d_xy, n);
            }
            ssim += hsum(sum);
        }
        partials[3 * block] = l1;
        partials[3 * block + 1] = mse;
        partials[3 * block + 2] = ssim;
    });
}

// v_image = w_l1 sign(x-y) + w_mse 2 (x-y) + w_ssim dSSIM/dx; the window is symmetric, so the adjoint blurs the maps.
// maps may be null when w_ssim is 0.
GS_KERNEL void ssim_bwd(int height, int width, const Real* image, const Real* target, const Real* maps, double w_l1, double w_mse,
                        double w_ssim, Real* v_image) {
    const Grid g(height, width);
    const Window k;
    const int64_t plane = int64_t(g.H) * g.W3;
    const Vec l1 = vsplat(Real(w_l1)), mse = vsplat(Real(2 * w_mse)), ws = vsplat(Real(w_ssim)), zero = vsplat(0);
    const bool structural = maps && w_ssim != 0;
    parallel_jobs(g.blocks(), [&](int64_t block) {
        const int x0 = int(block % g.across) * COLUMNS, y0 = int(block / g.across) * ROWS;
        auto& strip = strip_of_this_thread<3>();
        alignas(64) Line line;
        const int rows = std::min(ROWS, g.H - y0), columns = std::min(COLUMNS, g.W3 - x0);
        for (int m = 0; structural && m < 3; m++)
            for (int r = 0; r < rows + 2 * RADIUS; r++) {
                read_line(maps + m * plane, g, y0 + r - RADIUS, x0, line);
                for (int i = 0; i < columns; i += LANES) store(&strip[m][r][i], across_taps(k, line + MARGIN + i));
            }
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < columns; i += LANES) {
                const int64_t at = int64_t(y0 + r) * g.W3 + x0 + i;
                const Vec x = load(image + at, columns - i), y = load(target + at, columns - i), d = x - y;
                Vec v = pick(d > zero, l1, pick(d < zero, -l1, zero)) + mse * d;
                if (structural)
                    v += ws * (down_taps(k, strip[0], r, i) + Real(2) * x * down_taps(k, strip[1], r, i) + y * down_taps(k, strip[2], r, i));
                store(v_image + at, v, columns - i);
            }
    });
}
