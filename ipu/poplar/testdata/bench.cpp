// A program that drives the fake through the shim's rings without Go, for TestAgainstCpp: what requests take that way.
//   bench request N   one after the other; prints the median and the 99th percentile of N requests, in ns
//   bench flight N    with 16 in flight; prints how many it makes in a second
// Who waits is parked at a futex, as the engine's thread is.

#include "../shim.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <linux/futex.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

extern "C" int32_t plrGoFetch(uint64_t, void *, uint64_t) { return 1; }
extern "C" int32_t plrGoPrefetch(uint64_t, void *, uint64_t) { return -1; }
extern "C" int32_t plrGoComplete(uint64_t) { return 1; }
extern "C" int32_t plrGoInvalidate(uint64_t) { return 1; }

static const uint64_t bytes = 4096;

static void must(bool ok, const char *what) {
  if (!ok) {
    std::fprintf(stderr, "bench: %s failed\n", what);
    std::exit(1);
  }
}

struct Request {
  std::vector<float> a = std::vector<float>(bytes / 4), b = std::vector<float>(bytes / 4, 0.5f), y = std::vector<float>(bytes / 4);
};

static plr_err err;
static plr_engine *engine;
static plr_mail *mail;
static plr_ring *rings[3];
static uint32_t numbers;

static void post(uint32_t slot, uint32_t command) {
  plr_run &r = mail->runs[slot];
  r.command = command, r.program = 1;
  mail->queue[mail->asked % PLR_QUEUE] = slot;
  __atomic_store_n(&mail->asked, mail->asked + 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&mail->c_waits, __ATOMIC_SEQ_CST) && __atomic_exchange_n(&mail->c_waits, 0u, __ATOMIC_SEQ_CST))
    syscall(SYS_futex, &mail->c_waits, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

static void begin(uint32_t slot, Request &q) {
  plr_run &r = mail->runs[slot];
  r.number = ++numbers;
  __atomic_store_n(&r.failed, 0u, __ATOMIC_SEQ_CST);
  __atomic_store_n(&r.ended, 0u, __ATOMIC_SEQ_CST);
  std::vector<float> *mem[] = {&q.a, &q.b, &q.y};
  for (int i = 0; i < 3; i++) {
    plr_part &p = rings[i]->parts[slot];
    p.mem = reinterpret_cast<uintptr_t>(mem[i]->data()), p.n = 1, p.moved = 0, p.run = r.number, p.over = 0;
  }
  post(slot, PLR_RUN);
}

static void await(uint32_t slot) {
  plr_run &r = mail->runs[slot];
  while (!__atomic_load_n(&r.ended, __ATOMIC_SEQ_CST)) {
    __atomic_store_n(&r.go_waits, uint32_t(PLR_AT_FUTEX), __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&r.ended, __ATOMIC_SEQ_CST))
      break;
    syscall(SYS_futex, &r.go_waits, FUTEX_WAIT_PRIVATE, PLR_AT_FUTEX, nullptr, nullptr, 0);
  }
  must(r.result == 0 && r.failed == 0, "a run");
}

int main(int argc, char **argv) {
  must(argc == 3, "reading what to do");
  const size_t n = std::strtoul(argv[2], nullptr, 10);
  const std::string size = std::to_string(bytes), depth = size + " depth 2\n", run = "read a\nread b\ncall add a,b y\nwrite y\n";
  const std::string text = "GC_EXE_FAKE\nstream w in " + depth + "stream a in " + depth + "stream b in " + depth + "stream y out " + depth + "stream s out " + depth +
                           "program 0 load\nread w\nend\nprogram 1 main\n" + run + "end\n";
  plr_device *dev = nullptr;
  plr_exe *exe = nullptr;
  int32_t ok = 0;
  const plr_options none{nullptr, 0};
  must(plr_device_open(0, none, &dev, &err) == 0 && plr_device_attach(dev, &ok, &err) == 0 && ok, "attaching the device");
  must(plr_exe_from_memory(text.data(), text.size(), 1, &exe, &err) == 0 && plr_engine_new(exe, none, &engine, &err) == 0, "making the engine");
  must(plr_engine_device(engine, dev, &err) == 0, "choosing the device");
  mail = plr_engine_mail(engine);
  post(0, PLR_LOAD);
  await(0);
  const char *handles[] = {"a", "b", "y"};
  for (int i = 0; i < 3; i++) {
    rings[i] = plr_ring_new(bytes, mail);
    must(rings[i] && plr_connect_ring(engine, handles[i], i == 2, rings[i], &err) == 0, "connecting a stream");
  }
  std::vector<Request> requests(PLR_SLOTS);
  using clock = std::chrono::steady_clock;
  auto ns = [](clock::time_point from) { return std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - from).count(); };
  if (!std::strcmp(argv[1], "request")) {
    std::vector<long long> took(n);
    for (auto &t : took) {
      const auto start = clock::now();
      begin(0, requests[0]);
      await(0);
      t = ns(start);
    }
    std::sort(took.begin(), took.end());
    std::printf("%lld %lld\n", took[n / 2], took[n * 99 / 100]);
  } else {
    const uint32_t in = PLR_SLOTS - 1;
    const auto start = clock::now();
    for (size_t k = 0; k < n + in; k++) {
      const auto slot = static_cast<uint32_t>(1 + k % in);
      if (k >= in)
        await(slot);
      if (k < n)
        begin(slot, requests[slot]);
    }
    std::printf("%.0f\n", static_cast<double>(n) / (static_cast<double>(ns(start)) / 1e9));
  }
  must(requests[argv[1][0] == 'r' ? 0 : 1].y[7] == 0.5f, "computing");
  for (plr_ring *r : rings)
    (void)r; // the engine has them until the process ends
  std::fflush(stdout);
  _exit(0);
}
