// What every CPU kernel file needs: SIMD, threads and the export macro.
#pragma once
#include "common.h"
#include "parallel.h"

#ifdef _WIN32
#define GS_KERNEL extern "C" __declspec(dllexport)
#else
#define GS_KERNEL extern "C" __attribute__((visibility("default")))
#endif

constexpr int64_t PIECE = 1024;  // Gaussians a job; a multiple of every LANES, so that pieces never share a vector
