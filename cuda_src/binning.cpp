// binning: which Gaussians may touch which tile, front to back. One stable depth sort over Gaussians, then a counting
// sort of (tile, Gaussian) pairs: emission in depth order makes each tile's list depth-ordered without sorting pairs.
//
// Work is cut into CHUNKS pieces of the depth order whatever the number of threads, so the result never depends on it.
#include <cmath>
#include <limits>

#include "kernels.h"
#include "math/ellipse.h"

namespace {
constexpr int CHUNKS = 16;

#ifdef GS_DOUBLE
typedef uint64_t Key;
#else
typedef uint32_t Key;
#endif
GS_HD Key sortable(Real depth) {  // order-preserving bits, negative depths included
    Key k;
    std::memcpy(&k, &depth, sizeof k);
    const Key sign = Key(1) << (8 * sizeof(Key) - 1);
    return k & sign ? ~k : k | sign;
}

struct TileBox { int x0, x1, y0, y1; };  // half-open
GS_HD TileBox tile_box(const CameraArgs& c, const Real* mean, const Real* extent) {
    const Real inv = Real(1) / TILE_SIZE;
    auto clampi = [](Real v, int hi) { return v < 0 ? 0 : v > Real(hi) ? hi : int(v); };
    return {clampi((mean[0] - extent[0]) * inv, c.tiles_x), clampi(floor_((mean[0] + extent[0]) * inv) + 1, c.tiles_x),
            clampi((mean[1] - extent[1]) * inv, c.tiles_y), clampi(floor_((mean[1] + extent[1]) * inv) + 1, c.tiles_y)};
}

// visit(ty, tx0, tx1) for each row of tiles whose pixel centres the ellipse reaches
template <class F>
GS_HD void tile_spans(const CameraArgs& c, const RasterArgs& ra, const Real* mean, const Real* conic, const Real* extent,
                      Real opacity, F&& visit) {
    const TileBox box = tile_box(c, mean, extent);
    const Real level = Real(2) * std::log(opacity / ra.cutoff) + ra.footprint_margin;
    const Spans s = make_spans(conic[0], conic[1], conic[2], level, extent[0], extent[1]);
    const Real pad = 2 * std::numeric_limits<Real>::epsilon() * (std::abs(mean[0]) + c.width);  // rounding of positions
    for (int ty = box.y0; ty < box.y1; ty++) {
        const Real lo = ty * TILE_SIZE + Real(0.5), hi = min_(Real((ty + 1) * TILE_SIZE), Real(c.height)) - Real(0.5);
        Real left, right;
        if (!span_in_band(s, extent[1], lo - mean[1] - pad, hi - mean[1] + pad, left, right)) continue;
        left += mean[0] - pad;
        right += mean[0] + pad;
        if (left > Real(c.width) - Real(0.5) || right < Real(0.5)) continue;
        const Real inv = Real(1) / TILE_SIZE;
        const int tx0 = int(min_(max_(ceil_((left - TILE_SIZE + Real(0.5)) * inv), Real(box.x0)), Real(c.tiles_x - 1)));
        const int tx1 = int(min_(floor_((right - Real(0.5)) * inv) + 1, Real(box.x1)));
        if (tx0 < tx1) visit(ty, tx0, tx1);
    }
}
GS_HD int64_t chunk_begin(int64_t n, int chunk) { return n * chunk / CHUNKS; }
}  // namespace

GS_KERNEL int binning_chunks() { return CHUNKS; }

// order [N]: ids of the visible Gaussians by depth, ties by index; scratch [N] as large. bounds [CHUNKS+1]: running sum
// of the tiles of their boxes, an upper bound of the pairs that each chunk will emit. Returns the number visible.
GS_KERNEL int64_t binning_order(const CameraArgs* camera, int64_t N, const Real* means2d, const Real* depths, const Real* extents,
                                int32_t* order, int32_t* scratch, int64_t* bounds) {
    int64_t V = 0;
    for (int64_t i = 0; i < N; i++)
        if (extents[2 * i] > 0) order[V++] = int32_t(i);
    std::vector<Key> keys(V), other(V);
    for (int64_t i = 0; i < V; i++) keys[i] = sortable(depths[order[i]]);
    constexpr int BITS = 11, BUCKETS = 1 << BITS;
    int32_t *from = order, *to = scratch;
    for (int shift = 0; shift < int(8 * sizeof(Key)); shift += BITS) {  // LSD radix sort: stable
        int64_t start[BUCKETS] = {};
        for (int64_t i = 0; i < V; i++) start[(keys[i] >> shift) & (BUCKETS - 1)]++;
        int64_t sum = 0;
        for (int64_t& s : start) { const int64_t count = s; s = sum; sum += count; }
        for (int64_t i = 0; i < V; i++) {
            const int64_t at = start[(keys[i] >> shift) & (BUCKETS - 1)]++;
            other[at] = keys[i];
            to[at] = from[i];
        }
        keys.swap(other);
        std::swap(from, to);
    }
    if (from != order) std::copy(from, from + V, order);
    const CameraArgs c = *camera;
    Pool::get().run(CHUNKS, [&](int64_t chunk) {
        int64_t sum = 0;
        for (int64_t i = chunk_begin(V, chunk); i < chunk_begin(V, chunk + 1); i++) {
            const TileBox box = tile_box(c, means2d + 2 * order[i], extents + 2 * order[i]);
            sum += int64_t(box.x1 - box.x0) * (box.y1 - box.y0);
        }
        bounds[chunk + 1] = sum;
    });
    bounds[0] = 0;
    for (int k = 0; k < CHUNKS; k++) bounds[k + 1] += bounds[k];
    return V;
}

// Exact test. pairs [bounds[CHUNKS]]: tile of each pair, Gaussian-major in depth order, each chunk from its bound on.
// emit_offsets [N+1]: running count by Gaussian index; tile_offsets [T+1]; cursors [CHUNKS*T]: where each chunk writes
// into each tile's list. Returns the number of pairs.
GS_KERNEL int64_t binning_count(const CameraArgs* camera, const RasterArgs* raster, int64_t N, int64_t V, const Real* means2d,
                                const Real* conics, const Real* extents, const Real* opacities, const int32_t* order,
                                const int64_t* bounds, int32_t* pairs, int64_t* emit_offsets, int64_t* tile_offsets,
                                int64_t* cursors) {
    const CameraArgs c = *camera;
    const RasterArgs ra = *raster;
    const int64_t T = int64_t(c.tiles_x) * c.tiles_y;
    std::fill(emit_offsets, emit_offsets + N + 1, 0);
    Pool::get().run(CHUNKS, [&](int64_t chunk) {
        int64_t* histogram = cursors + chunk * T;
        std::fill(histogram, histogram + T, 0);
        int32_t* out = pairs + bounds[chunk];
        for (int64_t i = chunk_begin(V, chunk); i < chunk_begin(V, chunk + 1); i++) {
            const int64_t id = order[i];
            int32_t* begin = out;
            tile_spans(c, ra, means2d + 2 * id, conics + 3 * id, extents + 2 * id, opacities[id], [&](int ty, int tx0, int tx1) {
                for (int tx = tx0; tx < tx1; tx++) {
                    const int32_t tile = ty * c.tiles_x + tx;
                    *out++ = tile;
                    histogram[tile]++;
                }
            });
            emit_offsets[id + 1] = out - begin;
        }
    });
    for (int64_t i = 0; i < N; i++) emit_offsets[i + 1] += emit_offsets[i];
    int64_t sum = 0;
    for (int64_t tile = 0; tile < T; tile++) {
        tile_offsets[tile] = sum;
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            int64_t& cursor = cursors[chunk * T + tile];
            const int64_t count = cursor;
            cursor = sum;
            sum += count;
        }
    }
    tile_offsets[T] = sum;
    return sum;
}

GS_KERNEL void binning_emit(int64_t T, int64_t V, const int32_t* order, const int64_t* bounds, const int32_t* pairs,
                            const int64_t* emit_offsets, int64_t* cursors, int32_t* flatten_ids, int32_t* emit_ids) {
    Pool::get().run(CHUNKS, [&](int64_t chunk) {
        int64_t* cursor = cursors + chunk * T;
        const int32_t* in = pairs + bounds[chunk];
        for (int64_t i = chunk_begin(V, chunk); i < chunk_begin(V, chunk + 1); i++) {
            const int32_t id = order[i];
            for (int64_t e = emit_offsets[id]; e < emit_offsets[id + 1]; e++) {
                const int64_t at = cursor[*in++]++;
                flatten_ids[at] = id;
                emit_ids[at] = int32_t(e);
            }
        }
    });
}
