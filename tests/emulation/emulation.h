// Enough of CUDA to run the .cu files on the host, one block at a time: a fibre per thread, switched by hand at barriers
// and warp operations. What the hardware defines is kept, what it leaves open is varied:
//   order    fibres run forwards, backwards or shuffled; results must not depend on it
//   shared   memory starts as NaN in every block
//   barriers threads that meet at different __syncthreads, or a warp that meets at different operations, are reported
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
// One block runs at a time, so block-shared memory is static; its own section lets every block poison it.
#define __shared__ static __attribute__((section("emulated_shared")))
extern "C" char __start_emulated_shared[], __stop_emulated_shared[];
__attribute__((section("emulated_shared"), used)) static float emulation_keeps_the_section_alive;

using std::ceil; using std::exp; using std::exp2; using std::fabs; using std::floor; using std::log; using std::log2; using std::sqrt;

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    unsigned count() const { return x * y * z; }
};
static dim3 gridDim, blockDim, blockIdx;
static dim3 threadIdx;  // of the running fibre

namespace emulation {
constexpr int WARP = 32;
constexpr size_t STACK = 64 * 1024;
struct Failure { std::string what; };

// ---- context switch: callee-saved registers on the stack, the stack pointer in a variable
#if defined(__x86_64__)
asm(R"(
.text
emulation_switch:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
)");
constexpr int SAVED = 6;
#elif defined(__aarch64__)
asm(R"(
.text
emulation_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]; stp x21, x22, [sp, #16]; stp x23, x24, [sp, #32]; stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]; stp x29, x30, [sp, #80]; stp d8, d9, [sp, #96]; stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]; stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]; ldp x21, x22, [sp, #16]; ldp x23, x24, [sp, #32]; ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]; ldp x29, x30, [sp, #80]; ldp d8, d9, [sp, #96]; ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]; ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
#else
#error "the emulation knows x86-64 and aarch64"
#endif
extern "C" void emulation_switch(void** save, void* load);

enum class Waiting { nothing, block, warp, finished };
struct Fibre {
    void* sp = nullptr;
    dim3 index;
    int rank = 0;
    Waiting waiting = Waiting::nothing;
    const void* site = nullptr;  // where it waits
    uint64_t offered = 0;        // what it brought to a warp operation
    int predicate = 0;
    std::vector<char> stack;
};
inline std::vector<Fibre> fibres;
inline Fibre* running = nullptr;
inline void* scheduler_sp = nullptr;
inline std::function<void()>* kernel = nullptr;
inline std::string failure;

inline void yield_to_scheduler() { emulation_switch(&running->sp, scheduler_sp); threadIdx = running->index; }
inline void entry() {
    (*kernel)();
    running->waiting = Waiting::finished;
    yield_to_scheduler();
    std::abort();
}
inline void prepare(Fibre& f) {
    if (f.stack.empty()) f.stack.resize(STACK);
    auto top = (uintptr_t(f.stack.data()) + STACK) & ~uintptr_t(63);
#if defined(__x86_64__)
    void** p = reinterpret_cast<void**>(top) - 2;  // keeps the alignment that a call would leave
    *p = reinterpret_cast<void*>(&entry);
    p -= SAVED;
    std::fill_n(p, SAVED, nullptr);
    f.sp = p;
#else
    void** p = reinterpret_cast<void**>(top - 160);
    std::fill_n(p, 20, nullptr);
    p[11] = reinterpret_cast<void*>(&entry);
    f.sp = p;
#endif
    f.waiting = Waiting::nothing;
}
inline void wait(Waiting kind, const void* site) {
    running->waiting = kind;
    running->site = site;
    yield_to_scheduler();
}
inline int block_and = 1, block_or = 0, block_count = 0;

// Lets those go on who wait for all that are left and have all come. false: nobody can move.
inline bool release(Waiting kind, size_t begin, size_t end, const char* what) {
    const void* site = nullptr;
    size_t waiting = 0;
    for (size_t i = begin; i < end; i++) {
        const Fibre& f = fibres[i];
        if (f.waiting == Waiting::finished) continue;
        if (f.waiting != kind) return false;
        if (site && f.site != site) failure = std::string("threads of one ") + what + " wait at different places";
        site = f.site;
        waiting++;
    }
    if (!waiting) return false;
    if (kind == Waiting::block) {
        block_and = 1, block_or = 0, block_count = 0;
        for (size_t i = begin; i < end; i++)
            if (fibres[i].waiting != Waiting::finished)
                block_and &= fibres[i].predicate != 0, block_or |= fibres[i].predicate != 0, block_count += fibres[i].predicate != 0;
    }
    for (size_t i = begin; i < end; i++)
        if (fibres[i].waiting == kind) fibres[i].waiting = Waiting::nothing;
    return true;
}

inline void run_block(const std::vector<int>& order) {
    const float poison = std::nanf("");
    for (char* p = __start_emulated_shared; p + sizeof poison <= __stop_emulated_shared; p += sizeof poison) std::memcpy(p, &poison, sizeof poison);
    for (Fibre& f : fibres) prepare(f);
    for (;;) {
        bool moved = false, left = false;
        for (int rank : order) {
            Fibre& f = fibres[rank];
            if (f.waiting == Waiting::finished) continue;
            left = true;
            if (f.waiting != Waiting::nothing) continue;
            running = &f;
            threadIdx = f.index;
            emulation_switch(&scheduler_sp, f.sp);
            moved = true;
        }
        if (!left || !failure.empty()) return;
        for (size_t w = 0; w < fibres.size(); w += WARP) moved |= release(Waiting::warp, w, std::min(fibres.size(), w + WARP), "warp");
        moved |= release(Waiting::block, 0, fibres.size(), "block");
        if (!moved) {
            failure = "threads wait for each other at a barrier and a warp operation";
            return;
        }
    }
}

enum Order { FORWARDS, BACKWARDS, SHUFFLED };
// Runs kernel() for every thread of every block. Empty string = well; otherwise what went wrong.
inline std::string launch(dim3 grid, dim3 block, Order how, std::function<void()> body) {
    failure.clear();
    gridDim = grid;
    blockDim = block;
    kernel = &body;
    fibres.resize(block.count());
    std::vector<int> order(block.count());
    for (size_t i = 0; i < fibres.size(); i++) {
        order[i] = int(i);
        fibres[i].rank = int(i);
        fibres[i].index = {unsigned(i % block.x), unsigned(i / block.x % block.y), unsigned(i / block.x / block.y)};
    }
    std::mt19937 random(7);
    std::vector<unsigned> blocks(grid.count());
    for (size_t i = 0; i < blocks.size(); i++) blocks[i] = unsigned(i);
    if (how == BACKWARDS) std::reverse(order.begin(), order.end()), std::reverse(blocks.begin(), blocks.end());
    if (how == SHUFFLED) std::shuffle(order.begin(), order.end(), random), std::shuffle(blocks.begin(), blocks.end(), random);
    for (unsigned b : blocks) {
        blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        run_block(order);
        if (!failure.empty()) return failure;
    }
    return "";
}

template <class T> uint64_t bits(T x) {
    uint64_t b = 0;
    std::memcpy(&b, &x, sizeof x);
    return b;
}
template <class T> T from_bits(uint64_t b) {
    T x;
    std::memcpy(&x, &b, sizeof x);
    return x;
}
template <class T> __attribute__((noinline)) T shuffle(unsigned mask, T value, int source) {
    if (mask != 0xffffffffu) failure = "a warp operation with a partial mask";
    running->offered = bits(value);
    wait(Waiting::warp, __builtin_return_address(0));
    const int base = running->rank / WARP * WARP, lane = running->rank % WARP;
    const int from = source < 0 || source >= WARP || base + source >= int(fibres.size()) ? lane : source;
    const T result = from_bits<T>(fibres[base + from].offered);
    wait(Waiting::warp, __builtin_return_address(0));  // nobody may offer anew before all have read
    return result;
}
}  // namespace emulation

// ---- the device functions that the kernels use
__attribute__((noinline)) static void __syncthreads() { emulation::wait(emulation::Waiting::block, __builtin_return_address(0)); }
__attribute__((noinline)) static int __syncthreads_and(int predicate) {
    emulation::running->predicate = predicate;
    emulation::wait(emulation::Waiting::block, __builtin_return_address(0));
    return emulation::block_and;
}
template <class T> static __forceinline__ T __shfl_down_sync(unsigned mask, T value, int delta) {
    return emulation::shuffle(mask, value, emulation::running->rank % emulation::WARP + delta);
}
template <class T> static __forceinline__ T __shfl_up_sync(unsigned mask, T value, int delta) {
    return emulation::shuffle(mask, value, emulation::running->rank % emulation::WARP - delta);
}
__attribute__((noinline)) static void __syncwarp() { emulation::wait(emulation::Waiting::warp, __builtin_return_address(0)); }
static int __any_sync(unsigned mask, int predicate) {
    int result = 0;
    const uint64_t mine = uint64_t(predicate != 0);
    if (mask != 0xffffffffu) emulation::failure = "a warp operation with a partial mask";
    emulation::running->offered = mine;
    emulation::wait(emulation::Waiting::warp, __builtin_return_address(0));
    const size_t base = size_t(emulation::running->rank) / emulation::WARP * emulation::WARP;
    for (size_t i = base; i < std::min(emulation::fibres.size(), base + emulation::WARP); i++)
        if (emulation::fibres[i].waiting != emulation::Waiting::finished) result |= int(emulation::fibres[i].offered);
    emulation::wait(emulation::Waiting::warp, __builtin_return_address(0));
    return result;
}
template <class T> static T atomicAdd(T* p, T x) { T old = *p; *p = old + x; return old; }
static int atomicMax(int* p, int x) { int old = *p; *p = std::max(old, x); return old; }
static unsigned long long atomicAdd(unsigned long long* p, unsigned long long x) { auto old = *p; *p = old + x; return old; }
