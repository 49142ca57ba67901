// threads: how many threads the kernels use, on which results never depend, and whether they go on (render/interrupt.py).
#include "kernels.h"

GS_KERNEL void pool_set_threads(int n) { Pool::get().set_threads(n); }
GS_KERNEL void interrupt_watch(const int32_t* request) { interrupt_request = request; }
