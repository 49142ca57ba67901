// Where the ellipse {q <= level} lies: exact spans for tiles and rows. q(d) = a dx^2 + 2 b dx dy + c dy^2, d = x - mean.
#pragma once
#include "../common.h"

#ifdef __CUDACC__
GS_HD Real floor_(Real x) { return floor(x); }
GS_HD Real ceil_(Real x) { return ceil(x); }
#else
GS_HD Real floor_(Real x) { return std::floor(x); }
GS_HD Real ceil_(Real x) { return std::ceil(x); }
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
