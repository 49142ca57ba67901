// ssim: L1 and SSIM in one pass, the backward in one. A block is SIDE x SIDE pixels of one channel; the separable window
// runs over shared memory, rows first.
#include "common.h"
#include "math/ssim.h"

#define SIDE 16
#define RADIUS (SSIM_WINDOW / 2)
#define HALO (SIDE + 2 * RADIUS)

// window [RADIUS+1]: weights from the centre outwards, made by the host in double. Images [H,W,3].
static __device__ __forceinline__ Real pixel_or_zero(const Real* image, int height, int width, int y, int x, int ch) {
    return x >= 0 && x < width && y >= 0 && y < height ? image[3 * ((long long)y * width + x) + ch] : Real(0);
}

// partials [blocks,3]: sums of |x-y|, (x-y)^2 and SSIM of each block, added by a tree of fixed shape. maps [3,H,W,3] or null.
extern "C" __global__ void ssim_fwd(int height, int width, const Real* window, const Real* image, const Real* target, double* partials,
                                    Real* maps) {
    __shared__ Real x[HALO][HALO], y[HALO][HALO], rows[5][HALO][SIDE];
    __shared__ double sums[3][SIDE * SIDE];
    const int ch = blockIdx.z, rank = threadIdx.y * SIDE + threadIdx.x;
    const int x0 = blockIdx.x * SIDE - RADIUS, y0 = blockIdx.y * SIDE - RADIUS;
    for (int i = rank; i < HALO * HALO; i += SIDE * SIDE) {
        x[i / HALO][i % HALO] = pixel_or_zero(image, height, width, y0 + i / HALO, x0 + i % HALO, ch);
        y[i / HALO][i % HALO] = pixel_or_zero(target, height, width, y0 + i / HALO, x0 + i % HALO, ch);
    }
    __syncthreads();
    for (int i = rank; i < HALO * SIDE; i += SIDE * SIDE) {
        const int r = i / SIDE, at = i % SIDE + RADIUS;
        Real m[5] = {};
        for (int t = -RADIUS; t <= RADIUS; t++) {
            const Real w = window[t < 0 ? -t : t], a = x[r][at + t], b = y[r][at + t];
            m[0] += w * a;
            m[1] += w * b;
            m[2] += w * a * a;
            m[3] += w * b * b;
            m[4] += w * a * b;
        }
        for (int k = 0; k < 5; k++) rows[k][r][i % SIDE] = m[k];
    }
    __syncthreads();
    const int px = blockIdx.x * SIDE + threadIdx.x, py = blockIdx.y * SIDE + threadIdx.y;
    const bool inside = px < width && py < height;
    double l1 = 0, mse = 0, value = 0;
    if (inside) {
        Real m[5] = {};
        for (int t = -RADIUS; t <= RADIUS; t++)
            for (int k = 0; k < 5; k++) m[k] += window[t < 0 ? -t : t] * rows[k][threadIdx.y + RADIUS + t][threadIdx.x];
        const SsimTerms<Real> s = ssim_terms(m[0], m[1], m[2], m[3], m[4]);
        const Real d = x[threadIdx.y + RADIUS][threadIdx.x + RADIUS] - y[threadIdx.y + RADIUS][threadIdx.x + RADIUS];
        l1 = fabs(d);
        mse = d * d;
        value = s.value;
        if (maps) {
            const long long plane = 3ll * height * width, at = 3 * ((long long)py * width + px) + ch;
            maps[at] = s.d_mean;
            maps[plane + at] = s.d_xx;
            maps[2 * plane + at] = s.d_xy;
        }
    }
    sums[0][rank] = l1;
    sums[1][rank] = mse;
    sums[2][rank] = value;
    for (int step = SIDE * SIDE / 2; step > 0; step /= 2) {
        __syncthreads();
        if (rank < step)
            for (int k = 0; k < 3; k++) sums[k][rank] += sums[k][rank + step];
    }
    __syncthreads();
    if (rank < 3) {
        const long long block = ((long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        partials[3 * block + rank] = sums[rank][0];
    }
}

// v_image = w_l1 sign(x-y) + 2 w_mse (x-y) + w_ssim dSSIM/dx. scale [1] is dL/dloss over the number of values: it stays on
// the device. maps may be null when w_ssim is 0.
extern "C" __global__ void ssim_bwd(int height, int width, const Real* window, const Real* image, const Real* target, const Real* maps,
                                    const Real* scale, Real w_l1, Real w_mse, Real w_ssim, Real* v_image) {
    __shared__ Real tile[HALO][HALO], rows[HALO][SIDE];
    const int ch = blockIdx.z, rank = threadIdx.y * SIDE + threadIdx.x;
    const int x0 = blockIdx.x * SIDE - RADIUS, y0 = blockIdx.y * SIDE - RADIUS;
    const int px = blockIdx.x * SIDE + threadIdx.x, py = blockIdx.y * SIDE + threadIdx.y;
    Real blurred[3] = {};
    for (int k = 0; maps && k < 3; k++) {
        __syncthreads();
        for (int i = rank; i < HALO * HALO; i += SIDE * SIDE)
            tile[i / HALO][i % HALO] = pixel_or_zero(maps + 3ll * height * width * k, height, width, y0 + i / HALO, x0 + i % HALO, ch);
        __syncthreads();
        for (int i = rank; i < HALO * SIDE; i += SIDE * SIDE) {
            Real m = 0;
            for (int t = -RADIUS; t <= RADIUS; t++) m += window[t < 0 ? -t : t] * tile[i / SIDE][i % SIDE + RADIUS + t];
            rows[i / SIDE][i % SIDE] = m;
        }
        __syncthreads();
        for (int t = -RADIUS; t <= RADIUS; t++) blurred[k] += window[t < 0 ? -t : t] * rows[threadIdx.y + RADIUS + t][threadIdx.x];
    }
    if (px >= width || py >= height) return;
    const long long at = 3 * ((long long)py * width + px) + ch;
    const Real a = image[at], b = target[at], d = a - b;
    const Real sign = d > 0 ? Real(1) : d < 0 ? Real(-1) : Real(0);
    v_image[at] = *scale * (w_l1 * sign + 2 * w_mse * d + w_ssim * (blurred[0] + 2 * a * blurred[1] + b * blurred[2]));
}
