//go:build poplar && linux && cgo

#include "shim.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <istream>
#include <linux/futex.h>
#include <mutex>
#include <streambuf>
#include <sys/syscall.h>
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

static void wake_go(plr_mail *m) noexcept {
  if (load(&m->go_waits) && __atomic_exchange_n(&m->go_waits, 0u, __ATOMIC_SEQ_CST)) {
    const uint64_t one = 1;
    while (write(m->eventfd, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }
}

// park waits until ready holds. Go clears *flag and wakes it after every change.
template <class F> static void park(uint32_t *flag, F ready) noexcept {
  while (!ready()) {
    store(flag, 1u);
    if (ready())
      break;
    syscall(SYS_futex, flag, FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
  }
  store(flag, 0u);
}

namespace {

// Input hands over what lies in a ring. Transfers that were handed over and are not complete stay there, for the
// case that they are thrown away.
class Input : public poplar::StreamCallback {
public:
  explicit Input(plr_ring *r) : r(r) {}

  Result prefetch(void *p) noexcept override {
    if (r->head + r->look >= load(&r->tail) || load(&r->mail->failed)) {
      r->refused++;
      return Result::NotAvailable;
    }
    take(p);
    r->prefetched++;
    return Result::Success;
  }

  void fetch(void *p) noexcept override {
    auto there = [&] { return r->head + r->look < load(&r->tail); };
    auto over = [&] { return there() || load(&r->mail->failed); };
    r->fetched++;
    if (!over()) {
      r->starved++;
      store(&r->c_waits, 1u); // Go looks for it
      wake_go(r->mail);
      park(&r->c_waits, over);
    }
    if (load(&r->mail->failed)) {
      std::memset(p, 0, r->bytes);
      return;
    }
    take(p);
  }

  void complete() noexcept override {
    if (r->look == 0)
      return; // of a fetch in a run that failed
    store(&r->look, r->look - 1);
    store(&r->head, r->head + 1);
    if (load(&r->go_waits))
      wake_go(r->mail);
  }

  void invalidatePrefetched() noexcept override { store(&r->look, uint64_t(0)); }

private:
  void take(void *p) noexcept {
    std::memcpy(p, r->slots + ((r->head + r->look) & r->mask) * r->stride, r->bytes);
    store(&r->look, r->look + 1);
  }
  plr_ring *r;
};

// Output puts into a ring what arrives.
class Output : public poplar::StreamCallback {
public:
  explicit Output(plr_ring *r) : r(r) {}
  Result prefetch(void *) noexcept override { return Result::NotAvailable; }

  void fetch(void *p) noexcept override {
    auto room = [&] { return r->tail - load(&r->head) <= r->mask; };
    auto over = [&] { return room() || load(&r->mail->failed); };
    r->fetched++;
    if (!over()) {
      r->starved++;
      store(&r->c_waits, 1u);
      wake_go(r->mail);
      park(&r->c_waits, over);
    }
    if (load(&r->mail->failed))
      return;
    std::memcpy(r->slots + (r->tail & r->mask) * r->stride, p, r->bytes);
    store(&r->tail, r->tail + 1);
  }

private:
  plr_ring *r;
};

// Go calls a stream of Go. Once one of a run has failed, the others are left alone until the next.
class Go : public poplar::StreamCallback {
public:
  Go(plr_mail *mail, uint64_t id, size_t bytes, bool output) : mail(mail), id(id), bytes(bytes), output(output) {}

  Result prefetch(void *p) noexcept override {
    if (output || load(&mail->failed))
      return Result::NotAvailable;
    int32_t r = plrGoPrefetch(id, p, bytes);
    failed(r < 0);
    return r > 0 ? Result::Success : Result::NotAvailable;
  }

  void fetch(void *p) noexcept override {
    if (!load(&mail->failed))
      failed(plrGoFetch(id, p, bytes) != 0);
    if (load(&mail->failed) && !output)
      std::memset(p, 0, bytes);
  }

  void complete() noexcept override {
    if (!load(&mail->failed))
      failed(plrGoComplete(id) != 0);
  }

  void invalidatePrefetched() noexcept override { failed(plrGoInvalidate(id) != 0); }

private:
  void failed(bool is) noexcept {
    if (is)
      store(&mail->failed, 1u);
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

private:
  int fd;
  uint64_t offset, size, at = 0; // at: behind what is in the buffer
  std::vector<char> buffer;
};

} // namespace

extern "C" plr_ring *plr_ring_new(uint64_t slots, uint64_t bytes, plr_mail *mail) {
  void *p = nullptr, *s = nullptr;
  const uint64_t stride = (std::max<uint64_t>(bytes, 1) + 63) / 64 * 64;
  if (slots == 0 || (slots & (slots - 1)) || stride < bytes || stride > SIZE_MAX / slots)
    return nullptr;
  if (posix_memalign(&p, 128, sizeof(plr_ring)) != 0)
    return nullptr;
  if (posix_memalign(&s, 4096, slots * stride) != 0) {
    std::free(p);
    return nullptr;
  }
  std::memset(p, 0, sizeof(plr_ring));
  auto r = static_cast<plr_ring *>(p);
  r->mask = slots - 1, r->bytes = bytes, r->stride = stride, r->slots = static_cast<uint8_t *>(s), r->mail = mail;
  return r;
}

extern "C" void plr_ring_free(plr_ring *r) {
  if (r)
    std::free(r->slots);
  std::free(r);
}

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
    *out = read(b, check);
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
    plr_err_clear(&error);
    engine.reset();
    std::free(mail);
  }

  // command is what Go does by itself.
  void command(uint32_t what) noexcept {
    store(&mail->command, what);
    store(&mail->asked, mail->asked + 1);
    if (__atomic_exchange_n(&mail->c_waits, 0u, __ATOMIC_SEQ_CST))
      syscall(SYS_futex, &mail->c_waits, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  void work() noexcept {
    for (uint32_t done = 0;; store(&mail->ended, ++done), wake_go(mail)) {
      park(&mail->c_waits, [&] { return load(&mail->asked) != done; });
      switch (load(&mail->command)) {
      case PLR_RUN:
        mail->result = guard(&error, [&] { engine->run(mail->program); });
        break;
      case PLR_LOAD:
        mail->result = guard(&error, [&] { engine->load(*device); });
        break;
      default:
        return;
      }
    }
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
  std::shared_ptr<poplar::Device> device;
  plr_err error{};
  std::thread thread;
};

extern "C" int32_t plr_engine_new(plr_exe *exe, plr_options options, int32_t eventfd, plr_engine **out, plr_err *err) {
  std::unique_ptr<plr_exe> own(exe);
  void *p = nullptr;
  if (posix_memalign(&p, 128, sizeof(plr_mail)) != 0)
    return fill(err, PLR_MEMORY, "std::bad_alloc", "no memory for the engine");
  std::memset(p, 0, sizeof(plr_mail));
  auto mail = static_cast<plr_mail *>(p);
  mail->eventfd = eventfd;
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
  return guard(err, [&] { eng->device = dev->device; });
}

extern "C" int32_t plr_engine_error(plr_engine *eng, plr_err *err) {
  const int32_t code = eng->error.code;
  plr_err_clear(err);
  *err = eng->error;
  eng->error = plr_err{};
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

extern "C" int32_t plr_connect_memory(plr_engine *eng, const char *handle, void *mem, size_t size, plr_err *err) {
  return guard(err, [&] { eng->engine->connectStream(std::string(handle), mem, static_cast<char *>(mem) + size); });
}

extern "C" int32_t plr_connect_ring(plr_engine *eng, const char *handle, int32_t output, plr_ring *ring, plr_err *err) {
  return guard(err, [&] {
    if (output)
      eng->engine->connectStreamToCallback(std::string(handle), std::make_unique<Output>(ring));
    else
      eng->engine->connectStreamToCallback(std::string(handle), std::make_unique<Input>(ring));
  });
}

extern "C" int32_t plr_connect_go(plr_engine *eng, const char *handle, int32_t output, uint64_t id, size_t bytes, plr_err *err) {
  return guard(err, [&] { eng->engine->connectStreamToCallback(std::string(handle), std::make_unique<Go>(eng->mail, id, bytes, output != 0)); });
}

extern "C" int32_t plr_connect_null(plr_engine *eng, const char *handle, size_t bytes, plr_err *err) {
  return guard(err, [&] { eng->engine->connectStreamToCallback(std::string(handle), std::make_unique<Null>(bytes)); });
}

extern "C" int32_t plr_remote_write(plr_engine *eng, const char *handle, uint64_t repeat, const void *mem, plr_err *err) {
  return guard(err, [&] { eng->engine->copyToRemoteBuffer(const_cast<void *>(mem), std::string(handle), repeat); });
}

extern "C" int32_t plr_remote_read(plr_engine *eng, const char *handle, uint64_t repeat, void *mem, plr_err *err) {
  return guard(err, [&] { eng->engine->copyFromRemoteBuffer(std::string(handle), mem, repeat); });
}
