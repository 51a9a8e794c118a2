// The shim and the fake without Go, for sanitizers: make poplar builds it with each of them. What Go does to rings and
// mail is done here in its way.

#include "../shim.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <linux/futex.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define CHECK(x)                                                                                                       \
  do {                                                                                                                 \
    if (!(x)) {                                                                                                        \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #x);                                       \
      std::exit(1);                                                                                                    \
    }                                                                                                                  \
  } while (0)

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
  int event = eventfd(0, EFD_CLOEXEC);

  Engine(const std::string &text, uint32_t id = 0) {
    int32_t ok = 0;
    CHECK(plr_device_open(id, none, &dev, &err) == 0);
    CHECK(plr_device_attach(dev, &ok, &err) == 0 && ok);
    plr_exe *exe = nullptr;
    CHECK(plr_exe_from_memory(text.data(), text.size(), 1, &exe, &err) == 0);
    CHECK(plr_engine_new(exe, none, event, &eng, &err) == 0);
    mail = plr_engine_mail(eng);
  }
  ~Engine() {
    CHECK(plr_engine_free(eng, &err) == 0);
    CHECK(plr_device_detach(dev, &err) == 0);
    plr_device_free(dev);
    plr_err_clear(&err);
    close(event);
  }
  void send(uint32_t command, uint32_t program) {
    put(&mail->command, command);
    put(&mail->program, program);
    put(&mail->asked, get(&mail->asked) + 1);
    wake(&mail->c_waits);
  }
  // await waits in the way of Go; pump is what it does meanwhile, and tells whether it did something.
  int32_t await(const std::function<bool()> &pump) {
    while (get(&mail->ended) != get(&mail->asked)) {
      pump();
      put(&mail->go_waits, 1);
      if (get(&mail->ended) == get(&mail->asked) || pump())
        continue;
      uint64_t n;
      CHECK(read(event, &n, sizeof n) == sizeof n);
    }
    pump();
    int32_t code = mail->result;
    if (code)
      CHECK(plr_engine_error(eng, &err) == code);
    return code;
  }
  int32_t load() {
    CHECK(plr_engine_device(eng, dev, &err) == 0);
    send(PLR_LOAD, 0);
    return await([] { return false; });
  }
  int32_t run(uint32_t p, const std::function<bool()> &pump = [] { return false; }) {
    put(&mail->failed, 0);
    send(PLR_RUN, p);
    return await(pump);
  }
};

static float &element(plr_ring *r, uint64_t i) { return *reinterpret_cast<float *>(r->slots + (i & r->mask) * r->stride); }

// rings moves n transfers through rings of some slots.
static void rings(const char *nasty, int n, int depth, uint64_t slots) {
  setenv("FAKE_POPLAR_NASTY", nasty, 1);
  Engine e(adder(n, depth));
  CHECK(e.load() == 0);
  plr_ring *a = plr_ring_new(slots, 64, e.mail), *b = plr_ring_new(slots, 64, e.mail), *y = plr_ring_new(slots, 64, e.mail);
  CHECK(a && b && y && reinterpret_cast<uintptr_t>(a->slots) % 4096 == 0);
  CHECK(plr_connect_ring(e.eng, "a", 0, a, &e.err) == 0);
  CHECK(plr_connect_ring(e.eng, "b", 0, b, &e.err) == 0);
  CHECK(plr_connect_ring(e.eng, "y", 1, y, &e.err) == 0);
  for (int round = 0; round < 2; round++) {
    uint64_t given = a->tail, taken = y->head, first = given, last = given + static_cast<uint64_t>(n);
    CHECK(e.run(2, [&] {
      bool did = false;
      while (given < last && given - get(&a->head) <= a->mask && given - get(&b->head) <= b->mask) {
        element(a, given) = static_cast<float>(given - first), element(b, given) = 0.5f;
        given++;
        put(&a->tail, given), put(&b->tail, given);
        wake(&a->c_waits), wake(&b->c_waits);
        did = true;
      }
      bool full = given < last;
      put(&a->go_waits, full), put(&b->go_waits, full);
      while (taken < get(&y->tail)) {
        CHECK(element(y, taken) == static_cast<float>(taken - first) + 0.5f);
        put(&y->head, ++taken);
        wake(&y->c_waits);
        did = true;
      }
      return did || (full && given - get(&a->head) <= a->mask && given - get(&b->head) <= b->mask);
    }) == 0);
    CHECK(taken == last && a->head == last && b->head == last && a->look == 0);
  }
  plr_engine *eng = e.eng;
  CHECK(plr_connect_null(eng, "a", 64, &e.err) == 0 && plr_connect_null(eng, "b", 64, &e.err) == 0 && plr_connect_null(eng, "y", 0, &e.err) == 0);
  plr_ring_free(a), plr_ring_free(b), plr_ring_free(y);
  CHECK(e.run(1) == 0);
}

// starved ends a run whose input never comes, by the flag that says it has failed.
static void starved() {
  setenv("FAKE_POPLAR_NASTY", "latency=20000", 1); // who waits for the run is parked by then
  Engine e(adder(2, 2));
  setenv("FAKE_POPLAR_NASTY", "", 1);
  CHECK(e.load() == 0);
  plr_ring *a = plr_ring_new(4, 64, e.mail), *y = plr_ring_new(1, 64, e.mail);
  CHECK(plr_connect_ring(e.eng, "a", 0, a, &e.err) == 0 && plr_connect_null(e.eng, "b", 64, &e.err) == 0 && plr_connect_ring(e.eng, "y", 1, y, &e.err) == 0);
  CHECK(plr_connect_ring(e.eng, "none", 0, a, &e.err) == PLR_CONNECTION);
  CHECK(e.run(2, [&] {
    if (get(&a->c_waits) == 0)
      return false;
    put(&e.mail->failed, 1);
    wake(&a->c_waits), wake(&y->c_waits);
    return true;
  }) == 0);
  CHECK(a->starved == 1 && y->tail == 0);
  CHECK(plr_connect_null(e.eng, "a", 64, &e.err) == 0 && plr_connect_null(e.eng, "y", 0, &e.err) == 0);
  plr_ring_free(a), plr_ring_free(y);
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
  CHECK(e.run(2) == 0 && get(&e.mail->failed) == 0);
  CHECK(got == 8 && a.completed == 8 && y.completed == 8);
  y.fetch = [](void *, uint64_t) { return 1; };
  CHECK(e.run(2) == 0 && get(&e.mail->failed) == 1);
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
  e.send(PLR_RUN, 3);
  CHECK(plr_engine_free(e.eng, &e.err) == PLR_BUSY);
  std::thread stopping([&] { plr_engine_stop(e.eng); });
  CHECK(e.await([] { return false; }) == PLR_POPLAR);
  stopping.join();
  CHECK(e.run(1) == PLR_POPLAR && e.load() == 0 && e.run(1) == 0);
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
  CHECK(plr_engine_new(exe, plr_options{pair, 1}, -1, &eng, &err) == PLR_OPTION);
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
        CHECK(e.run(0) == 0 && e.run(4) == 0 && get(&e.mail->failed) == 0);
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
  for (const char *nasty : {"", "poison,refuse,seed=5", "extra,discard,seed=9", "latency=20"})
    for (uint64_t slots : {1, 2, 8, 64})
      rings(nasty, 40, slots == 1 ? 1 : 4, slots);
  setenv("FAKE_POPLAR_NASTY", "", 1);
  starved();
  callbacks();
  failures();
  executables();
  devices();
  several();
  std::puts("ok");
}
