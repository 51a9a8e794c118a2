//go:build poplar && linux && cgo

#include "shim.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <istream>
#include <linux/futex.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <streambuf>
#include <sys/syscall.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <poplar/Engine.hpp>
#include <poplar/Executable.hpp>
#include <poplar/StreamCallback.hpp>

// load and store are in one order for all threads: a side sets its flag and looks again, the other changes what is
// looked at and then looks for the flag, so that one of them sees what the other did.
template <class T> static T load(const T *p) noexcept { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
template <class T> static void store(T *p, T v) noexcept { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }

// wake_go wakes who waits for a command.
static void wake_go(plr_run *r) noexcept {
  if (load(&r->go_waits) == PLR_NOBODY)
    return;
  switch (__atomic_exchange_n(&r->go_waits, uint32_t(PLR_NOBODY), __ATOMIC_SEQ_CST)) {
  case PLR_AT_FUTEX:
    syscall(SYS_futex, &r->go_waits, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    break;
  case PLR_AT_EVENT:
    const uint64_t one = 1;
    while (write(r->event, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }
}

#ifdef PLR_TEST_PAUSE
extern "C" void fake_pause(void); // of the fake, which makes a thread slow where this matters
#else
static void fake_pause() {}
#endif

// park waits until ready holds. Who changes that clears *flag and wakes it.
template <class F> static void park(uint32_t *flag, F ready) noexcept {
  while (!ready()) {
    fake_pause();
    store(flag, 1u);
    if (ready())
      break;
    fake_pause();
    syscall(SYS_futex, flag, FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
  }
  store(flag, 0u);
}

// under_way returns the run under way, or nothing.
static plr_run *under_way(plr_mail *m) noexcept {
  const uint32_t slot = load(&m->now);
  return slot < PLR_SLOTS ? &m->runs[slot] : nullptr;
}

// fail ends a run: what Go waits for it with has to know.
static void fail(plr_run *r) noexcept {
  store(&r->failed, 1u);
  wake_go(r);
}

namespace {

// Ringed is a stream that finds its transfers in the memory of the run under way.
class Ringed : public poplar::StreamCallback {
public:
  explicit Ringed(plr_ring *r) : ring(r) {}

protected:
  // mine returns the run's memory for this stream; nothing if the run has none.
  plr_part *mine(plr_run *r) noexcept {
    plr_part *p = &ring->parts[r - ring->mail->runs];
    return p->run == r->number ? p : nullptr;
  }
  // starved ends a run that moves more than it has memory for.
  void starved(plr_run *r, plr_part *p) noexcept {
    ring->starved++;
    if (p)
      p->over = 1;
    fail(r);
  }
  void *at(const plr_part *p, uint64_t i) noexcept { return reinterpret_cast<void *>(p->mem + i * ring->bytes); }
  plr_ring *ring;
};

// Input hands over what lies there. Of transfers that were handed over and are not complete it knows how many, for the
// case that they are thrown away.
class Input : public Ringed {
public:
  using Ringed::Ringed;

  Result prefetch(void *to) noexcept override {
    plr_run *r = under_way(ring->mail);
    plr_part *p = r ? mine(r) : nullptr;
    if (!p || p->moved + ring->look >= p->n || load(&r->failed)) {
      ring->refused++;
      return Result::NotAvailable;
    }
    take(p, to);
    ring->prefetched++;
    return Result::Success;
  }

  void fetch(void *to) noexcept override {
    plr_run *r = under_way(ring->mail);
    ring->fetched++;
    if (r && !load(&r->failed)) {
      plr_part *p = mine(r);
      if (p && p->moved + ring->look < p->n)
        return take(p, to);
      starved(r, p);
    }
    std::memset(to, 0, ring->bytes);
  }

  void complete() noexcept override {
    if (ring->look == 0)
      return; // of a fetch in a run that failed
    ring->look--;
    plr_run *r = under_way(ring->mail);
    if (plr_part *p = r ? mine(r) : nullptr)
      p->moved++;
  }

  void invalidatePrefetched() noexcept override { ring->look = 0; }

private:
  void take(const plr_part *p, void *to) noexcept {
    std::memcpy(to, at(p, p->moved + ring->look), ring->bytes);
    ring->look++;
  }
};

// Output puts there what arrives.
class Output : public Ringed {
public:
  using Ringed::Ringed;
  Result prefetch(void *) noexcept override { return Result::NotAvailable; }

  void fetch(void *from) noexcept override {
    plr_run *r = under_way(ring->mail);
    ring->fetched++;
    if (!r || load(&r->failed))
      return;
    plr_part *p = mine(r);
    if (p && !p->mem)
      return;
    if (!p || p->moved >= p->n)
      return starved(r, p);
    std::memcpy(at(p, p->moved), from, ring->bytes);
    p->moved++;
  }
};

// Go calls a stream of Go. Once one of a run has failed, the others are left alone until the next.
class Go : public poplar::StreamCallback {
public:
  Go(plr_mail *mail, uint64_t id, size_t bytes, bool output) : mail(mail), id(id), bytes(bytes), output(output) {}

  Result prefetch(void *p) noexcept override {
    if (output || failed())
      return Result::NotAvailable;
    int32_t r = plrGoPrefetch(id, p, bytes);
    failing(r < 0);
    return r > 0 ? Result::Success : Result::NotAvailable;
  }

  void fetch(void *p) noexcept override {
    if (!failed())
      failing(plrGoFetch(id, p, bytes) != 0);
    if (output)
      completed(); // whether Poplar says so of outputs is not known
    else if (failed())
      std::memset(p, 0, bytes);
  }

  void complete() noexcept override {
    if (!output)
      completed();
  }

  void invalidatePrefetched() noexcept override { failing(plrGoInvalidate(id) != 0); }

private:
  void completed() noexcept {
    if (!failed())
      failing(plrGoComplete(id) != 0);
  }
  bool failed() noexcept {
    plr_run *r = under_way(mail);
    return r && load(&r->failed);
  }
  void failing(bool is) noexcept {
    plr_run *r = under_way(mail);
    if (is && r)
      fail(r);
  }
  plr_mail *mail;
  uint64_t id;
  size_t bytes;
  bool output;
};

// Null is a source of zeros and a sink.
class Null : public poplar::StreamCallback {
public:
  Null(size_t zeros) : zeros(zeros) {}
  Result prefetch(void *p) noexcept override {
    fetch(p);
    return Result::Success;
  }
  void fetch(void *p) noexcept override {
    if (zeros)
      std::memset(p, 0, zeros);
  }

private:
  size_t zeros; // bytes of an input, 0 for an output
};

// Memory reads from memory that somebody else has.
class Memory : public std::streambuf {
public:
  Memory(const void *mem, size_t size) {
    char *p = const_cast<char *>(static_cast<const char *>(mem)); // it is not written to
    setg(p, p, p + size);
  }

protected:
  pos_type seekoff(off_type off, std::ios_base::seekdir from, std::ios_base::openmode) override {
    off_type base = from == std::ios_base::beg ? 0 : from == std::ios_base::cur ? gptr() - eback() : egptr() - eback();
    if (base + off < 0 || base + off > egptr() - eback())
      return pos_type(off_type(-1));
    setg(eback(), eback() + base + off, egptr());
    return pos_type(base + off);
  }
  pos_type seekpos(pos_type p, std::ios_base::openmode m) override { return seekoff(off_type(p), std::ios_base::beg, m); }
};

// File reads a part of a file, which it does not move the offset of.
class File : public std::streambuf {
public:
  File(int fd, uint64_t offset, uint64_t size) : fd(fd), offset(offset), size(size), buffer(1 << 16) { setg(nullptr, nullptr, nullptr); }

protected:
  int_type underflow() override {
    if (at >= size)
      return traits_type::eof();
    ssize_t n;
    do
      n = pread(fd, buffer.data(), static_cast<size_t>(std::min<uint64_t>(buffer.size(), size - at)), static_cast<off_t>(offset + at));
    while (n < 0 && errno == EINTR);
    if (n < 0)
      failed = errno;
    if (n <= 0)
      return traits_type::eof();
    at += static_cast<uint64_t>(n);
    setg(buffer.data(), buffer.data(), buffer.data() + n);
    return traits_type::to_int_type(*gptr());
  }
  pos_type seekoff(off_type off, std::ios_base::seekdir from, std::ios_base::openmode) override {
    off_type here = static_cast<off_type>(at) - (egptr() - gptr());
    off_type to = off + (from == std::ios_base::beg ? 0 : from == std::ios_base::cur ? here : static_cast<off_type>(size));
    if (to < 0 || to > static_cast<off_type>(size))
      return pos_type(off_type(-1));
    if (from != std::ios_base::cur || off != 0) {
      at = static_cast<uint64_t>(to);
      setg(nullptr, nullptr, nullptr);
    }
    return pos_type(to);
  }
  pos_type seekpos(pos_type p, std::ios_base::openmode m) override { return seekoff(off_type(p), std::ios_base::beg, m); }

public:
  // check throws what reading failed with, which a reader takes for the end.
  void check() const {
    if (failed)
      throw std::system_error(failed, std::generic_category(), "read");
  }

private:
  int failed = 0; // errno
  int fd;
  uint64_t offset, size, at = 0; // at: behind what is in the buffer
  std::vector<char> buffer;
};

} // namespace

extern "C" plr_ring *plr_ring_new(uint64_t bytes, plr_mail *mail) {
  void *p = nullptr;
  if (posix_memalign(&p, 128, sizeof(plr_ring)) != 0)
    return nullptr;
  std::memset(p, 0, sizeof(plr_ring));
  auto r = static_cast<plr_ring *>(p);
  r->bytes = bytes, r->mail = mail;
  return r;
}

extern "C" void plr_ring_free(plr_ring *r) { std::free(r); }

// ---- executables and engines ----

struct plr_exe {
  poplar::Executable executable;
};

namespace {

// deserialize calls Executable::deserialize with the flag where it has one, as from 3.0 on.
template <class E> auto deserialize(std::istream &in, bool check, int) -> decltype(E::deserialize(in, check)) { return E::deserialize(in, check); }
template <class E> E deserialize(std::istream &in, bool, long) { return E::deserialize(in); }

// stop calls Engine::stop where there is one.
template <class E> auto stop(E &e, int) -> decltype(e.stop()) { return e.stop(); }
template <class E> void stop(E &, long) {}

plr_exe *read(std::streambuf &b, int32_t check) {
  std::istream in(&b);
  return new plr_exe{deserialize<poplar::Executable>(in, check != 0, 0)};
}

} // namespace

extern "C" int32_t plr_exe_from_memory(const void *mem, size_t size, int32_t check, plr_exe **out, plr_err *err) {
  return guard(err, [&] {
    Memory b(mem, size);
    *out = read(b, check);
  });
}

extern "C" int32_t plr_exe_from_file(int32_t fd, uint64_t offset, uint64_t size, int32_t check, plr_exe **out, plr_err *err) {
  return guard(err, [&] {
    File b(fd, offset, size);
    std::unique_ptr<plr_exe> exe;
    try {
      exe.reset(read(b, check));
    } catch (...) {
      b.check();
      throw;
    }
    b.check();
    *out = exe.release();
  });
}

extern "C" void plr_exe_free(plr_exe *exe) {
  guard(nullptr, [&] { delete exe; });
}

// plr_engine is an engine with a thread of its own, on which it loads and runs: all calls that may take long, and all
// callbacks of the mode singleThread, come from there.
struct plr_engine {
  plr_engine(poplar::Executable &&exe, const poplar::OptionFlags &options, plr_mail *m) : engine(std::move(exe), options), mail(m), thread([this] { work(); }) {}
  ~plr_engine() {
    if (thread.joinable()) {
      command(PLR_QUIT);
      thread.join();
    }
    for (plr_err &e : errors)
      plr_err_clear(&e);
    engine.reset();
    std::free(mail);
  }

  // command is what Go does by itself.
  void command(uint32_t what) noexcept {
    mail->runs[0].command = what;
    mail->queue[mail->asked % PLR_QUEUE] = 0;
    store(&mail->asked, mail->asked + 1);
    if (__atomic_exchange_n(&mail->c_waits, 0u, __ATOMIC_SEQ_CST))
      syscall(SYS_futex, &mail->c_waits, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  void work() noexcept {
    pthread_setname_np(pthread_self(), "poplar engine"); // for who looks at the threads of a process
    for (uint32_t k = 0;; k++) {
      park(&mail->c_waits, [&] { return load(&mail->asked) != k; });
      const uint32_t slot = mail->queue[k % PLR_QUEUE];
      plr_run *r = &mail->runs[slot];
      if (r->command == PLR_QUIT)
        return;
      if (load(&r->failed) || (r->command == PLR_RUN && broken && r->epoch == epoch))
        r->result = PLR_SKIPPED;
      else {
        r->result = one(slot);
        if (r->result != PLR_OK)
          broken = true, epoch = r->epoch;
      }
      store(&mail->ended, k + 1);
      store(&r->ended, 1u);
      wake_go(r);
    }
  }

  // one carries out a command, and returns its code.
  int32_t one(uint32_t slot) noexcept {
    plr_run *r = &mail->runs[slot];
    if (r->command == PLR_LOAD)
      return guard(&errors[slot], [&] {
        std::shared_ptr<poplar::Device> to = next; // the one before is there until the engine has left it
        engine->load(*to);
        device = std::move(to);
      });
    store(&mail->now, slot);
    int32_t code = guard(&errors[slot], [&] { engine->run(r->program); });
    for (auto &c : rings) // what was handed over and not used is not for the next run
      if (c.second->look != 0) {
        const int32_t again = guard(code == PLR_OK ? &errors[slot] : nullptr, [&] { connect(c.first, c.second, false); });
        if (code == PLR_OK)
          code = again;
        c.second->look = 0;
      }
    store(&mail->now, uint32_t(PLR_SLOTS));
    return code;
  }

  // connect connects a ring. What was prefetched through the one before is thrown away.
  void connect(const std::string &handle, plr_ring *r, bool output) {
    if (output)
      engine->connectStreamToCallback(handle, std::make_unique<Output>(r));
    else
      engine->connectStreamToCallback(handle, std::make_unique<Input>(r));
  }

  // Holder is an Engine that can be freed before the rest.
  struct Holder {
    Holder(poplar::Executable &&exe, const poplar::OptionFlags &o) : e(new poplar::Engine(std::move(exe), o)) {}
    poplar::Engine *operator->() { return e.get(); }
    poplar::Engine &operator*() { return *e; }
    void reset() { e.reset(); }
    std::unique_ptr<poplar::Engine> e;
  };

  Holder engine;
  plr_mail *mail;
  std::shared_ptr<poplar::Device> device, next; // that it is loaded on, and that the next PLR_LOAD is for
  plr_err errors[PLR_SLOTS] = {};           // by slot
  std::map<std::string, plr_ring *> rings; // of inputs, by handle
  bool broken = false;                     // a command has failed, of that epoch
  uint32_t epoch = 0;
  std::thread thread;
};

extern "C" int32_t plr_engine_new(plr_exe *exe, plr_options options, plr_engine **out, plr_err *err) {
  std::unique_ptr<plr_exe> own(exe);
  void *p = nullptr;
  if (posix_memalign(&p, 128, sizeof(plr_mail)) != 0)
    return fill(err, PLR_MEMORY, "std::bad_alloc", "no memory for the engine");
  std::memset(p, 0, sizeof(plr_mail));
  auto mail = static_cast<plr_mail *>(p);
  mail->now = PLR_SLOTS;
  const int32_t code = guard(err, [&] { *out = new plr_engine(std::move(own->executable), flags(options), mail); });
  if (code != PLR_OK)
    std::free(mail);
  return code;
}

extern "C" plr_mail *plr_engine_mail(plr_engine *eng) { return eng->mail; }

extern "C" int32_t plr_engine_streams(plr_engine *eng, char **names, size_t *n, plr_err *err) {
  return guard(err, [&] {
    std::string all;
    *n = 0;
    for (const std::string &s : eng->engine->listStreams()) {
      all += s;
      all += '\0';
      ++*n;
    }
    *names = static_cast<char *>(std::malloc(all.size() + 1));
    if (!*names)
      throw std::bad_alloc();
    std::memcpy(*names, all.c_str(), all.size() + 1);
  });
}

extern "C" int32_t plr_engine_device(plr_engine *eng, plr_device *dev, plr_err *err) {
  return guard(err, [&] { eng->next = dev->device; });
}

extern "C" int32_t plr_engine_error(plr_engine *eng, uint32_t slot, plr_err *err) {
  const int32_t code = eng->errors[slot].code;
  plr_err_clear(err);
  *err = eng->errors[slot];
  eng->errors[slot] = plr_err{};
  return code;
}

extern "C" void plr_engine_stop(plr_engine *eng) {
  guard(nullptr, [&] { stop(*eng->engine, 0); });
}

extern "C" int32_t plr_engine_free(plr_engine *eng, plr_err *err) {
  if (load(&eng->mail->asked) != load(&eng->mail->ended))
    return fill(err, PLR_BUSY, "", "the engine has a command under way");
  return guard(err, [&] { delete eng; });
}

// connected is guard for what connects a stream, an input's to a ring if there is one. Nothing that may fail comes behind that: what failed is not connected.
template <class F> static int32_t connected(plr_engine *eng, const char *handle, plr_err *err, F f, plr_ring *ring = nullptr) noexcept {
  return guard(err, [&] {
    const std::string h(handle);
    std::map<std::string, plr_ring *> one;
    if (ring)
      one[h] = ring;
    f(h);
    eng->rings.erase(h);
    eng->rings.merge(one);
  });
}

extern "C" int32_t plr_connect_memory(plr_engine *eng, const char *handle, void *mem, size_t size, plr_err *err) {
  return connected(eng, handle, err, [&](const std::string &h) { eng->engine->connectStream(h, mem, static_cast<char *>(mem) + size); });
}

extern "C" int32_t plr_connect_ring(plr_engine *eng, const char *handle, int32_t output, plr_ring *ring, plr_err *err) {
  return connected(
      eng, handle, err, [&](const std::string &h) { eng->connect(h, ring, output != 0); }, output ? nullptr : ring);
}

extern "C" int32_t plr_connect_go(plr_engine *eng, const char *handle, int32_t output, uint64_t id, size_t bytes, plr_err *err) {
  return connected(eng, handle, err, [&](const std::string &h) { eng->engine->connectStreamToCallback(h, std::make_unique<Go>(eng->mail, id, bytes, output != 0)); });
}

extern "C" int32_t plr_connect_null(plr_engine *eng, const char *handle, size_t bytes, plr_err *err) {
  return connected(eng, handle, err, [&](const std::string &h) { eng->engine->connectStreamToCallback(h, std::make_unique<Null>(bytes)); });
}

extern "C" int32_t plr_remote_write(plr_engine *eng, const char *handle, uint64_t repeat, const void *mem, plr_err *err) {
  return guard(err, [&] { eng->engine->copyToRemoteBuffer(const_cast<void *>(mem), std::string(handle), repeat); });
}

extern "C" int32_t plr_remote_read(plr_engine *eng, const char *handle, uint64_t repeat, void *mem, plr_err *err) {
  return guard(err, [&] { eng->engine->copyFromRemoteBuffer(std::string(handle), mem, repeat); });
}
