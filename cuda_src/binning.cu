// binning: count and emit (tile, Gaussian) pairs; torch sorts the depths before and the tile keys after.
//
// Both kernels run over the depth order, so that a stable sort by tile alone leaves every list front to back.
#include "common.h"
#include "math/ellipse.h"

// counts [V]: tiles of the Gaussian at each place of the depth order.
extern "C" __global__ void binning_count(const CameraArgs c, const RasterArgs ra, Real epsilon, int V, const int* order,
                                         const Real* means2d, const Real* conics, const Real* extents, const Real* opacities,
                                         int* counts) {
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= V) return;
    const int id = order[place];
    int count = 0;
    if (extents[2 * id] > 0)
        touched_tiles(c, ra, epsilon, means2d + 2 * id, conics + 3 * id, extents + 2 * id, opacities[id], [&](int, int, int) { count++; });
    counts[place] = count;
}

// offsets [V]: exclusive running sum of counts [V]. tiles [M] (16-bit keys where they fit, by WIDE) and ids [M].
template <class Key>
static __device__ __forceinline__ void emit(const CameraArgs& c, const RasterArgs& ra, Real epsilon, int V, const int* order,
                                            const Real* means2d, const Real* conics, const Real* extents, const Real* opacities,
                                            const long long* offsets, const int* counts, Key* tiles, int* ids) {
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= V) return;
    const int id = order[place];
    if (!(extents[2 * id] > 0)) return;
    // Compiled apart, the two kernels could round a tile at the rim of an ellipse differently: the room is what was counted,
    // and what is left of it repeats a tile, which costs nothing that can be seen.
    long long at = offsets[place];
    const long long end = at + counts[place];
    int last = 0;
    touched_tiles(c, ra, epsilon, means2d + 2 * id, conics + 3 * id, extents + 2 * id, opacities[id], [&](int tile, int, int) {
        if (at >= end) return;
        tiles[at] = Key(last = tile);
        ids[at++] = id;
    });
    for (; at < end; at++) {
        tiles[at] = Key(last);
        ids[at] = id;
    }
}
extern "C" __global__ void binning_emit16(const CameraArgs c, const RasterArgs ra, Real epsilon, int V, const int* order,
                                          const Real* means2d, const Real* conics, const Real* extents, const Real* opacities,
                                          const long long* offsets, const int* counts, short* tiles, int* ids) {
    emit(c, ra, epsilon, V, order, means2d, conics, extents, opacities, offsets, counts, tiles, ids);
}
extern "C" __global__ void binning_emit32(const CameraArgs c, const RasterArgs ra, Real epsilon, int V, const int* order,
                                          const Real* means2d, const Real* conics, const Real* extents, const Real* opacities,
                                          const long long* offsets, const int* counts, int* tiles, int* ids) {
    emit(c, ra, epsilon, V, order, means2d, conics, extents, opacities, offsets, counts, tiles, ids);
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
