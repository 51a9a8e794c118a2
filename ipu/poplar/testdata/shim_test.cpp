// The shim and the fake without Go, for sanitizers: make poplar builds it with each of them. What Go does to runs,
// their memory and the queue is done here in its way.

#include "../shim.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <linux/futex.h>
#include <new>
#include <string>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <poplar/fake.h>

#define CHECK(x)                                                                                                       \
  do {                                                                                                                 \
    if (!(x)) {                                                                                                        \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #x);                                       \
      std::exit(1);                                                                                                    \
    }                                                                                                                  \
  } while (0)

// Of this thread the allocation with this number fails, counted from 0; none if it is negative.
static thread_local int fails = -1;

__attribute__((noinline)) void *operator new(size_t n) {
  void *p = fails >= 0 && fails-- == 0 ? nullptr : std::malloc(n);
  if (!p)
    throw std::bad_alloc();
  return p;
}
__attribute__((noinline)) void operator delete(void *p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void *p, size_t) noexcept { std::free(p); }

// What Go offers. An id is the address of one of these.
struct Host {
  std::function<int32_t(void *, uint64_t)> fetch = [](void *, uint64_t) { return 0; };
  std::function<int32_t(void *, uint64_t)> prefetch = [](void *, uint64_t) { return 0; };
  int completed = 0, invalidated = 0;
};
static Host *host(uint64_t id) { return reinterpret_cast<Host *>(id); }
extern "C" int32_t plrGoFetch(uint64_t id, void *mem, uint64_t n) { return host(id)->fetch(mem, n); }
extern "C" int32_t plrGoPrefetch(uint64_t id, void *mem, uint64_t n) { return host(id)->prefetch(mem, n); }
extern "C" int32_t plrGoComplete(uint64_t id) { return host(id)->completed++, 0; }
extern "C" int32_t plrGoInvalidate(uint64_t id) { return host(id)->invalidated++, 0; }

template <class T> static T get(T *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
template <class T, class V> static void put(T *p, V v) { __atomic_store_n(p, static_cast<T>(v), __ATOMIC_SEQ_CST); }
static void wake(uint32_t *flag) {
  if (get(flag) && __atomic_exchange_n(flag, 0u, __ATOMIC_SEQ_CST))
    syscall(SYS_futex, flag, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

static const plr_options none{nullptr, 0};

static std::string adder(int n, int depth) {
  std::string d = " depth " + std::to_string(depth) + "\n", main = "read a\nread b\ncall add a,b y\nwrite y\n";
  return "GC_EXE_FAKE\nstream w in 64" + d + "stream a in 64" + d + "stream b in 64" + d + "stream y out 64\nstream s out 64\nremote r 32 3\n" +
         "program 0 load\nread w\nend\nprogram 1 main\n" + main + "end\nprogram 2 many\nrepeat " + std::to_string(n) + "\n" + main + "end\nend\nprogram 3 hang\nhang\nend\nprogram 4 save\ncall copy w s\nwrite s\nend\n";
}

struct Engine {
  plr_device *dev = nullptr;
  plr_engine *eng = nullptr;
  plr_mail *mail = nullptr;
  plr_err err{};
  uint32_t numbers = 0, epoch = 0;

  Engine(const std::string &text, uint32_t id = 0) {
    int32_t ok = 0;
    CHECK(plr_device_open(id, none, &dev, &err) == 0);
    CHECK(plr_device_attach(dev, &ok, &err) == 0 && ok);
    plr_exe *exe = nullptr;
    CHECK(plr_exe_from_memory(text.data(), text.size(), 1, &exe, &err) == 0);
    CHECK(plr_engine_new(exe, none, &eng, &err) == 0);
    mail = plr_engine_mail(eng);
    for (auto &r : mail->runs)
      r.event = eventfd(0, EFD_CLOEXEC);
  }
  ~Engine() {
    for (auto &r : mail->runs)
      close(r.event);
    CHECK(plr_engine_free(eng, &err) == 0);
    CHECK(plr_device_detach(dev, &err) == 0);
    plr_device_free(dev);
    plr_err_clear(&err);
  }
  // begin makes a slot another run's, send puts it into the queue.
  plr_run &begin(uint32_t slot) {
    plr_run &r = mail->runs[slot];
    r.number = ++numbers;
    put(&r.failed, 0), put(&r.ended, 0);
    return r;
  }
  void send(uint32_t slot, uint32_t command, uint32_t program) {
    plr_run &r = mail->runs[slot];
    r.command = command, r.program = program, r.epoch = epoch;
    mail->queue[mail->asked % PLR_QUEUE] = slot;
    put(&mail->asked, mail->asked + 1);
    wake(&mail->c_waits);
  }
  // await waits in one of Go's ways, and returns the code.
  int32_t await(uint32_t slot, uint32_t way = PLR_AT_EVENT) {
    plr_run &r = mail->runs[slot];
    while (!get(&r.ended)) {
      put(&r.go_waits, way);
      if (get(&r.ended))
        break;
      uint64_t n;
      if (way == PLR_AT_EVENT)
        CHECK(read(r.event, &n, sizeof n) == sizeof n);
      else
        syscall(SYS_futex, &r.go_waits, FUTEX_WAIT_PRIVATE, way, nullptr, nullptr, 0);
    }
    if (r.result && r.result != PLR_SKIPPED) {
      CHECK(plr_engine_error(eng, slot, &err) == r.result);
      epoch++;
    }
    return r.result;
  }
  int32_t load() {
    CHECK(plr_engine_device(eng, dev, &err) == 0);
    begin(0);
    send(0, PLR_LOAD, 0);
    return await(0);
  }
  int32_t run(uint32_t p, uint32_t way = PLR_AT_EVENT) {
    begin(0);
    send(0, PLR_RUN, p);
    return await(0, way);
  }
};

// Data is the memory of n transfers of 64 bytes. It is of its own, so that a sanitizer sees whoever goes beyond it.
struct Data {
  std::vector<float> mem;
  explicit Data(uint64_t n) : mem(16 * n) {}
  float &operator[](uint64_t i) { return mem[16 * i]; }
  // lie has a run find the first n transfers.
  void lie(Engine &e, plr_ring *ring, uint32_t slot, uint64_t n) {
    ring->parts[slot] = plr_part{reinterpret_cast<uintptr_t>(mem.data()), n, 0, e.mail->runs[slot].number, 0, {}};
  }
};

// Rings are connected to the streams of an adder.
struct Rings {
  Engine &e;
  plr_ring *a, *b, *y;
  explicit Rings(Engine &e) : e(e), a(plr_ring_new(64, e.mail)), b(plr_ring_new(64, e.mail)), y(plr_ring_new(64, e.mail)) {
    CHECK(a && b && y);
    CHECK(plr_connect_ring(e.eng, "a", 0, a, &e.err) == 0 && plr_connect_ring(e.eng, "b", 0, b, &e.err) == 0 && plr_connect_ring(e.eng, "y", 1, y, &e.err) == 0);
  }
  ~Rings() {
    CHECK(plr_connect_null(e.eng, "a", 64, &e.err) == 0 && plr_connect_null(e.eng, "b", 64, &e.err) == 0 && plr_connect_null(e.eng, "y", 0, &e.err) == 0);
    plr_ring_free(a), plr_ring_free(b), plr_ring_free(y);
  }
};

// rings makes runs of n transfers, of which the memory has more, one after the other.
static void rings(const char *nasty, int n, int depth, int more) {
  setenv("FAKE_POPLAR_NASTY", nasty, 1);
  Engine e(adder(n, depth));
  CHECK(e.load() == 0);
  Rings r(e);
  const auto count = static_cast<uint64_t>(n), all = count + static_cast<uint64_t>(more);
  for (int round = 0; round < 4; round++) {
    Data a(all), b(all), y(count);
    for (uint64_t i = 0; i < all; i++)
      a[i] = static_cast<float>(i) + 100 * static_cast<float>(round), b[i] = 0.5f;
    e.begin(0);
    a.lie(e, r.a, 0, all), b.lie(e, r.b, 0, all), y.lie(e, r.y, 0, count);
    e.send(0, PLR_RUN, 2);
    CHECK(e.await(0, round % 2 ? PLR_AT_EVENT : PLR_AT_FUTEX) == 0 && !get(&e.mail->runs[0].failed));
    for (uint64_t i = 0; i < count; i++)
      CHECK(y[i] == a[i] + 0.5f);
    CHECK(r.a->parts[0].moved == count && r.b->parts[0].moved == count && r.y->parts[0].moved == count && r.a->look == 0);
  }
  CHECK(r.a->starved == 0 && r.a->fetched + r.a->prefetched >= 4 * count);
}

// starved has a program move more than a run has memory for, or other streams than it has memory for.
static void starved() {
  Engine e(adder(4, 2));
  CHECK(e.load() == 0);
  Rings r(e);
  plr_run &run = e.mail->runs[0];
  CHECK(plr_connect_ring(e.eng, "none", 0, r.a, &e.err) == PLR_CONNECTION);
  Data a(4), b(4), y(4);
  for (int missing = 0; missing < 4; missing++) {
    e.begin(0);
    a.lie(e, r.a, 0, missing == 0 ? 3 : 4), b.lie(e, r.b, 0, 4), y.lie(e, r.y, 0, missing == 1 ? 2 : 4);
    if (missing == 2)
      r.b->parts[0].run--; // another run's
    e.send(0, PLR_RUN, 2);
    CHECK(e.await(0) == 0);
    CHECK(get(&run.failed) == (missing < 3) && r.a->parts[0].over == (missing == 0) && r.y->parts[0].over == (missing == 1) && r.b->parts[0].over == 0);
    CHECK(r.a->look == 0 && r.b->look == 0 && r.b->parts[0].moved <= (missing == 2 ? 0u : 4u));
    CHECK(r.y->parts[0].moved == (missing == 0 ? 3u : missing == 1 ? 2u : missing == 2 ? 0u : 4u));
  }
  e.begin(0); // an output without memory is dropped
  a.lie(e, r.a, 0, 4), b.lie(e, r.b, 0, 4);
  r.y->parts[0] = plr_part{0, 0, 0, run.number, 0, {}};
  e.send(0, PLR_RUN, 2);
  CHECK(e.await(0) == 0 && !get(&run.failed));
}

// memory has every allocation fail while a ring is connected: what could not be connected is not used.
static void memory() {
  Engine e(adder(4, 2));
  CHECK(e.load() == 0);
  Rings r(e);
  Data a(4), b(4), y(4);
  for (int n = 0;; n++) {
    plr_ring *another = plr_ring_new(64, e.mail);
    fails = n;
    const int32_t code = plr_connect_ring(e.eng, "a", 0, another, &e.err);
    fails = -1;
    if (code == 0) {
      CHECK(n > 1);
      std::swap(r.a, another);
    }
    CHECK(code == 0 || code == PLR_MEMORY);
    plr_ring_free(another);
    e.begin(0);
    a.lie(e, r.a, 0, 4), b.lie(e, r.b, 0, 4), y.lie(e, r.y, 0, 4);
    e.send(0, PLR_RUN, 2);
    CHECK(e.await(0) == 0 && !get(&e.mail->runs[0].failed));
    if (code == 0)
      return;
  }
}

// staged has many runs in the queue, whose memory is their own: some have more than the program reads, some end before they
// begin, and one that fails takes those behind it along.
static void staged(const char *nasty) {
  setenv("FAKE_POPLAR_NASTY", nasty, 1);
  Engine e(adder(4, 2));
  setenv("FAKE_POPLAR_NASTY", "", 1);
  CHECK(e.load() == 0);
  Rings r(e);
  std::vector<Data> a(PLR_SLOTS, Data(6)), b(PLR_SLOTS, Data(6)), y(PLR_SLOTS, Data(4));
  auto lie = [&](uint32_t slot, float first) {
    for (uint64_t i = 0; i < 6; i++)
      a[slot][i] = first + static_cast<float>(i), b[slot][i] = 0.25f;
    for (uint64_t i = 0; i < 4; i++)
      y[slot][i] = -1;
    e.begin(slot);
    a[slot].lie(e, r.a, slot, 4 + slot % 3), b[slot].lie(e, r.b, slot, 4), y[slot].lie(e, r.y, slot, 4);
  };
  const uint32_t in = PLR_SLOTS - 1;
  for (uint32_t k = 0; k < 200 + in; k++) {
    const uint32_t slot = 1 + k % in;
    if (k >= in) {
      const bool fails = k % 7 == 0 && get(&e.mail->runs[slot].failed);
      const int32_t code = e.await(slot, k % 2 ? PLR_AT_EVENT : PLR_AT_FUTEX);
      CHECK(code == 0 || (code == PLR_SKIPPED && fails));
      for (uint64_t i = 0; i < 4 && code == 0 && !fails; i++)
        CHECK(y[slot][i] == a[slot][i] + 0.25f);
      for (uint64_t i = 0; i < 4 && code != 0; i++)
        CHECK(y[slot][i] == -1);
    }
    if (k < 200) {
      lie(slot, static_cast<float>(10 * k));
      e.send(slot, PLR_RUN, 2);
      if ((k + in) % 7 == 0)
        put(&e.mail->runs[slot].failed, 1);
    }
  }
  setenv("FAKE_POPLAR_FAULT", "run:2@3=application", 1);
  for (uint32_t slot = 1; slot <= 5; slot++)
    lie(slot, 1), e.send(slot, PLR_RUN, 2);
  for (uint32_t slot = 1; slot <= 5; slot++)
    CHECK(e.await(slot) == (slot < 3 ? 0 : slot == 3 ? int32_t(PLR_APPLICATION) : int32_t(PLR_SKIPPED)));
  setenv("FAKE_POPLAR_FAULT", "", 1);
  CHECK(y[4][0] == -1 && y[5][0] == -1 && r.a->look == 0);
  CHECK(e.load() == 0);
  lie(1, 3), e.send(1, PLR_RUN, 2);
  CHECK(e.await(1) == 0 && y[1][3] == 6.25f);
}

static void callbacks() {
  setenv("FAKE_POPLAR_NASTY", "poison,extra", 1);
  Engine e(adder(8, 3));
  CHECK(e.load() == 0);
  Host a, b, y;
  int given = 0, got = 0;
  a.prefetch = [&](void *p, uint64_t n) { return n == 64 && given < 100 ? (*static_cast<float *>(p) = static_cast<float>(given++), 1) : 0; };
  a.fetch = [&](void *p, uint64_t) { return *static_cast<float *>(p) = static_cast<float>(given++), 0; };
  b.fetch = [&](void *p, uint64_t) { return *static_cast<float *>(p) = 0.25f, 0; };
  y.fetch = [&](void *p, uint64_t) { return *static_cast<float *>(p) == static_cast<float>(got++) + 0.25f ? 0 : 1; };
  auto id = [](Host &h) { return reinterpret_cast<uint64_t>(&h); };
  CHECK(plr_connect_go(e.eng, "a", 0, id(a), 64, &e.err) == 0 && plr_connect_go(e.eng, "b", 0, id(b), 64, &e.err) == 0 && plr_connect_go(e.eng, "y", 1, id(y), 64, &e.err) == 0);
  CHECK(e.run(2) == 0 && get(&e.mail->runs[0].failed) == 0);
  CHECK(got == 8 && a.completed == 8 && y.completed == 8);
  y.fetch = [](void *, uint64_t) { return 1; };
  CHECK(e.run(2) == 0 && get(&e.mail->runs[0].failed) == 1);
  CHECK(a.completed == 9);
  CHECK(plr_connect_go(e.eng, "a", 0, id(a), 64, &e.err) == 0);
  setenv("FAKE_POPLAR_NASTY", "", 1);
}

static void failures() {
  struct {
    const char *script;
    int32_t code, recovery;
  } const all[] = {{"run=application", PLR_APPLICATION, 0}, {"run=recoverable:IPU_RESET", PLR_RECOVERABLE, PLR_IPU_RESET}, {"run=recoverable:FULL_RESET", PLR_RECOVERABLE, PLR_FULL_RESET},
                   {"run=recoverable:ODD", PLR_RECOVERABLE, 0}, {"run=unrecoverable", PLR_UNRECOVERABLE, 0}, {"run=unknown", PLR_UNKNOWN, 0}, {"run=system", PLR_SYSTEM, 0},
                   {"run=runtime", PLR_RUNTIME, 0}, {"run=link", PLR_POPLAR, 0}, {"run=bad_alloc", PLR_MEMORY, 0}, {"run=std", PLR_STD, 0}, {"run=int", PLR_STD, 0}};
  Engine e(adder(1, 1));
  for (const char *handle : {"a", "b", "w"})
    CHECK(plr_connect_null(e.eng, handle, 64, &e.err) == 0);
  CHECK(plr_connect_null(e.eng, "y", 0, &e.err) == 0);
  for (const auto &f : all) {
    CHECK(e.load() == 0);
    setenv("FAKE_POPLAR_FAULT", f.script, 1);
    CHECK(e.run(1) == f.code && e.err.recovery == f.recovery && e.err.msg && *e.err.msg);
    setenv("FAKE_POPLAR_FAULT", "", 1);
  }
  CHECK(e.load() == 0 && e.run(1) == 0);
  CHECK(e.run(4) == PLR_CONNECTION && e.run(9) == PLR_POPLAR);
  e.begin(0);
  e.send(0, PLR_RUN, 3);
  CHECK(plr_engine_free(e.eng, &e.err) == PLR_BUSY);
  std::thread stopping([&] { plr_engine_stop(e.eng); });
  CHECK(e.await(0) == PLR_POPLAR);
  stopping.join();
  CHECK(e.run(1) == PLR_POPLAR && e.load() == 0 && e.run(1) == 0);
}

// closing frees engines in every state, before and after the device was given back.
static void closing() {
  const std::function<void(Engine &)> states[] = {
      [](Engine &) {},
      [](Engine &e) { CHECK(e.load() == 0); },
      [](Engine &e) { CHECK(e.load() == 0 && e.load() == 0 && e.run(4) == PLR_CONNECTION); },
      [](Engine &e) {
        CHECK(e.load() == 0);
        Rings r(e);
        CHECK(e.run(2) == 0 && get(&e.mail->runs[0].failed)); // without memory
      },
      [](Engine &e) {
        setenv("FAKE_POPLAR_FAULT", "load=bad_alloc", 1);
        CHECK(e.load() == PLR_MEMORY);
      },
      [](Engine &e) {
        setenv("FAKE_POPLAR_FAULT", "run=unrecoverable", 1);
        CHECK(e.load() == 0 && e.run(3) == PLR_UNRECOVERABLE);
      },
      [](Engine &e) {
        setenv("FAKE_POPLAR_FAULT", "load=hang", 1);
        CHECK(plr_engine_device(e.eng, e.dev, &e.err) == 0);
        e.begin(0), e.send(0, PLR_LOAD, 0);
        CHECK(plr_engine_free(e.eng, &e.err) == PLR_BUSY);
        while (plr_engine_stop(e.eng), !get(&e.mail->runs[0].ended)) // also before it has begun
          std::this_thread::yield();
        CHECK(e.await(0) == PLR_POPLAR);
      },
      [](Engine &e) { // a program that never ends, runs behind it
        CHECK(e.load() == 0);
        for (uint32_t slot = 1; slot <= 4; slot++)
          e.begin(slot), e.send(slot, PLR_RUN, 3);
        CHECK(plr_engine_free(e.eng, &e.err) == PLR_BUSY);
        while (get(&e.mail->now) == PLR_SLOTS)
          std::this_thread::yield();
        plr_engine_stop(e.eng);
        for (uint32_t slot = 1; slot <= 4; slot++)
          CHECK(e.await(slot) == (slot == 1 ? int32_t(PLR_POPLAR) : int32_t(PLR_SKIPPED)));
      },
      [](Engine &e) { // a callback that waits
        CHECK(e.load() == 0);
        Host w;
        std::atomic<bool> inside{false}, goOn{false};
        w.fetch = [&](void *, uint64_t) {
          inside = true;
          while (!goOn)
            std::this_thread::yield();
          return 0;
        };
        CHECK(plr_connect_go(e.eng, "w", 0, reinterpret_cast<uint64_t>(&w), 64, &e.err) == 0);
        e.begin(0), e.send(0, PLR_RUN, 0);
        while (!inside)
          std::this_thread::yield();
        CHECK(plr_engine_free(e.eng, &e.err) == PLR_BUSY);
        plr_engine_stop(e.eng);
        goOn = true;
        CHECK(e.await(0) == 0 && w.completed == 1 && plr_connect_null(e.eng, "w", 64, &e.err) == 0); // it was at its end
      }};
  for (const auto &state : states)
    for (int first = 0; first < 2; first++) {
      Engine e(adder(2, 2));
      state(e);
      setenv("FAKE_POPLAR_FAULT", "", 1);
      if (first) // the device is given back twice, and freed once the engine is gone
        CHECK(plr_device_detach(e.dev, &e.err) == 0);
    }
}

// late has the engine's thread be slow to park, and commands come meanwhile.
static void late() {
  Engine e(adder(1, 1));
  CHECK(e.load() == 0 && plr_connect_null(e.eng, "w", 64, &e.err) == 0);
  fake_pauses(1000);
  for (int k = 0; k < 30; k++) {
    std::this_thread::sleep_for(std::chrono::microseconds(700 * (k % 4)));
    CHECK(e.run(0, k % 2 ? PLR_AT_EVENT : PLR_AT_FUTEX) == 0);
  }
  fake_pauses(0);
}

static void executables() {
  const std::string good = adder(2, 2);
  plr_err err{};
  for (size_t n = 0; n < good.size(); n += 7) { // whatever is left of a file is an executable or an error
    plr_exe *exe = nullptr;
    const std::string part = good.substr(0, n);
    if (plr_exe_from_memory(part.data(), part.size(), 1, &exe, &err) == 0)
      plr_exe_free(exe);
    else
      CHECK(err.msg);
  }
  char name[] = "/tmp/popefgen-poplar-XXXXXX";
  int fd = mkstemp(name);
  CHECK(fd >= 0 && unlink(name) == 0);
  const std::string padded = std::string(70000, 'x') + good;
  CHECK(write(fd, padded.data(), padded.size()) == static_cast<ssize_t>(padded.size()));
  plr_exe *exe = nullptr;
  CHECK(plr_exe_from_file(fd, 70000, good.size(), 1, &exe, &err) == 0);
  plr_exe_free(exe);
  CHECK(plr_exe_from_file(fd, 70000, good.size() + 1, 1, &exe, &err) == PLR_POPLAR);
  close(fd);
  const std::string other = "GC_EXE_FAKE\nhash 0\n" + good.substr(12);
  CHECK(plr_exe_from_memory(other.data(), other.size(), 1, &exe, &err) == PLR_HASH);
  CHECK(plr_exe_from_memory(other.data(), other.size(), 0, &exe, &err) == 0);
  const char pair[] = "no.such\0" "1";
  plr_engine *eng = nullptr;
  CHECK(plr_engine_new(exe, plr_options{pair, 1}, &eng, &err) == PLR_OPTION);
  plr_err_clear(&err);
}

static void devices() {
  plr_err err{};
  plr_devinfo *all = nullptr;
  size_t n = 0;
  CHECK(plr_devices(none, &all, &n, &err) == 0 && n == 7 && all[6].ipus == 4 && all[0].remote_buffers == -1);
  plr_free(all);
  std::atomic<int> held{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([&] {
      for (int k = 0; k < 200; k++) {
        plr_err err{};
        plr_device *d = nullptr;
        int32_t ok = 0;
        CHECK(plr_device_open(static_cast<uint32_t>(k % 2 ? 4 : 0), none, &d, &err) == 0); // a pair, and one of its IPUs
        CHECK(plr_device_attach(d, &ok, &err) == 0);
        if (ok) {
          CHECK(held++ == 0);
          held--;
          CHECK(plr_device_detach(d, &err) == 0);
        }
        plr_device_free(d);
      }
    });
  for (auto &t : threads)
    t.join();
  plr_device *d = nullptr;
  CHECK(plr_device_open(99, none, &d, &err) == PLR_POPLAR);
  plr_err_clear(&err);
}

static void several() {
  std::vector<std::thread> threads;
  for (uint32_t id = 0; id < 3; id++)
    threads.emplace_back([id] {
      Engine e(adder(50, 2), id);
      CHECK(e.load() == 0);
      float w[16] = {static_cast<float>(id)}, back[8] = {}, block[8] = {7};
      Host s;
      s.fetch = [&](void *p, uint64_t) { return *static_cast<float *>(p) == static_cast<float>(id) ? 0 : 1; };
      CHECK(plr_connect_memory(e.eng, "w", w, sizeof w, &e.err) == 0 && plr_connect_go(e.eng, "s", 1, reinterpret_cast<uint64_t>(&s), 64, &e.err) == 0);
      CHECK(plr_connect_memory(e.eng, "w", w, 8, &e.err) == PLR_CONNECTION);
      for (int k = 0; k < 20; k++)
        CHECK(e.run(0) == 0 && e.run(4) == 0 && get(&e.mail->runs[0].failed) == 0);
      CHECK(plr_remote_write(e.eng, "r", 2, block, &e.err) == 0 && plr_remote_read(e.eng, "r", 2, back, &e.err) == 0 && back[0] == 7);
      CHECK(plr_remote_read(e.eng, "r", 3, back, &e.err) == PLR_POPLAR && plr_remote_read(e.eng, "q", 0, back, &e.err) == PLR_CONNECTION);
      char *names = nullptr;
      size_t n = 0;
      CHECK(plr_engine_streams(e.eng, &names, &n, &e.err) == 0 && n == 5 && std::string(names) == "w+");
      plr_free(names);
    });
  for (auto &t : threads)
    t.join();
}

int main() {
  size_t layout[PLR_LAYOUT];
  plr_layout(layout);
  CHECK(layout[0] == sizeof(plr_err) && *plr_version() && *plr_package_hash());
  for (const char *nasty : {"", "poison,refuse,seed=5", "extra,discard,seed=9", "delay,silent", "latency=20"}) {
    for (int depth : {1, 4})
      for (int more : {0, 3})
        rings(nasty, 40, depth, more);
    staged(nasty);
  }
  setenv("FAKE_POPLAR_NASTY", "", 1);
  starved();
  memory();
  callbacks();
  failures();
  closing();
  late();
  executables();
  devices();
  several();
  std::puts("ok");
}
