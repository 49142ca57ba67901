// threads: how many threads the kernels use. Results never depend on it.
#include "kernels.h"

GS_KERNEL void pool_set_threads(int n) { Pool::get().set_threads(n); }
