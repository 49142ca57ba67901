// From rotation and scales to the inverse 2D covariance (the conic). Source: Kerbl et al. 2023, Zwicker et al. 2001.
#pragma once
#include "../common.h"

// Eq. S1: Sigma = R S S^T R^T = M M^T with M = R S.  Eq. S2: Sigma' = (T M)(T M)^T + eps2d I with T = J W (2x3).
// Working with A = T M instead of Sigma saves a 3x3 product each way and keeps Sigma' positive semi-definite in floats.
template <class R> struct Footprint {
    R A[6];             // T M, 2x3
    R T[6];             // J W, 2x3
    R xx, xy, yy;       // Sigma' with the low-pass
    R det, det_before;  // with and without the low-pass
};
template <class R>
GS_HD Footprint<R> footprint(const CameraArgs& c, const R rot[9], const R s[3], R J00, R J02, R J11, R J12, Real eps2d) {
    Footprint<R> f;
    for (int j = 0; j < 3; j++) {
        f.T[j] = J00 * c.R[j] + J02 * c.R[6 + j];
        f.T[3 + j] = J11 * c.R[3 + j] + J12 * c.R[6 + j];
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            f.A[3 * i + j] = (f.T[3 * i] * rot[j] + f.T[3 * i + 1] * rot[3 + j] + f.T[3 * i + 2] * rot[6 + j]) * s[j];
    const R xx = f.A[0] * f.A[0] + f.A[1] * f.A[1] + f.A[2] * f.A[2];
    const R yy = f.A[3] * f.A[3] + f.A[4] * f.A[4] + f.A[5] * f.A[5];
    f.xy = f.A[0] * f.A[3] + f.A[1] * f.A[4] + f.A[2] * f.A[5];
    // det(A A^T) = |A0 x A1|^2 (Cauchy-Binet): a sum of squares, so a needle's determinant survives in floats where
    // xx yy - xy^2 would cancel.
    const R n0 = f.A[1] * f.A[5] - f.A[2] * f.A[4], n1 = f.A[2] * f.A[3] - f.A[0] * f.A[5], n2 = f.A[0] * f.A[4] - f.A[1] * f.A[3];
    f.det_before = n0 * n0 + n1 * n1 + n2 * n2;
    f.det = f.det_before + eps2d * (xx + yy + eps2d);
    f.xx = xx + eps2d;
    f.yy = yy + eps2d;
    return f;
}
// v_xy is the cotangent of the one number that fills both off-diagonal entries.
template <class R>
GS_HD void footprint_vjp(const CameraArgs& c, const R rot[9], const R s[3], const Footprint<R>& f, R v_xx, R v_xy, R v_yy,
                         R v_rot[9], R v_s[3], R& v_J00, R& v_J02, R& v_J11, R& v_J12) {
    const Real two = 2;
    R v_A[6], v_T[6];
    for (int j = 0; j < 3; j++) {
        v_A[j] = two * v_xx * f.A[j] + v_xy * f.A[3 + j];
        v_A[3 + j] = two * v_yy * f.A[3 + j] + v_xy * f.A[j];
    }
    for (int i = 0; i < 2; i++)  // A = T M: v_T = v_A M^T
        for (int k = 0; k < 3; k++)
            v_T[3 * i + k] = v_A[3 * i] * rot[3 * k] * s[0] + v_A[3 * i + 1] * rot[3 * k + 1] * s[1] + v_A[3 * i + 2] * rot[3 * k + 2] * s[2];
    for (int j = 0; j < 3; j++) {  // v_M = T^T v_A; M = R S: v_R = v_M S, v_s = diag(R^T v_M)
        R sum = splat<R>(0);
        for (int k = 0; k < 3; k++) {
            const R v_M = f.T[k] * v_A[j] + f.T[3 + k] * v_A[3 + j];
            v_rot[3 * k + j] = v_M * s[j];
            sum = sum + rot[3 * k + j] * v_M;
        }
        v_s[j] = sum;
    }
    v_J00 = v_T[0] * c.R[0] + v_T[1] * c.R[1] + v_T[2] * c.R[2];
    v_J02 = v_T[0] * c.R[6] + v_T[1] * c.R[7] + v_T[2] * c.R[8];
    v_J11 = v_T[3] * c.R[3] + v_T[4] * c.R[4] + v_T[5] * c.R[5];
    v_J12 = v_T[3] * c.R[6] + v_T[4] * c.R[7] + v_T[5] * c.R[8];
}

// Eq. S3: the conic (a,b,c) = Sigma'^-1 = (yy, -xy, xx)/det.  Eq. S4: V_Sigma' = -Q V_Q Q, where b stands for both
// off-diagonal entries, so V_Q = [[v_a, v_b/2], [v_b/2, v_c]] (the halves that are easily forgotten).
template <class R> GS_HD void conic_from_footprint(const Footprint<R>& f, R conic[3]) {
    const R r = splat<R>(1) / f.det;
    conic[0] = f.yy * r;
    conic[1] = -f.xy * r;
    conic[2] = f.xx * r;
}
template <class R> GS_HD void conic_vjp(const R q[3], const R v_q[3], R& v_xx, R& v_xy, R& v_yy) {
    const Real half = Real(0.5), two = 2;
    const R h = half * v_q[1];
    const R m00 = q[0] * v_q[0] + q[1] * h, m01 = q[0] * h + q[1] * v_q[2];   // Q V_Q
    const R m10 = q[1] * v_q[0] + q[2] * h, m11 = q[1] * h + q[2] * v_q[2];
    v_xx = -(m00 * q[0] + m01 * q[1]);
    v_xy = -two * (m00 * q[1] + m01 * q[2]);
    v_yy = -(m10 * q[1] + m11 * q[2]);
}

// Eq. S5: opacity compensation of the low-pass, sqrt(det(Sigma' - eps2d I)/det(Sigma')). Source: Yu et al. 2024 (Mip-Splatting).
template <class R> GS_HD R compensation(const Footprint<R>& f) {
    return sqrt_(f.det_before / f.det);
}
// Adds to v_xx, v_xy, v_yy. Where nothing was left (compensation 0) the gradient is 0.
template <class R>
GS_HD void compensation_vjp(const Footprint<R>& f, Real eps2d, R comp, R v_comp, R& v_xx, R& v_xy, R& v_yy) {
    const Real half = Real(0.5), two = 2;
    const R zero = splat<R>(0), rdet = splat<R>(1) / f.det;
    const R v_ratio = pick(comp > zero, half * v_comp / pick(comp > zero, comp, splat<R>(1)), zero);
    const R ratio = comp * comp, v_before = v_ratio * rdet, v_det = -v_ratio * ratio * rdet;
    v_xx = v_xx + v_before * (f.yy - eps2d) + v_det * f.yy;
    v_yy = v_yy + v_before * (f.xx - eps2d) + v_det * f.xx;
    v_xy = v_xy - two * f.xy * (v_before + v_det);
}
