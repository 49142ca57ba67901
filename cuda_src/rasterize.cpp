// rasterize: front-to-back compositing of the tile lists, and its backward. CPU traversal: a job per tile; the loops over
// one tile are in rasterize_tile.h. A last pass adds each Gaussian's pair records in Gaussian-major order, so that no sum
// depends on threads.
#include "rasterize_tile.h"

namespace {
template <class F> void dispatch(bool a, bool b, bool c, F&& f) {
    auto third = [&](auto A, auto B) { c ? f(A, B, std::true_type{}) : f(A, B, std::false_type{}); };
    auto second = [&](auto A) { b ? third(A, std::true_type{}) : third(A, std::false_type{}); };
    a ? second(std::true_type{}) : second(std::false_type{});
}
}  // namespace

GS_KERNEL int rasterize_record_size() { return RECORD; }
GS_KERNEL int rasterize_pair_size() { return PAIR; }

// records [N,RECORD], 64-byte aligned. depths may be null (0). Rows of culled Gaussians are not written.
GS_KERNEL void rasterize_pack(int64_t N, const Real* means2d, const Real* conics, const Real* extents, const Real* opacities,
                              const Real* colors, const Real* depths, Real* records) {
    parallel_ranges(N, PIECE, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            if (!(extents[2 * i] > 0)) continue;
            const Real a = conics[3 * i], c = conics[3 * i + 2];
            // a needle's conic may round to an indefinite one; it would grow instead of fade along its axis
            const Real limit = std::sqrt(a * c) * (1 - 2 * std::numeric_limits<Real>::epsilon());
            const Real b = min_(max_(conics[3 * i + 1], -limit), limit);
            reinterpret_cast<Record*>(records)[i] = {
                means2d[2 * i], means2d[2 * i + 1], Real(-0.5 * LOG2E) * a, Real(-LOG2E) * b, Real(-0.5 * LOG2E) * c,
                std::log2(opacities[i]), {colors[3 * i], colors[3 * i + 1], colors[3 * i + 2]}, depths ? depths[i] : Real(0), {}};
        }
    });
}

// colors [H,W,3] with background; transmittances [H,W]; depths [H,W] or null; last_ids [H,W] (-1 = nobody).
GS_KERNEL void rasterize_fwd(const CameraArgs* camera, const RasterArgs* raster, const Real* background, const int64_t* tile_offsets,
                             const int32_t* flatten_ids, const uint8_t* rows, const Real* records, Real* colors,
                             Real* transmittances, Real* depths, int32_t* last_ids) {
    const CameraArgs c = *camera;
    const RasterArgs ra = *raster;
    const Lists lists{tile_offsets, flatten_ids, nullptr, rows, reinterpret_cast<const Record*>(records)};
    parallel_jobs(int64_t(c.tiles_x) * c.tiles_y, [&](int64_t tile) {
        const Tile t = tile_at(c, tile_offsets, tile);
        ForwardState s;
        dispatch(ra.smooth_cutoff, depths != nullptr, false, [&](auto smooth, auto with_depth, auto) {
            forward_tile<smooth.value, with_depth.value, false>(c, ra, t, lists, s);
        });
        const int in_x = std::min(TILE_SIZE, c.width - t.x), in_y = std::min(TILE_SIZE, c.height - t.y);
        for (int r = 0; r < in_y; r++) {
            const int64_t p = int64_t(t.y + r) * c.width + t.x;
            alignas(64) Real mixed[3 * TILE_SIZE], T[TILE_SIZE];
            alignas(64) int32_t last[TILE_SIZE];
            for (int x = 0; x < TILE_SIZE; x++) {
                T[x] = std::abs(s.T[r][x]);
                last[x] = int32_t(s.last[r][x]);
                for (int ch = 0; ch < 3; ch++) mixed[3 * x + ch] = s.C[ch][r][x] + T[x] * background[ch];
            }
            std::copy_n(mixed, 3 * in_x, colors + 3 * p);
            std::copy_n(T, in_x, transmittances + p);
            std::copy_n(last, in_x, last_ids + p);
            if (depths) std::copy_n(s.Z[r], in_x, depths + p);
        }
    });
}

// counts [H,W]: how many Gaussians blend into each pixel.
GS_KERNEL void rasterize_count(const CameraArgs* camera, const RasterArgs* raster, const int64_t* tile_offsets,
                               const int32_t* flatten_ids, const uint8_t* rows, const Real* records, int32_t* counts) {
    const CameraArgs c = *camera;
    const RasterArgs ra = *raster;
    const Lists lists{tile_offsets, flatten_ids, nullptr, rows, reinterpret_cast<const Record*>(records)};
    parallel_jobs(int64_t(c.tiles_x) * c.tiles_y, [&](int64_t tile) {
        const Tile t = tile_at(c, tile_offsets, tile);
        ForwardState s;
        s.visited = 0;
        dispatch(ra.smooth_cutoff, false, false, [&](auto smooth, auto, auto) {
            forward_tile<smooth.value, false, true>(c, ra, t, lists, s);
        });
        for (int r = 0; r < std::min(TILE_SIZE, c.height - t.y); r++)
            for (int x = 0; x < std::min(TILE_SIZE, c.width - t.x); x++)
                counts[int64_t(t.y + r) * c.width + t.x + x] = int32_t(s.last[r][x]);
    });
}

// work [2]: rows of TILE_SIZE pixels that forward and backward visit; what benchmarks divide time by.
GS_KERNEL void rasterize_work(const CameraArgs* camera, const RasterArgs* raster, const int64_t* tile_offsets,
                              const int32_t* flatten_ids, const uint8_t* rows, const Real* records, const int32_t* last_ids,
                              int64_t* work) {
    const CameraArgs c = *camera;
    const Lists lists{tile_offsets, flatten_ids, nullptr, rows, reinterpret_cast<const Record*>(records)};
    work[0] = work[1] = 0;
    for (int64_t tile = 0; tile < int64_t(c.tiles_x) * c.tiles_y; tile++) {
        const Tile t = tile_at(c, tile_offsets, tile);
        ForwardState s;
        s.visited = 0;
        if (raster->smooth_cutoff) forward_tile<true, false, true>(c, *raster, t, lists, s);
        else forward_tile<false, false, true>(c, *raster, t, lists, s);
        work[0] += s.visited;
        for (int r = 0; r < std::min(TILE_SIZE, c.height - t.y); r++) {
            const int32_t* last = last_ids + int64_t(t.y + r) * c.width + t.x;
            const int64_t end = *std::max_element(last, last + std::min(TILE_SIZE, c.width - t.x));
            for (int64_t i = t.begin; i <= end; i++) work[1] += rows[2 * i] <= r && r < rows[2 * i + 1];
        }
    }
}

// pairs [M,PAIR]: every record is written. absolute: also the sums of absolute values.
GS_KERNEL void rasterize_bwd(const CameraArgs* camera, const RasterArgs* raster, const Real* background, const int64_t* tile_offsets,
                             const int32_t* flatten_ids, const int32_t* emit_ids, const uint8_t* rows, const Real* records,
                             const Real* transmittances, const int32_t* last_ids, const Real* v_colors,
                             const Real* v_transmittances, const Real* v_depths, int absolute, Real* pairs) {
    const CameraArgs c = *camera;
    const RasterArgs ra = *raster;
    const Lists lists{tile_offsets, flatten_ids, emit_ids, rows, reinterpret_cast<const Record*>(records)};
    parallel_jobs(int64_t(c.tiles_x) * c.tiles_y, [&](int64_t tile) {
        const Tile t = tile_at(c, tile_offsets, tile);
        if (t.begin == t.end) return;
        BackwardState s;
        const int64_t last = load_backward(c, t, background, transmittances, last_ids, {v_colors, v_transmittances, v_depths}, s);
        dispatch(ra.smooth_cutoff, v_depths != nullptr, absolute != 0, [&](auto smooth, auto with_depth, auto with_abs) {
            backward_tile<smooth.value, with_depth.value, with_abs.value>(ra, t, last, lists, s, pairs);
        });
    });
}

// Adds each Gaussian's pair records in order. v_depths and v_abs_means2d may be null. Culled Gaussians get zeros.
GS_KERNEL void rasterize_gather(int64_t N, const int64_t* emit_offsets, const Real* pairs, const Real* conics, const Real* opacities,
                                Real* v_means2d, Real* v_conics, Real* v_opacities, Real* v_colors, Real* v_depths,
                                Real* v_abs_means2d) {
    parallel_ranges(N, PIECE, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            Real q[PAIR] = {};
            for (int64_t e = emit_offsets[i]; e < emit_offsets[i + 1]; e++)
                for (int k = 0; k < PAIR; k++) q[k] += pairs[PAIR * e + k];
            const bool any = emit_offsets[i] < emit_offsets[i + 1];
            const Real a = conics[3 * i], b = conics[3 * i + 1], c = conics[3 * i + 2];
            v_means2d[2 * i] = a * q[1] + b * q[3];  // dpower/dmean = Q d
            v_means2d[2 * i + 1] = b * q[1] + c * q[3];
            v_conics[3 * i] = Real(-0.5) * q[2];     // dpower/d(a,b,c) = -(dx^2, 2 dx dy, dy^2)/2
            v_conics[3 * i + 1] = -q[4];
            v_conics[3 * i + 2] = Real(-0.5) * q[5];
            v_opacities[i] = any ? q[0] / opacities[i] : Real(0);
            for (int ch = 0; ch < 3; ch++) v_colors[3 * i + ch] = q[6 + ch];
            if (v_depths) v_depths[i] = q[9];
            if (v_abs_means2d)  // |Q d| was summed as log2(e) times itself
                for (int k = 0; k < 2; k++) v_abs_means2d[2 * i + k] = q[10 + k] * Real(1 / LOG2E);
        }
    });
}
