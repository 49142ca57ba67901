// binning: which Gaussians may touch which tile, front to back. One stable depth sort over Gaussians, then a counting
// sort of (tile, Gaussian) pairs: emission in depth order makes each tile's list depth-ordered without sorting pairs.
//
// The exact test runs over Gaussians in index order (their data lies in that order), the counting sort over the depth
// order. Both are cut into CHUNKS pieces whatever the number of threads, so the result never depends on it.
#include <cmath>
#include <limits>
#include <utility>

#include "kernels.h"
#include "math/ellipse.h"

namespace {
constexpr int CHUNKS = 16;

#ifdef GS_DOUBLE
typedef uint64_t Key;
#else
typedef uint32_t Key;
#endif
struct Item { Key key; int32_t id; };  // what the depth sort moves
GS_HD Key sortable(Real depth) {  // order-preserving bits, negative depths included
    Key k;
    std::memcpy(&k, &depth, sizeof k);
    const Key sign = Key(1) << (8 * sizeof(Key) - 1);
    return k & sign ? ~k : k | sign;
}

// Pieces of the index order are powers of two, so that an index names its piece by a shift.
GS_HD int piece_shift(int64_t N) {
    int shift = 0;
    while ((int64_t(CHUNKS) << shift) < N) shift++;
    return shift;
}
GS_HD int64_t depth_begin(int64_t V, int64_t chunk) { return V * chunk / CHUNKS; }
// Where the pairs of each index piece stand, less where they are emitted.
struct Shifts {
    int shift;
    int64_t by[CHUNKS];
    Shifts(int64_t N, const int64_t* bounds, const int64_t* emit_offsets) : shift(piece_shift(N)) {
        for (int64_t p = 0; p < CHUNKS; p++) by[p] = bounds[p] - emit_offsets[std::min(N, p << shift)];
    }
    int64_t operator()(int64_t id) const { return by[id >> shift]; }
};
// visit(id, first pair, end pair) in the depth order of one chunk, with the memory it will need on its way to the cache.
template <class F>
GS_HD void for_each_by_depth(int64_t V, int64_t chunk, const int32_t* order, const int64_t* emit_offsets, const Shifts& shifts,
                             const int32_t* pairs, F&& visit) {
    constexpr int FAR = 32, NEAR = 12;
    const int64_t end = depth_begin(V, chunk + 1);
    for (int64_t i = depth_begin(V, chunk); i < end; i++) {
        if (i + FAR < end) __builtin_prefetch(&emit_offsets[order[i + FAR]]);
        if (i + NEAR < end) {
            const int64_t id = order[i + NEAR];
            __builtin_prefetch(&pairs[emit_offsets[id] + shifts(id)]);
        }
        const int64_t id = order[i];
        visit(id, emit_offsets[id], emit_offsets[id + 1]);
    }
}
}  // namespace

GS_KERNEL int binning_chunks() { return CHUNKS; }

// order [N]: ids of the visible Gaussians by depth, ties by index. bounds [CHUNKS+1]: running sum of the tiles of their
// boxes over pieces of the index order, an upper bound of the pairs. Returns the number visible.
GS_KERNEL int64_t binning_order(const CameraArgs* camera, int64_t N, const Real* means2d, const Real* depths, const Real* extents,
                                int32_t* order, int64_t* bounds) {
    const CameraArgs c = *camera;
    const int shift = piece_shift(N);
    std::vector<Item> items(N), other(N);
    int64_t visible[CHUNKS];
    Pool::get().run(CHUNKS, [&](int64_t piece) {
        const int64_t begin = std::min(N, piece << shift), end = std::min(N, (piece + 1) << shift);
        int64_t sum = 0, at = begin;
        for (int64_t i = begin; i < end; i++) {
            if (!(extents[2 * i] > 0)) continue;
            const TileBox box = tile_box(c, means2d + 2 * i, extents + 2 * i);
            sum += int64_t(box.x1 - box.x0) * (box.y1 - box.y0);
            items[at++] = {sortable(depths[i]), int32_t(i)};
        }
        visible[piece] = at - begin;
        bounds[piece + 1] = sum;
    });
    bounds[0] = 0;
    int64_t V = 0;
    for (int64_t p = 0; p < CHUNKS; p++) {
        bounds[p + 1] += bounds[p];
        std::copy_n(items.begin() + std::min(N, p << shift), visible[p], items.begin() + V);  // never moves up
        V += visible[p];
    }
    constexpr int BITS = 11, BUCKETS = 1 << BITS, PARTS = 4;  // fewer, larger parts: each has a histogram to clear
    auto part = [V](int64_t p) { return V * p / PARTS; };
    std::vector<int32_t> start(PARTS * BUCKETS);
    for (int digit = 0; digit < int(8 * sizeof(Key)); digit += BITS) {  // LSD radix sort: stable
        Pool::get().run(PARTS, [&](int64_t p) {
            int32_t* count = &start[p * BUCKETS];
            std::fill_n(count, BUCKETS, 0);
            for (int64_t i = part(p); i < part(p + 1); i++) count[(items[i].key >> digit) & (BUCKETS - 1)]++;
        });
        int32_t sum = 0;
        for (int b = 0; b < BUCKETS; b++)
            for (int p = 0; p < PARTS; p++) sum += std::exchange(start[p * BUCKETS + b], sum);
        Pool::get().run(PARTS, [&](int64_t p) {
            int32_t* to = &start[p * BUCKETS];
            for (int64_t i = part(p); i < part(p + 1); i++) other[to[(items[i].key >> digit) & (BUCKETS - 1)]++] = items[i];
        });
        items.swap(other);
    }
    for (int64_t i = 0; i < V; i++) order[i] = items[i].id;
    return V;
}

// Exact test. pairs and rows [bounds[CHUNKS]]: tile and rows of each pair, Gaussian-major, each index piece from its bound
// on. emit_offsets [N+1]: running count; tile_offsets [T+1]; cursors [CHUNKS*T]: where each chunk of the depth order will
// write into each tile's list. Returns the number of pairs.
GS_KERNEL int64_t binning_count(const CameraArgs* camera, const RasterArgs* raster, int64_t N, int64_t V, const Real* means2d,
                                const Real* conics, const Real* extents, const Real* opacities, const int32_t* order,
                                const int64_t* bounds, int32_t* pairs, uint8_t* rows, int64_t* emit_offsets, int64_t* tile_offsets,
                                int64_t* cursors) {
    const CameraArgs c = *camera;
    const RasterArgs ra = *raster;
    const int64_t T = int64_t(c.tiles_x) * c.tiles_y;
    const int shift = piece_shift(N);
    Pool::get().run(CHUNKS, [&](int64_t piece) {
        int64_t out = bounds[piece];
        for (int64_t i = std::min(N, piece << shift), end = std::min(N, (piece + 1) << shift); i < end; i++) {
            const int64_t begin = out;
            if (extents[2 * i] > 0)
                touched_tiles(c, ra, std::numeric_limits<Real>::epsilon(), means2d + 2 * i, conics + 3 * i, extents + 2 * i, opacities[i], [&](int tile, int r0, int r1) {
                    rows[2 * out] = uint8_t(r0);
                    rows[2 * out + 1] = uint8_t(r1);
                    pairs[out++] = tile;
                });
            emit_offsets[i + 1] = out - begin;
        }
    });
    emit_offsets[0] = 0;
    for (int64_t i = 0; i < N; i++) emit_offsets[i + 1] += emit_offsets[i];
    const Shifts shifts(N, bounds, emit_offsets);
    Pool::get().run(CHUNKS, [&](int64_t chunk) {
        int64_t* histogram = cursors + chunk * T;
        std::fill(histogram, histogram + T, 0);
        for_each_by_depth(V, chunk, order, emit_offsets, shifts, pairs, [&](int64_t id, int64_t begin, int64_t end) {
            for (int64_t e = begin + shifts(id); e < end + shifts(id); e++) histogram[pairs[e]]++;
        });
    });
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

GS_KERNEL void binning_emit(int64_t T, int64_t N, int64_t V, const int32_t* order, const int64_t* bounds, const int32_t* pairs,
                            const uint8_t* rows, const int64_t* emit_offsets, int64_t* cursors, int32_t* flatten_ids,
                            int32_t* emit_ids, uint8_t* tile_rows) {
    const Shifts shifts(N, bounds, emit_offsets);
    Pool::get().run(CHUNKS, [&](int64_t chunk) {
        int64_t* cursor = cursors + chunk * T;
        for_each_by_depth(V, chunk, order, emit_offsets, shifts, pairs, [&](int64_t id, int64_t begin, int64_t end) {
            for (int64_t e = begin; e < end; e++) {
                const int64_t from = e + shifts(id), at = cursor[pairs[from]]++;
                flatten_ids[at] = int32_t(id);
                emit_ids[at] = int32_t(e);
                tile_rows[2 * at] = rows[2 * from];
                tile_rows[2 * at + 1] = rows[2 * from + 1];
            }
        });
    });
}
