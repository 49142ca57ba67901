// rasterize: a block a tile, a thread a pixel; Gaussians pass through shared memory in batches of BATCH.
//
// The backward walks each tile's list from the block's last contributor to the front, rebuilds T by division by (1-alpha),
// and sums every Gaussian's gradient over a warp with shuffles before one lane adds it to memory atomically.
#include "common.h"
#include "math/blend.h"

#define BATCH 256                    // Gaussians in shared memory at a time: one per thread
#define WARP 32
static_assert(TILE_SIZE * TILE_SIZE == BATCH, "each thread loads one Gaussian of a batch");

struct SplatRecord {                 // what the pixel loop reads
    Real mx, my, a, b, c, lo;        // conic, log2(opacity)
    Real color[3], depth;
};
static __device__ __forceinline__ SplatRecord load_splat(int id, const Real* means2d, const Real* conics, const Real* opacities,
                                                         const Real* colors, const Real* depths) {
    return {means2d[2 * id], means2d[2 * id + 1], conics[3 * id], conics[3 * id + 1], conics[3 * id + 2], log2(opacities[id]),
            {colors[3 * id], colors[3 * id + 1], colors[3 * id + 2]}, depths ? depths[id] : Real(0)};
}
static __device__ __forceinline__ Real splat_exponent(const SplatRecord& g, Real dx, Real dy) {
    return g.lo - Real(0.5 * LOG2E) * (g.a * dx * dx + g.c * dy * dy) - Real(LOG2E) * g.b * dx * dy;
}
static __device__ __forceinline__ Alpha<Real> splat_alpha(const RasterArgs& ra, Real raw) {
    return ra.smooth_cutoff ? alpha_rule<true>(ra, raw) : alpha_rule<false>(ra, raw);
}

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

static __device__ __forceinline__ Real warp_sum(Real x) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) x += __shfl_down_sync(0xffffffffu, x, step);
    return x;
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
    Real T = inside ? transmittances[pixel] : Real(1), g[3] = {}, gz = 0, behind = 0;
    if (inside) {
        for (int ch = 0; ch < 3; ch++) g[ch] = v_image[3 * pixel + ch];
        if (v_depth_image) gz = v_depth_image[pixel];
        behind = T * (g[0] * background[0] + g[1] * background[1] + g[2] * background[2] + (v_transmittances ? v_transmittances[pixel] : Real(0)));
    }
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
            if (valid) {
                const Real rcp = Real(1) / (Real(1) - rule.value);
                T *= rcp;
                w = rule.value * T;
                const Real dot = g[0] * s.color[0] + g[1] * s.color[1] + g[2] * s.color[2] + gz * s.depth;
                v = (T * dot - behind * rcp) * rule.ramp_slope * alpha_gradient(ra, raw);
                behind += w * dot;
            }
            const Real vx = v * (s.a * dx + s.b * dy), vy = v * (s.b * dx + s.c * dy);
            const Real sums[9] = {warp_sum(vx), warp_sum(vy), warp_sum(Real(-0.5) * v * dx * dx), warp_sum(-v * dx * dy),
                                  warp_sum(Real(-0.5) * v * dy * dy), warp_sum(v), warp_sum(w * g[0]), warp_sum(w * g[1]), warp_sum(w * g[2])};
            const Real sum_z = v_depth_image ? warp_sum(w * gz) : Real(0);
            const Real abs_x = v_abs_means2d ? warp_sum(fabs(vx)) : Real(0), abs_y = v_abs_means2d ? warp_sum(fabs(vy)) : Real(0);
            if (rank % WARP == 0) {
                const int id = ids[k];
                atomicAdd(&v_means2d[2 * id], sums[0]);
                atomicAdd(&v_means2d[2 * id + 1], sums[1]);
                for (int j = 0; j < 3; j++) atomicAdd(&v_conics[3 * id + j], sums[2 + j]);
                atomicAdd(&v_opacities[id], sums[5] / opacities[id]);
                for (int ch = 0; ch < 3; ch++) atomicAdd(&v_colors[3 * id + ch], sums[6 + ch]);
                if (v_depth_image) atomicAdd(&v_depths[id], sum_z);
                if (v_abs_means2d) {
                    atomicAdd(&v_abs_means2d[2 * id], abs_x);
                    atomicAdd(&v_abs_means2d[2 * id + 1], abs_y);
                }
            }
        }
    }
}
