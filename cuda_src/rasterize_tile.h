// One tile, forward and backward: Gaussians in the outer loop, rows of TILE_SIZE pixels in the inner one (SIMD over the
// pixels of a row), pixel state in L1.
//
// Only the rows that binning found reached by the ellipse inside the tile are visited. The backward recomputes alpha from
// the end of the list, rebuilds T by division by (1 - alpha), and leaves one record per (tile, Gaussian) pair at its place
// in Gaussian-major order.
#pragma once
#include "kernels.h"
#include "math/blend.h"

namespace {
constexpr int VECTORS = TILE_SIZE / LANES > 0 ? TILE_SIZE / LANES : 1;  // vectors a row
static_assert(TILE_SIZE % LANES == 0, "a row of a tile must hold whole vectors");
constexpr int BATCH = 32;      // Gaussians between two checks whether anybody is still alive
constexpr int AHEAD = 12;      // records prefetched ahead of use
constexpr int PAIR = 12;       // Reals of a pair record: v, v dx, v dx^2, v dy, v dx dy, v dy^2, r, g, b, z, |x|, |y|

struct alignas(64) Record {    // what the loops need of a Gaussian, one or two cache lines
    Real mx, my;
    Real A, B, C, lo;          // base-2 exponent: lo + A dx^2 + B dx dy + C dy^2
    Real color[3], depth;
    Real unused[6];
};
constexpr int RECORD = sizeof(Record) / sizeof(Real);

struct Tile { int x, y; int64_t begin, end; };
GS_HD Tile tile_at(const CameraArgs& c, const int64_t* offsets, int64_t tile) {
    return {int(tile % c.tiles_x) * TILE_SIZE, int(tile / c.tiles_x) * TILE_SIZE, offsets[tile], offsets[tile + 1]};
}

struct Lists {                 // the tile lists, see binning.cpp
    const int64_t* offsets;
    const int32_t *ids, *emit_ids;
    const uint8_t* rows;       // [M,2] half-open
    const Record* records;
};

GS_HD unsigned row_bits(const uint8_t* rows, int64_t i) { return (1u << rows[2 * i + 1]) - (1u << rows[2 * i]); }

// One Gaussian over one tile: base-2 exponent at column dx and row r = (A dx + k1[r]) dx + k0[r].
struct alignas(64) RowTerms {
    Real k1[TILE_SIZE], k0[TILE_SIZE];
};
GS_HD void row_terms(const Record& g, int y, RowTerms& out) {
    for (int v = 0; v < VECTORS; v++) {
        const Vec dy = lane_index() + (Real(y + v * LANES) + Real(0.5) - g.my);
        store(&out.k1[v * LANES], dy * g.B);
        store(&out.k0[v * LANES], dy * dy * g.C + g.lo);
    }
}
GS_HD Vec columns(int x, int v) { return lane_index() + (Real(x + v * LANES) + Real(0.5)); }

struct alignas(64) ForwardState {
    Real T[TILE_SIZE][TILE_SIZE];  // transmittance; negative = stopped, magnitude kept
    Real C[3][TILE_SIZE][TILE_SIZE];
    Real Z[TILE_SIZE][TILE_SIZE];
    Int last[TILE_SIZE][TILE_SIZE];  // index of the last contributor, or how many there were
    int64_t visited;                 // rows, when counting
};

template <bool SMOOTH, bool DEPTH, bool COUNT>
GS_HD void blend_row(const RasterArgs& ra, const Record& g, Vec Ax, Vec dx, Real k1, Real k0, Mask index, ForwardState& s, int r,
                     int x) {
    const Vec zero = vsplat(0);
    const Vec raw = exp2_((Ax + k1) * dx + k0);
    const Vec alpha = alpha_rule<SMOOTH>(ra, raw).value;
    const Vec T = load(&s.T[r][x]);
    const Vec part = alpha * T, next = T - part;
    const Mask ok = next >= ra.transmittance_min;  // false where already stopped: next is negative there
    const Vec w = pick(ok, part, zero);
    store(&s.T[r][x], pick(ok, next, vnegative(T)));
    for (int ch = 0; ch < 3; ch++) store(&s.C[ch][r][x], load(&s.C[ch][r][x]) + w * g.color[ch]);
    if (DEPTH) store(&s.Z[r][x], load(&s.Z[r][x]) + w * g.depth);
    const Mask last = load_mask(&s.last[r][x]);
    store_mask(&s.last[r][x], pick(w > zero, COUNT ? last + 1 : index, last));
}

GS_HD unsigned alive_rows(const ForwardState& s) {
    unsigned alive = 0;
    for (int r = 0; r < TILE_SIZE; r++) {
        Vec most = load(s.T[r]);
        for (int v = 1; v < VECTORS; v++) most = vmax(most, load(&s.T[r][v * LANES]));
        if (any(most > vsplat(0))) alive |= 1u << r;
    }
    return alive;
}

template <bool SMOOTH, bool DEPTH, bool COUNT>
void forward_tile(const CameraArgs& c, const RasterArgs& rules, const Tile& t, const Lists& lists, ForwardState& s) {
    const RasterArgs ra = rules;  // a copy that no store can alias stays in registers
    const int in_x = std::min(TILE_SIZE, c.width - t.x), in_y = std::min(TILE_SIZE, c.height - t.y);
    for (int r = 0; r < TILE_SIZE; r++)
        for (int x = 0; x < TILE_SIZE; x += LANES) {
            const Vec column = lane_index() + Real(x), limit = vsplat(Real(r < in_y ? in_x : 0));
            store(&s.T[r][x], pick(column < limit, vsplat(1), vsplat(-1)));  // pixels beyond the image are born stopped
            for (int ch = 0; ch < 3; ch++) store(&s.C[ch][r][x], vsplat(0));
            if (DEPTH) store(&s.Z[r][x], vsplat(0));
            store_mask(&s.last[r][x], Mask{} + Int(COUNT ? 0 : -1));
        }
    for (int64_t batch = t.begin; batch < t.end; batch += BATCH) {
        const unsigned alive = alive_rows(s);
        if (!alive) break;
        for (int64_t i = batch, end = std::min(t.end, batch + BATCH); i < end; i++) {
            __builtin_prefetch(&lists.records[lists.ids[std::min(i + AHEAD, t.end - 1)]]);
            const Record g = lists.records[lists.ids[i]];
            const unsigned rows = row_bits(lists.rows, i) & alive;
            if (COUNT) s.visited += __builtin_popcount(rows);
            RowTerms terms;
            row_terms(g, t.y, terms);
            const Mask index = Mask{} + Int(i);
            for (int v = 0; v < VECTORS; v++) {
                const Vec dx = columns(t.x, v) - g.mx, Ax = dx * g.A;
                for (unsigned left = rows; left; left &= left - 1) {
                    const int r = __builtin_ctz(left);
                    blend_row<SMOOTH, DEPTH, COUNT>(ra, g, Ax, dx, terms.k1[r], terms.k0[r], index, s, r, v * LANES);
                }
            }
        }
    }
}

struct alignas(64) BackwardState {
    Real T[TILE_SIZE][TILE_SIZE];      // transmittance behind the current Gaussian
    Real behind[TILE_SIZE][TILE_SIZE]; // sum over those behind of w (g.c) + T_N (g.background + v_T)
    Real g[3][TILE_SIZE][TILE_SIZE];   // dL/dcolor
    Real gz[TILE_SIZE][TILE_SIZE];     // dL/ddepth
    Int last[TILE_SIZE][TILE_SIZE];
    int64_t row_last[TILE_SIZE];
};
struct Cotangents { const Real *v_colors, *v_transmittances, *v_depths; };  // the last two may be null

// CHANNELS interleaved planes of a tile's row to separate ones; zero beyond the image.
template <int CHANNELS, class T> GS_HD void split_row(const T* image, int64_t pixel, int inside, T fill, T* const out[CHANNELS]) {
    alignas(64) T padded[CHANNELS * TILE_SIZE];
    const T* row = image + CHANNELS * pixel;
    if (inside < TILE_SIZE) {
        std::fill_n(padded, CHANNELS * TILE_SIZE, fill);
        std::copy_n(row, CHANNELS * inside, padded);
        row = padded;
    }
    for (int x = 0; x < TILE_SIZE; x++)
        for (int ch = 0; ch < CHANNELS; ch++) out[ch][x] = row[CHANNELS * x + ch];
}

int64_t load_backward(const CameraArgs& c, const Tile& t, const Real* background, const Real* transmittances, const int32_t* last_ids,
                      const Cotangents& v, BackwardState& s) {
    int64_t tile_last = -1;
    const int in_x = std::min(TILE_SIZE, c.width - t.x), in_y = std::min(TILE_SIZE, c.height - t.y);
    for (int r = 0; r < TILE_SIZE; r++) {
        const int64_t pixel = int64_t(t.y + r) * c.width + t.x;
        const int inside = r < in_y ? in_x : 0;
        alignas(64) Real v_T[TILE_SIZE] = {};
        alignas(64) int32_t last[TILE_SIZE];
        Real* const g[3] = {s.g[0][r], s.g[1][r], s.g[2][r]};
        Real *const T[1] = {s.T[r]}, *const vt[1] = {v_T}, *const gz[1] = {s.gz[r]};
        int32_t* const li[1] = {last};
        split_row<3>(v.v_colors, pixel, inside, Real(0), g);
        split_row<1>(transmittances, pixel, inside, Real(1), T);
        split_row<1>(last_ids, pixel, inside, int32_t(-1), li);
        if (v.v_transmittances) split_row<1>(v.v_transmittances, pixel, inside, Real(0), vt);
        if (v.v_depths) split_row<1>(v.v_depths, pixel, inside, Real(0), gz);
        int32_t most = -1;
        for (int x = 0; x < TILE_SIZE; x++) {
            s.behind[r][x] = s.T[r][x] * (s.g[0][r][x] * background[0] + s.g[1][r][x] * background[1] + s.g[2][r][x] * background[2] + v_T[x]);
            s.last[r][x] = last[x];
            most = std::max(most, last[x]);
        }
        s.row_last[r] = most;
        tile_last = std::max(tile_last, s.row_last[r]);
    }
    return tile_last;
}

template <bool DEPTH, bool ABS> struct Sums {  // over the rows of one column of vectors
    Vec v{}, v_dy{}, v_dy2{}, color[3] = {}, z{}, abs_x{}, abs_y{};
};

template <bool SMOOTH, bool DEPTH, bool ABS>
GS_HD void unblend_row(const RasterArgs& ra, const Record& g, Vec Ax, Vec dx, Real dy, Real k1, Real k0, Mask index,
                       BackwardState& s, int r, int x, Sums<DEPTH, ABS>& sum) {
    const Vec zero = vsplat(0), one = vsplat(1);
    const Vec raw = exp2_((Ax + k1) * dx + k0);
    const Alpha<Vec> rule = alpha_rule<SMOOTH>(ra, raw);
    const Vec alpha = pick(index <= load_mask(&s.last[r][x]), rule.value, zero);
    const Vec rcp = one / (one - alpha);
    const Vec T = load(&s.T[r][x]) * rcp;
    store(&s.T[r][x], T);
    const Vec w = alpha * T;
    const Vec g0 = load(&s.g[0][r][x]), g1 = load(&s.g[1][r][x]), g2 = load(&s.g[2][r][x]);
    sum.color[0] += w * g0;
    sum.color[1] += w * g1;
    sum.color[2] += w * g2;
    Vec dot = g0 * g.color[0] + g1 * g.color[1] + g2 * g.color[2];
    if (DEPTH) {
        const Vec gz = load(&s.gz[r][x]);
        sum.z += w * gz;
        dot += gz * g.depth;
    }
    const Vec behind = load(&s.behind[r][x]);
    store(&s.behind[r][x], behind + w * dot);
    Vec v_alpha = T * dot - behind * rcp;  // own colour, minus what it hides
    if (SMOOTH) v_alpha *= rule.ramp_slope;
    const Vec v = pick(alpha > zero, v_alpha * alpha_gradient(ra, raw), zero);  // dL/dpower
    sum.v += v;
    sum.v_dy += v * dy;
    sum.v_dy2 += v * (dy * dy);
    if (ABS) {  // per pixel |dL/dmean2d|, with the conic taken back from base 2 later
        const Real two = 2;
        sum.abs_x += vabs(v * (two * Ax + k1));
        sum.abs_y += vabs(v * (dx * g.B + two * g.C * dy));
    }
}

template <bool SMOOTH, bool DEPTH, bool ABS>
GS_HD void unblend_gaussian(const RasterArgs& ra, const Record& g, const Tile& t, unsigned rows, int64_t i, BackwardState& s,
                            Real* out) {
    Vec q[PAIR] = {};
    RowTerms terms;
    row_terms(g, t.y, terms);
    const Mask index = Mask{} + Int(i);
    for (int v = 0; v < VECTORS; v++) {
        const Vec dx = columns(t.x, v) - g.mx, Ax = dx * g.A;
        Sums<DEPTH, ABS> sum;
        for (unsigned left = rows; left; left &= left - 1) {
            const int r = __builtin_ctz(left);
            unblend_row<SMOOTH, DEPTH, ABS>(ra, g, Ax, dx, t.y + r + Real(0.5) - g.my, terms.k1[r], terms.k0[r], index, s, r,
                                            v * LANES, sum);
        }
        const Vec v_dx = sum.v * dx;  // dx is the same in every row of the column, so it leaves the sums
        q[0] += sum.v; q[1] += v_dx; q[2] += v_dx * dx;
        q[3] += sum.v_dy; q[4] += sum.v_dy * dx; q[5] += sum.v_dy2;
        for (int ch = 0; ch < 3; ch++) q[6 + ch] += sum.color[ch];
        if (DEPTH) q[9] += sum.z;
        if (ABS) { q[10] += sum.abs_x; q[11] += sum.abs_y; }
    }
    sum_lanes<ABS ? 12 : DEPTH ? 10 : 9>(q, out);
}

template <bool SMOOTH, bool DEPTH, bool ABS>
void backward_tile(const RasterArgs& rules, const Tile& t, int64_t tile_last, const Lists& lists, BackwardState& s, Real* pairs) {
    const RasterArgs ra = rules;
    // tile_last is -1 where no pixel of the tile has a contributor; other tiles' records are not ours to clear
    for (int64_t i = t.end - 1; i > std::max(tile_last, t.begin - 1); i--) std::fill_n(pairs + PAIR * int64_t(lists.emit_ids[i]), PAIR, Real(0));
    unsigned live = 0;            // rows whose last contributor has been reached
    int64_t next = tile_last;     // where the next row comes to life
    for (int64_t i = tile_last; i >= t.begin; i--) {
        if (i <= next) {
            next = -1;
            for (int r = 0; r < TILE_SIZE; r++)
                if (i <= s.row_last[r]) live |= 1u << r; else next = std::max(next, s.row_last[r]);
        }
        const int64_t ahead = std::max(i - AHEAD, t.begin);
        __builtin_prefetch(&lists.records[lists.ids[ahead]]);
        __builtin_prefetch(pairs + PAIR * int64_t(lists.emit_ids[ahead]), 1);
        const Record g = lists.records[lists.ids[i]];
        Real out[16] = {};
        unblend_gaussian<SMOOTH, DEPTH, ABS>(ra, g, t, row_bits(lists.rows, i) & live, i, s, out);
        std::copy_n(out, PAIR, pairs + PAIR * int64_t(lists.emit_ids[i]));
    }
}
}  // namespace
