// Where the ellipse {q <= level} lies: exact spans for tiles and rows. q(d) = a dx^2 + 2 b dx dy + c dy^2, d = x - mean.
#pragma once
#include "../common.h"

#ifdef __CUDACC__
GS_HD Real floor_(Real x) { return floor(x); }
GS_HD Real ceil_(Real x) { return ceil(x); }
GS_HD Real log_(Real x) { return log(x); }
#else
GS_HD Real floor_(Real x) { return std::floor(x); }
GS_HD Real ceil_(Real x) { return std::ceil(x); }
GS_HD Real log_(Real x) { return std::log(x); }
#endif

// The x-span of the ellipse within a band of y, or, with the roles of a and c (and of the extents) swapped, the y-span
// within a band of x. At a given dy the ellipse covers dx = -b/a dy +- sqrt(level/a) sqrt(1 - (dy/ey)^2): with the
// half-height ey instead of a c - b^2 nothing cancels. Its right edge is concave in dy and peaks at dy = -b/c ex, so
// over a band the peak, clamped into the band, gives the extreme (Eq. E1); the left edge mirrors it.
struct Spans {
    Real slope;      // -b/a
    Real reach;      // sqrt(level/a)
    Real inverse;    // 1/ey
    Real peak;       // dy of the rightmost point
};
// x-spans within bands of y (across) and y-spans within bands of x (down) of one ellipse.
GS_HD void make_spans(const Real conic[3], Real level, Real ex, Real ey, Spans& across, Spans& down) {
    const Real ra = Real(1) / conic[0], rc = Real(1) / conic[2], b = conic[1];
    across = {-b * ra, sqrt_(level * ra), Real(1) / ey, -b * rc * ex};
    down = {-b * rc, sqrt_(level * rc), Real(1) / ex, -b * ra * ey};
}
GS_HD Real half_width(const Spans& s, Real dy) {
    const Real t = dy * s.inverse;
    return s.reach * sqrt_(max_(Real(1) - t * t, Real(0)));
}
// false when the band misses the ellipse
GS_HD bool span_in_band(const Spans& s, Real ey, Real lo, Real hi, Real& left, Real& right) {
    if (lo > ey || hi < -ey) return false;
    lo = max_(lo, -ey);
    hi = min_(hi, ey);
    const Real r = min_(max_(s.peak, lo), hi), l = min_(max_(-s.peak, lo), hi);
    right = s.slope * r + half_width(s, r);
    left = s.slope * l - half_width(s, l);
    return true;
}

struct TileBox { int x0, x1, y0, y1; };  // half-open
GS_HD TileBox tile_box(const CameraArgs& c, const Real* mean, const Real* extent) {
    const Real inv = Real(1) / TILE_SIZE;
    const Real zero = 0, nx = c.tiles_x, ny = c.tiles_y;
    return {int(min_(max_((mean[0] - extent[0]) * inv, zero), nx)), int(min_(max_(floor_((mean[0] + extent[0]) * inv) + 1, zero), nx)),
            int(min_(max_((mean[1] - extent[1]) * inv, zero), ny)), int(min_(max_(floor_((mean[1] + extent[1]) * inv) + 1, zero), ny))};
}

// visit(tile, first row, end row) for each tile whose pixel centres the ellipse reaches, row-major; rows within the tile.
template <class F>
GS_HD void touched_tiles(const CameraArgs& c, const RasterArgs& ra, Real epsilon, const Real* mean, const Real* conic, const Real* extent,
                         Real opacity, F&& visit) {
    const TileBox box = tile_box(c, mean, extent);
    const Real level = Real(2) * log_(opacity / ra.cutoff) + ra.footprint_margin;
    const Real mx = mean[0], my = mean[1], ex = extent[0], ey = extent[1], half = Real(0.5), size = TILE_SIZE;
    Spans across, down;
    make_spans(conic, level, ex, ey, across, down);
    const Real pad = 2 * epsilon * (max_(mx, -mx) + max_(my, -my) + c.width + c.height);  // rounding of positions
    for (int ty = box.y0; ty < box.y1; ty++) {
        const Real y0 = ty * size + half, y1 = min_((ty + 1) * size, Real(c.height)) - half;
        Real left, right;
        if (!span_in_band(across, ey, y0 - my - pad, y1 - my + pad, left, right)) continue;
        left += mx - pad;
        right += mx + pad;
        if (left > Real(c.width) - half || right < half) continue;
        const int tx0 = int(min_(max_(ceil_((left - size + half) / size), Real(box.x0)), Real(c.tiles_x - 1)));
        const int tx1 = int(min_(floor_((right - half) / size) + 1, Real(box.x1)));
        for (int tx = tx0; tx < tx1; tx++) {
            Real top, bottom;
            const Real x0 = tx * size + half;
            if (!span_in_band(down, ex, x0 - mx - pad, x0 + size - 1 - mx + pad, top, bottom)) continue;
            const Real origin = my - y0;
            const int r0 = int(min_(max_(ceil_(origin + top - pad), Real(0)), size));
            const int r1 = int(min_(max_(floor_(origin + bottom + pad) + 1, Real(0)), size));
            visit(ty * c.tiles_x + tx, r0, r1 > r0 ? r1 : r0);
        }
    }
}

