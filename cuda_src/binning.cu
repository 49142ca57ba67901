// binning: count and emit (tile, Gaussian) pairs; torch sorts the depths before and the tile keys after.
//
// Both kernels run over the depth order, so that a stable sort by tile alone leaves every list front to back.
#include "common.h"
#include "math/ellipse.h"

// visit(tile) for each tile whose pixel centres the ellipse reaches, row-major: the exact test of binning.cpp.
template <class F>
static __device__ __forceinline__ void touched_tiles(const CameraArgs& c, const RasterArgs& ra, Real epsilon, const Real* mean,
                                                     const Real* conic, const Real* extent, Real opacity, F&& visit) {
    const Real mx = mean[0], my = mean[1], ex = extent[0], ey = extent[1], half = Real(0.5), size = TILE_SIZE, zero = 0;
    const Real level = Real(2) * log(opacity / ra.cutoff) + ra.footprint_margin;
    const Spans across = make_spans(conic[0], conic[1], conic[2], level, ex, ey);
    const Real pad = 2 * epsilon * (fabs(mx) + fabs(my) + c.width + c.height);
    const int box_x0 = int(min_(max_((mx - ex) / size, zero), Real(c.tiles_x)));
    const int box_x1 = int(min_(max_(floor_((mx + ex) / size) + 1, zero), Real(c.tiles_x)));
    const int box_y0 = int(min_(max_((my - ey) / size, zero), Real(c.tiles_y)));
    const int box_y1 = int(min_(max_(floor_((my + ey) / size) + 1, zero), Real(c.tiles_y)));
    for (int ty = box_y0; ty < box_y1; ty++) {
        const Real y0 = ty * size + half, y1 = min_((ty + 1) * size, Real(c.height)) - half;
        Real left, right;
        if (!span_in_band(across, ey, y0 - my - pad, y1 - my + pad, left, right)) continue;
        left += mx - pad;
        right += mx + pad;
        if (left > Real(c.width) - half || right < half) continue;
        const int tx0 = int(min_(max_(ceil_((left - size + half) / size), Real(box_x0)), Real(c.tiles_x - 1)));
        const int tx1 = int(min_(floor_((right - half) / size) + 1, Real(box_x1)));
        for (int tx = tx0; tx < tx1; tx++) visit(ty * c.tiles_x + tx);
    }
}

// counts [V]: tiles of the Gaussian at each place of the depth order.
extern "C" __global__ void binning_count(const CameraArgs c, const RasterArgs ra, Real epsilon, int V, const int* order,
                                         const Real* means2d, const Real* conics, const Real* extents, const Real* opacities,
                                         int* counts) {
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= V) return;
    const int id = order[place];
    int count = 0;
    if (extents[2 * id] > 0)
        touched_tiles(c, ra, epsilon, means2d + 2 * id, conics + 3 * id, extents + 2 * id, opacities[id], [&](int) { count++; });
    counts[place] = count;
}

// offsets [V]: exclusive running sum of counts. tiles [M] (16-bit keys where they fit, by WIDE) and ids [M].
template <class Key>
static __device__ __forceinline__ void emit(const CameraArgs& c, const RasterArgs& ra, Real epsilon, int V, const int* order,
                                            const Real* means2d, const Real* conics, const Real* extents, const Real* opacities,
                                            const long long* offsets, Key* tiles, int* ids) {
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= V) return;
    const int id = order[place];
    if (!(extents[2 * id] > 0)) return;
    long long at = offsets[place];
    touched_tiles(c, ra, epsilon, means2d + 2 * id, conics + 3 * id, extents + 2 * id, opacities[id], [&](int tile) {
        tiles[at] = Key(tile);
        ids[at++] = id;
    });
}
extern "C" __global__ void binning_emit16(const CameraArgs c, const RasterArgs ra, Real epsilon, int V, const int* order,
                                          const Real* means2d, const Real* conics, const Real* extents, const Real* opacities,
                                          const long long* offsets, short* tiles, int* ids) {
    emit(c, ra, epsilon, V, order, means2d, conics, extents, opacities, offsets, tiles, ids);
}
extern "C" __global__ void binning_emit32(const CameraArgs c, const RasterArgs ra, Real epsilon, int V, const int* order,
                                          const Real* means2d, const Real* conics, const Real* extents, const Real* opacities,
                                          const long long* offsets, int* tiles, int* ids) {
    emit(c, ra, epsilon, V, order, means2d, conics, extents, opacities, offsets, tiles, ids);
}

// tile_offsets [T+1] from the sorted keys: thread i fills the offsets of all tiles that begin at pair i.
template <class Key>
static __device__ __forceinline__ void ranges(long long M, int T, const Key* tiles, long long* tile_offsets) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i > M) return;
    const int from = i == 0 ? 0 : int(tiles[i - 1]) + 1, to = i == M ? T : int(tiles[i]);
    for (int tile = from; tile <= to; tile++) tile_offsets[tile] = i;
}
extern "C" __global__ void binning_ranges16(long long M, int T, const short* tiles, long long* tile_offsets) {
    ranges(M, T, tiles, tile_offsets);
}
extern "C" __global__ void binning_ranges32(long long M, int T, const int* tiles, long long* tile_offsets) {
    ranges(M, T, tiles, tile_offsets);
}
