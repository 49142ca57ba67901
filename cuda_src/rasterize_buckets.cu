// rasterize, backward over Gaussians: a warp a bucket of 32 neighbours of a tile's list, a lane a Gaussian, pixels pass
// from lane to lane. Source: Mallick et al. 2024 (Taming 3DGS).
//
// Each lane sums its Gaussian's gradient over the tile's pixels in registers, so that there is one atomic addition per
// number, tile and Gaussian instead of one per warp of pixels. What a bucket needs to begin is each pixel's state behind it.
// The states are rebuilt by a kernel of their own when backward begins, so that forward keeps nothing and, the picture's
// cotangents being known by then, colour and depth so far are one number (PixelState::behind): 2 Reals a pixel, not 5.
#include "splat.h"

#define PIXELS (TILE_SIZE * TILE_SIZE)
#define BUCKET WARP                  // render/backends/signatures.py counts on it
#define WARPS 4                      // buckets a block, independent of each other
#define RING (2 * WARP)              // pixels of a tile on the way through a warp: it is behind by up to 31

static __device__ __forceinline__ bool blends(const RasterArgs& ra, const SplatRecord& s, Real dx, Real dy, Real& raw, Alpha<Real>& alpha) {
    const Real p = splat_exponent(s, dx, dy);
    raw = exp2(p);
    alpha = splat_alpha(ra, raw);
    return !(p > s.lo) && alpha.value > 0;  // p > lo: a needle's conic, indefinite by rounding
}

// A block a tile, a thread a pixel. bucket_offsets [T+1]: exclusive running sum of ceil(length of the tile's list / 32).
// states [bucket, (T, behind), pixel]: of pixels whose last contributor lies in or behind the bucket; others stay unset.
// bucket_tiles: the bucket's tile, -1 where no pixel reaches the bucket.
extern "C" __global__ void rasterize_buckets_states(const CameraArgs c, const RasterArgs ra, const Real* background,
                                                    const long long* tile_offsets, const int* flatten_ids, const Real* means2d,
                                                    const Real* conics, const Real* opacities, const Real* colors,
                                                    const Real* depths, const long long* bucket_offsets, const Real* transmittances,
                                                    const int* last_ids, const Real* v_image, const Real* v_transmittances,
                                                    const Real* v_depth_image, int* bucket_tiles, Real* states) {
    __shared__ SplatRecord batch[PIXELS];
    __shared__ int block_last;
    const int tile = blockIdx.x, rank = threadIdx.x;
    const int px = (tile % c.tiles_x) * TILE_SIZE + rank % TILE_SIZE, py = (tile / c.tiles_x) * TILE_SIZE + rank / TILE_SIZE;
    const bool inside = px < c.width && py < c.height;
    const long long pixel = inside ? (long long)py * c.width + px : 0, bucket0 = bucket_offsets[tile];
    const int begin = int(tile_offsets[tile]), last = inside ? last_ids[pixel] : -1;
    PixelPull pull = {};
    PixelState state = {};
    if (inside) {
        pull = load_pull(pixel, v_image, v_depth_image);
        state = last_state(transmittances[pixel], pull, background, v_transmittances ? v_transmittances[pixel] : Real(0));
    }
    if (rank == 0) block_last = -1;
    __syncthreads();
    atomicMax(&block_last, last);
    __syncthreads();
    const int rear = block_last, buckets = int(bucket_offsets[tile + 1] - bucket0);
    for (int b = rank; b < buckets; b += PIXELS) bucket_tiles[bucket0 + b] = begin + b * BUCKET <= rear ? tile : -1;
    for (int stop = rear + 1; stop > begin; stop -= PIXELS) {  // batches of [start, stop), back to front
        const int start = stop - PIXELS > begin ? stop - PIXELS : begin;
        __syncthreads();
        if (start + rank < stop) batch[rank] = load_splat(flatten_ids[start + rank], means2d, conics, opacities, colors, depths);
        __syncthreads();
        for (int i = stop - 1; i >= start; i--) {
            const int b = (i - begin) / BUCKET, place = (i - begin) % BUCKET;
            if ((place == BUCKET - 1 || i == rear) && last >= i - place) {
                Real* to = states + (bucket0 + b) * 2 * PIXELS + rank;
                to[0] = state.T;
                to[PIXELS] = state.behind;
            }
            const SplatRecord& s = batch[i - start];
            Real raw, w;
            Alpha<Real> alpha;
            if (i <= last && blends(ra, s, px + Real(0.5) - s.mx, py + Real(0.5) - s.my, raw, alpha))
                pass_splat(s, pull, alpha.value, state, w);
        }
    }
}

// What the lanes of a warp read of the pixels they are at, a column a pixel.
struct Ring {
    Real T[RING], behind[RING], g[3][RING], gz[RING];
    int last[RING];
};
static __device__ __forceinline__ void fetch_pixel(const CameraArgs& c, int tile, int rank, int first, const Real* states,
                                                   const int* last_ids, const Real* v_image, const Real* v_depth_image, Ring& ring) {
    const int px = (tile % c.tiles_x) * TILE_SIZE + rank % TILE_SIZE, py = (tile / c.tiles_x) * TILE_SIZE + rank / TILE_SIZE;
    const bool inside = px < c.width && py < c.height;
    const long long pixel = inside ? (long long)py * c.width + px : 0;
    const int last = inside ? last_ids[pixel] : -1, slot = rank % RING;
    const bool reached = last >= first;
    ring.last[slot] = last;
    ring.T[slot] = reached ? states[rank] : Real(1);
    ring.behind[slot] = reached ? states[PIXELS + rank] : Real(0);
    PixelPull pull = {};
    if (reached) pull = load_pull(pixel, v_image, v_depth_image);
    for (int ch = 0; ch < 3; ch++) ring.g[ch][slot] = pull.g[ch];
    ring.gz[slot] = pull.gz;
}

// WARPS warps a block, a bucket each. Lane 0 holds the bucket's last Gaussian: pixels walk back to front. Gradients are added
// to zeroed arrays; v_depth_image (with v_depths) and v_abs_means2d may be null.
extern "C" __global__ void rasterize_buckets_bwd(const CameraArgs c, const RasterArgs ra, const long long* tile_offsets,
                                                 const int* flatten_ids, const Real* means2d, const Real* conics,
                                                 const Real* opacities, const Real* colors, const Real* depths,
                                                 const long long* bucket_offsets, const int* bucket_tiles, const Real* states,
                                                 const int* last_ids, const Real* v_image, const Real* v_depth_image,
                                                 Real* v_means2d, Real* v_conics, Real* v_opacities, Real* v_colors, Real* v_depths,
                                                 Real* v_abs_means2d) {
    __shared__ Ring rings[WARPS];
    const int lane = threadIdx.x % WARP;
    Ring& ring = rings[threadIdx.x / WARP];
    const long long bucket = (long long)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (bucket >= bucket_offsets[c.tiles_x * c.tiles_y]) return;  // the grid goes by an upper bound
    const int tile = bucket_tiles[bucket];
    if (tile < 0) return;
    const int first = int(tile_offsets[tile]) + int(bucket - bucket_offsets[tile]) * BUCKET, left = int(tile_offsets[tile + 1]) - first;
    const int count = left < BUCKET ? left : BUCKET, place = first + count - 1 - lane, id = lane < count ? flatten_ids[place] : -1;
    const int x0 = (tile % c.tiles_x) * TILE_SIZE, y0 = (tile / c.tiles_x) * TILE_SIZE;
    SplatRecord s = {};
    if (id >= 0) s = load_splat(id, means2d, conics, opacities, colors, depths);
    SplatGradient sum = {};
    PixelState state = {};
    bool received = false;
    for (int step = 0; step < PIXELS + count - 1; step++) {
        if (step % WARP == 0 && step < PIXELS) {
            __syncwarp();  // the columns to be overwritten have been read
            fetch_pixel(c, tile, step + lane, first, states + bucket * 2 * PIXELS, last_ids, v_image, v_depth_image, ring);
            __syncwarp();
        }
        state.T = __shfl_up_sync(0xffffffffu, state.T, 1);
        state.behind = __shfl_up_sync(0xffffffffu, state.behind, 1);
        const int rank = step - lane, slot = rank & (RING - 1);
        if (lane == 0) state = {ring.T[slot], ring.behind[slot]};
        if (id < 0 || rank < 0 || rank >= PIXELS || place > ring.last[slot]) continue;
        const Real dx = x0 + rank % TILE_SIZE + Real(0.5) - s.mx, dy = y0 + rank / TILE_SIZE + Real(0.5) - s.my;
        Real raw, w;
        Alpha<Real> alpha;
        if (!blends(ra, s, dx, dy, raw, alpha)) continue;
        const PixelPull pull = {{ring.g[0][slot], ring.g[1][slot], ring.g[2][slot]}, ring.gz[slot]};
        const Real v = pass_splat(s, pull, alpha.value, state, w) * alpha.ramp_slope * alpha_gradient(ra, raw);
        accumulate(sum, splat_gradient(s, pull, dx, dy, v, w));
        received = true;
    }
    const SplatGradients to = {v_means2d, v_conics, v_opacities, v_colors, v_depth_image ? v_depths : nullptr, v_abs_means2d};
    if (received) add_gradient(to, id, sum, opacities[id]);
}
