// Real spherical harmonics up to degree 3 in 3DGS order. Source: Kerbl et al. 2023; constants from the closed forms
// (Green 2003), e.g. SH_C1 = sqrt(3/(4 pi)).
#pragma once
#include "../common.h"

constexpr double SH_C0 = 0.28209479177387814;
constexpr double SH_C1 = 0.4886025119029199;
// one name each: device code cannot read a constexpr array
constexpr double SH_C2_0 = 1.0925484305920792, SH_C2_1 = -1.0925484305920792, SH_C2_2 = 0.31539156525252005;
constexpr double SH_C2_3 = -1.0925484305920792, SH_C2_4 = 0.5462742152960396;
constexpr double SH_C3_0 = -0.5900435899266435, SH_C3_1 = 2.890611442640554, SH_C3_2 = -0.4570457994644658;
constexpr double SH_C3_3 = 0.3731763325901154, SH_C3_4 = -0.4570457994644658, SH_C3_5 = 1.445305721320277;
constexpr double SH_C3_6 = -0.5900435899266435;

// Eq. H1: b[k] = Y_k(d) for a unit direction d; entries beyond the degree are not written.
template <class R> GS_HD void sh_basis(int degree, R x, R y, R z, R b[16]) {
    b[0] = splat<R>(Real(SH_C0));
    if (degree < 1) return;
    b[1] = -Real(SH_C1) * y;
    b[2] = Real(SH_C1) * z;
    b[3] = -Real(SH_C1) * x;
    if (degree < 2) return;
    const R xx = x * x, yy = y * y, zz = z * z, xy = x * y, yz = y * z, xz = x * z;
    const Real two = 2, three = 3, four = 4;
    b[4] = Real(SH_C2_0) * xy;
    b[5] = Real(SH_C2_1) * yz;
    b[6] = Real(SH_C2_2) * (two * zz - xx - yy);
    b[7] = Real(SH_C2_3) * xz;
    b[8] = Real(SH_C2_4) * (xx - yy);
    if (degree < 3) return;
    b[9] = Real(SH_C3_0) * y * (three * xx - yy);
    b[10] = Real(SH_C3_1) * xy * z;
    b[11] = Real(SH_C3_2) * y * (four * zz - xx - yy);
    b[12] = Real(SH_C3_3) * z * (two * zz - three * xx - three * yy);
    b[13] = Real(SH_C3_4) * x * (four * zz - xx - yy);
    b[14] = Real(SH_C3_5) * z * (xx - yy);
    b[15] = Real(SH_C3_6) * x * (xx - three * yy);
}
// Eq. H2: v_d = sum_k v_b[k] grad Y_k, with x, y, z taken as independent (the normalisation below restores the sphere).
template <class R> GS_HD void sh_basis_vjp(int degree, R x, R y, R z, const R v[16], R v_d[3]) {
    R vx = splat<R>(0), vy = vx, vz = vx;
    const Real two = 2, three = 3, four = 4, six = 6, eight = 8;
    if (degree >= 1) {
        vy = vy - Real(SH_C1) * v[1];
        vz = vz + Real(SH_C1) * v[2];
        vx = vx - Real(SH_C1) * v[3];
    }
    if (degree >= 2) {
        const R v4 = Real(SH_C2_0) * v[4], v5 = Real(SH_C2_1) * v[5], v6 = two * Real(SH_C2_2) * v[6];
        const R v7 = Real(SH_C2_3) * v[7], v8 = two * Real(SH_C2_4) * v[8];
        vx = vx + v4 * y - v6 * x + v7 * z + v8 * x;
        vy = vy + v4 * x + v5 * z - v6 * y - v8 * y;
        vz = vz + v5 * y + two * v6 * z + v7 * x;
    }
    if (degree >= 3) {
        const R xx = x * x, yy = y * y, zz = z * z, xy = x * y, yz = y * z, xz = x * z;
        const R v9 = Real(SH_C3_0) * v[9], v10 = Real(SH_C3_1) * v[10], v11 = Real(SH_C3_2) * v[11];
        const R v12 = Real(SH_C3_3) * v[12], v13 = Real(SH_C3_4) * v[13], v14 = Real(SH_C3_5) * v[14];
        const R v15 = Real(SH_C3_6) * v[15];
        vx = vx + v9 * six * xy + v10 * yz - v11 * two * xy - v12 * six * xz + v13 * (four * zz - three * xx - yy) +
             v14 * two * xz + v15 * three * (xx - yy);
        vy = vy + v9 * three * (xx - yy) + v10 * xz + v11 * (four * zz - xx - three * yy) - v12 * six * yz -
             v13 * two * xy - v14 * two * yz - v15 * six * xy;
        vz = vz + v10 * xy + v11 * eight * yz + v12 * (six * zz - three * xx - three * yy) + v13 * eight * xz +
             v14 * (xx - yy);
    }
    v_d[0] = vx;
    v_d[1] = vy;
    v_d[2] = vz;
}

// Eq. H3: d = (mean - centre)/|mean - centre|;  v_mean = (v_d - d (d.v_d))/|mean - centre|.
// Where there is no direction (mean in the centre, or not finite) it is (0,0,1) without gradient.
template <class R> GS_HD void view_direction(const CameraArgs& c, const R m[3], R d[3], R& inverse_distance) {
    for (int i = 0; i < 3; i++) d[i] = m[i] - c.center[i];
    const R square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
    const R one = splat<R>(1), zero = splat<R>(0);
    const auto usable = (square > zero) & (square - square == zero);
    inverse_distance = pick(usable, one / sqrt_(pick(usable, square, one)), zero);
    for (int i = 0; i < 3; i++) d[i] = pick(usable, d[i] * inverse_distance, i == 2 ? one : zero);
}
template <class R> GS_HD void view_direction_vjp(const R d[3], R inverse_distance, const R v_d[3], R v_m[3]) {
    const R along = d[0] * v_d[0] + d[1] * v_d[1] + d[2] * v_d[2];
    for (int i = 0; i < 3; i++) v_m[i] = (v_d[i] - d[i] * along) * inverse_distance;
}
