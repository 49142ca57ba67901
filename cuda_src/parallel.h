// A small thread pool. Results never depend on the number of threads: callers split work by data, never by thread.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

class Pool {
  public:
    static Pool& get() {
        static Pool* pool = new Pool;  // never destroyed: workers may outlive static destructors at exit
        return *pool;
    }
    void set_threads(int n) { threads_.store(std::max(1, n), std::memory_order_relaxed); }
    int threads() const { return threads_.load(std::memory_order_relaxed); }

    // Calls fn(job) for job in [0, jobs) on up to threads() threads, the caller included; returns when all are done.
    template <class F> void run(int64_t jobs, F&& fn) {
        const int helpers = int(std::min<int64_t>(threads() - 1, jobs - 1));
        if (helpers <= 0) {
            for (int64_t j = 0; j < jobs; j++) fn(j);
            return;
        }
        std::lock_guard<std::mutex> one_caller(run_mutex_);
        auto body = [&] {
            for (int64_t j; (j = next_.fetch_add(1, std::memory_order_relaxed)) < jobs;) fn(j);
        };
        {
            std::lock_guard<std::mutex> lock(mutex_);
            while (int(workers_.size()) < helpers) workers_.emplace_back([this] { work(); });
            next_.store(0, std::memory_order_relaxed);
            task_ = {&body, [](void* b) { (*static_cast<decltype(body)*>(b))(); }};
            wanted_ = helpers;
            called_.fetch_add(1, std::memory_order_release);
            if (asleep_) wake_.notify_all();
        }
        body();
        {
            std::lock_guard<std::mutex> lock(mutex_);
            wanted_ = 0;  // helpers that have not come yet need not come any more
        }
        if (spin([&] { return running_.load(std::memory_order_acquire) == 0; })) return;
        std::unique_lock<std::mutex> lock(mutex_);
        idle_.wait(lock, [&] { return running_.load(std::memory_order_acquire) == 0; });
    }

  private:
    struct Task { void* body; void (*call)(void*); };

    // Kernels follow each other within a fraction of a millisecond, and waking a thread that sleeps can take as long as a
    // small kernel: so both sides first watch for a while, giving the core to whoever else wants it in between.
    template <class Done> static bool spin(Done&& done) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
        do {
            for (int k = 0; k < 64; k++)
                if (done()) return true;
            std::this_thread::yield();
        } while (std::chrono::steady_clock::now() < end);
        return done();
    }
    void work() {
        for (;;) {
            const uint64_t seen = called_.load(std::memory_order_acquire);
            std::unique_lock<std::mutex> lock(mutex_);
            if (wanted_ > 0) {
                wanted_--;
                running_.fetch_add(1, std::memory_order_relaxed);
                const Task task = task_;
                lock.unlock();
                task.call(task.body);
                lock.lock();
                if (running_.fetch_sub(1, std::memory_order_release) == 1) idle_.notify_one();
                continue;
            }
            lock.unlock();
            if (spin([&] { return called_.load(std::memory_order_acquire) != seen; })) continue;
            lock.lock();
            asleep_++;
            wake_.wait(lock, [&] { return wanted_ > 0; });
            asleep_--;
        }
    }
    std::atomic<int> threads_{int(std::max(1u, std::thread::hardware_concurrency()))};
    std::atomic<int64_t> next_{0};
    std::atomic<int> running_{0};
    std::atomic<uint64_t> called_{0};
    std::mutex mutex_, run_mutex_;
    std::condition_variable wake_, idle_;
    std::vector<std::thread> workers_;
    Task task_{};
    int wanted_ = 0, asleep_ = 0;
};

// Where the calling thread finds whether its work is to be given up (render/interrupt.py); null = it never is.
inline thread_local const int32_t* interrupt_request = nullptr;

// Pool::run for kernels of one pass: after a request the jobs that are left do nothing, and the launch raises in Python.
template <class F> void parallel_jobs(int64_t jobs, F&& fn) {
    const int32_t* request = interrupt_request;
    Pool::get().run(jobs, [&, request](int64_t j) {
        if (!request || !__atomic_load_n(request, __ATOMIC_RELAXED)) fn(j);
    });
}

// fn(begin, end) over fixed-size pieces of [0, n).
template <class F> void parallel_ranges(int64_t n, int64_t piece, F&& fn) {
    const int64_t jobs = (n + piece - 1) / piece;
    parallel_jobs(jobs, [&](int64_t j) { fn(j * piece, std::min(n, (j + 1) * piece)); });
}
