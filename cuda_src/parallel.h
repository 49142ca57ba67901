// A small thread pool. Results never depend on the number of threads: callers split work by data, never by thread.
#pragma once
#include <algorithm>
#include <atomic>
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
        Task task{&body, [](void* b) { (*static_cast<decltype(body)*>(b))(); }};
        next_.store(0, std::memory_order_relaxed);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            while (int(workers_.size()) < helpers) workers_.emplace_back([this] { work(); });
            task_ = &task;
            wanted_ = helpers;
            running_.store(0, std::memory_order_relaxed);
        }
        wake_.notify_all();
        body();
        std::unique_lock<std::mutex> lock(mutex_);
        wanted_ = 0;  // helpers that have not woken yet need not come any more
        idle_.wait(lock, [&] { return running_.load(std::memory_order_relaxed) == 0; });
        task_ = nullptr;
    }

  private:
    struct Task { void* body; void (*call)(void*); };
    void work() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return wanted_ > 0; });
            wanted_--;
            running_.fetch_add(1, std::memory_order_relaxed);
            Task task = *task_;
            lock.unlock();
            task.call(task.body);
            lock.lock();
            if (running_.fetch_sub(1, std::memory_order_relaxed) == 1) idle_.notify_one();
        }
    }
    std::atomic<int> threads_{int(std::max(1u, std::thread::hardware_concurrency()))};
    std::atomic<int64_t> next_{0};
    std::atomic<int> running_{0};
    std::mutex mutex_, run_mutex_;
    std::condition_variable wake_, idle_;
    std::vector<std::thread> workers_;
    Task* task_ = nullptr;
    int wanted_ = 0;
};

// fn(begin, end) over fixed-size pieces of [0, n).
template <class F> void parallel_ranges(int64_t n, int64_t piece, F&& fn) {
    const int64_t jobs = (n + piece - 1) / piece;
    Pool::get().run(jobs, [&](int64_t j) { fn(j * piece, std::min(n, (j + 1) * piece)); });
}
