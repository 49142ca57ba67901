// rasterize: a block a tile, a thread a pixel; Gaussians pass through shared memory in batches of BATCH.
//
// The backward walks each tile's list from the block's last contributor to the front, rebuilds T by division by (1-alpha),
// and sums every Gaussian's gradient over a warp with shuffles before one lane adds it to memory atomically.
#include "splat.h"

#define BATCH 256                    // Gaussians in shared memory at a time: one per thread
static_assert(TILE_SIZE * TILE_SIZE == BATCH, "each thread loads one Gaussian of a batch");

// colors [H,W,3] with background; transmittances [H,W]; v_depth image or null; last_ids [H,W] (-1 = nobody).
extern "C" __global__ void rasterize_fwd(const CameraArgs c, const RasterArgs ra, const Real* background, const long long* tile_offsets,
                                         const int* flatten_ids, const Real* means2d, const Real* conics, const Real* opacities,
                                         const Real* colors, const Real* depths, Real* image, Real* transmittances, Real* depth_image,
                                         int* last_ids) {
    __shared__ SplatRecord batch[BATCH];
    const int tile = blockIdx.x, rank = threadIdx.x;
    const int px = (tile % c.tiles_x) * TILE_SIZE + rank % TILE_SIZE, py = (tile / c.tiles_x) * TILE_SIZE + rank / TILE_SIZE;
    const bool inside = px < c.width && py < c.height;
    const long long begin = tile_offsets[tile], end = tile_offsets[tile + 1];
    Real T = 1, rgb[3] = {}, z = 0;
    int last = -1;
    bool done = !inside;
    for (long long start = begin; start < end; start += BATCH) {
        if (__syncthreads_and(done)) break;
        if (start + rank < end) batch[rank] = load_splat(flatten_ids[start + rank], means2d, conics, opacities, colors, depths);
        __syncthreads();
        const int count = int(end - start < BATCH ? end - start : BATCH);
        for (int k = 0; k < count && !done; k++) {
            const SplatRecord& g = batch[k];
            const Real dx = px + Real(0.5) - g.mx, dy = py + Real(0.5) - g.my, p = splat_exponent(g, dx, dy);
            if (p > g.lo) continue;  // a needle's conic, indefinite by rounding
            const Real alpha = splat_alpha(ra, exp2(p)).value;
            if (!(alpha > 0)) continue;
            const Real next = T - alpha * T;
            if (next < ra.transmittance_min) {
                done = true;
                break;
            }
            const Real w = alpha * T;
            for (int ch = 0; ch < 3; ch++) rgb[ch] += w * g.color[ch];
            z += w * g.depth;
            T = next;
            last = int(start) + k;
        }
    }
    if (!inside) return;
    const long long pixel = (long long)py * c.width + px;
    for (int ch = 0; ch < 3; ch++) image[3 * pixel + ch] = rgb[ch] + T * background[ch];
    transmittances[pixel] = T;
    if (depth_image) depth_image[pixel] = z;
    last_ids[pixel] = last;
}

// counts [H,W]: how many Gaussians blend into each pixel. background, colors and depths are those of rasterize_fwd, unread.
extern "C" __global__ void rasterize_count(const CameraArgs c, const RasterArgs ra, const Real* background, const long long* tile_offsets,
                                           const int* flatten_ids, const Real* means2d, const Real* conics, const Real* opacities,
                                           const Real* colors, const Real* depths, int* counts) {
    const int tile = blockIdx.x, rank = threadIdx.x;
    const int px = (tile % c.tiles_x) * TILE_SIZE + rank % TILE_SIZE, py = (tile / c.tiles_x) * TILE_SIZE + rank / TILE_SIZE;
    if (px >= c.width || py >= c.height) return;
    Real T = 1;
    int count = 0;
    for (long long i = tile_offsets[tile]; i < tile_offsets[tile + 1]; i++) {
        const SplatRecord g = load_splat(flatten_ids[i], means2d, conics, opacities, colors, depths);
        const Real p = splat_exponent(g, px + Real(0.5) - g.mx, py + Real(0.5) - g.my);
        const Real alpha = p > g.lo ? Real(0) : splat_alpha(ra, exp2(p)).value;
        if (!(alpha > 0)) continue;
        if (T - alpha * T < ra.transmittance_min) break;
        T -= alpha * T;
        count++;
    }
    counts[(long long)py * c.width + px] = count;
    (void)background;
}

static __device__ __forceinline__ Real warp_sum(Real x) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) x += __shfl_down_sync(0xffffffffu, x, step);
    return x;
}
static __device__ __forceinline__ SplatGradient warp_sum(const SplatGradient& v, bool depth, bool absolute) {
    SplatGradient s = {};
    for (int j = 0; j < 2; j++) s.mean[j] = warp_sum(v.mean[j]);
    for (int j = 0; j < 3; j++) s.conic[j] = warp_sum(v.conic[j]);
    s.power = warp_sum(v.power);
    for (int j = 0; j < 3; j++) s.color[j] = warp_sum(v.color[j]);
    if (depth) s.depth = warp_sum(v.depth);
    for (int j = 0; absolute && j < 2; j++) s.abs_mean[j] = warp_sum(v.abs_mean[j]);
    return s;
}

// Gradients are added to zeroed arrays. v_transmittances, v_depth_image (with v_depths) and v_abs_means2d may be null.
extern "C" __global__ void rasterize_bwd(const CameraArgs c, const RasterArgs ra, const Real* background, const long long* tile_offsets,
                                         const int* flatten_ids, const Real* means2d, const Real* conics, const Real* opacities,
                                         const Real* colors, const Real* depths, const Real* transmittances, const int* last_ids,
                                         const Real* v_image, const Real* v_transmittances, const Real* v_depth_image, Real* v_means2d,
                                         Real* v_conics, Real* v_opacities, Real* v_colors, Real* v_depths, Real* v_abs_means2d) {
    __shared__ SplatRecord batch[BATCH];
    __shared__ int ids[BATCH];
    __shared__ int block_last;
    const int tile = blockIdx.x, rank = threadIdx.x;
    const int px = (tile % c.tiles_x) * TILE_SIZE + rank % TILE_SIZE, py = (tile / c.tiles_x) * TILE_SIZE + rank / TILE_SIZE;
    const bool inside = px < c.width && py < c.height;
    const long long pixel = inside ? (long long)py * c.width + px : 0, begin = tile_offsets[tile];
    const int last = inside ? last_ids[pixel] : -1;
    PixelPull pull = {};
    PixelState state = {};
    if (inside) {
        pull = load_pull(pixel, v_image, v_depth_image);
        state = last_state(transmittances[pixel], pull, background, v_transmittances ? v_transmittances[pixel] : Real(0));
    }
    const SplatGradients sums = {v_means2d, v_conics, v_opacities, v_colors, v_depth_image ? v_depths : nullptr, v_abs_means2d};
    if (rank == 0) block_last = -1;
    __syncthreads();
    atomicMax(&block_last, last);
    __syncthreads();
    for (long long stop = (long long)block_last + 1; stop > begin; stop -= BATCH) {  // batches of [start, stop), back to front
        const long long start = stop - BATCH > begin ? stop - BATCH : begin;
        const int count = int(stop - start);
        __syncthreads();
        if (rank < count) {
            ids[rank] = flatten_ids[start + rank];
            batch[rank] = load_splat(ids[rank], means2d, conics, opacities, colors, depths);
        }
        __syncthreads();
        for (int k = count - 1; k >= 0; k--) {
            const SplatRecord s = batch[k];
            const Real dx = px + Real(0.5) - s.mx, dy = py + Real(0.5) - s.my, p = splat_exponent(s, dx, dy);
            const Real raw = exp2(p);
            const Alpha<Real> rule = splat_alpha(ra, raw);
            const bool valid = start + k <= last && !(p > s.lo) && rule.value > 0;
            if (!__any_sync(0xffffffffu, valid)) continue;
            Real v = 0, w = 0;
            if (valid) v = pass_splat(s, pull, rule.value, state, w) * rule.ramp_slope * alpha_gradient(ra, raw);
            const SplatGradient sum = warp_sum(splat_gradient(s, pull, dx, dy, v, w), v_depth_image, v_abs_means2d);
            if (rank % WARP == 0) add_gradient(sums, ids[k], sum, opacities[ids[k]]);
        }
    }
}
