//go:build poplar && poplarfake && linux && cgo

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <poplar/exceptions.hpp>
#include <poplar/fake.hpp>

namespace fake {

namespace {

bool known(const std::string &option) {
  for (const char *family : {"exchange.", "streamCallbacks.", "target.", "debug.", "autoReport.", "profiler.", "opt.", "prng."})
    if (option.rfind(family, 0) == 0)
      return true;
  return false;
}

std::string taken(char *text) {
  std::string s = text ? text : "";
  std::free(text);
  return s;
}

// check throws the error of a registered function, unless it is none.
void check(char *text) {
  const std::string all = taken(text);
  if (all.empty())
    return;
  const auto line = all.find('\n');
  const std::string effect = all.substr(0, line), message = line == std::string::npos ? "" : all.substr(line + 1);
  const auto colon = effect.find(':');
  raise(effect.substr(0, colon), colon == std::string::npos ? "" : effect.substr(colon + 1), message);
}

} // namespace

EngineImpl::EngineImpl(std::shared_ptr<const Program> p, const poplar::OptionFlags &o) : options(o), program(std::move(p)) {
  strike("engine", "");
  for (const auto &option : o) {
    const std::string &name = option.first, &value = option.second;
    bool fits = known(name);
    if (name == "exchange.enablePrefetch")
      prefetching = value == "true", fits = prefetching || value == "false";
    else if (name == "streamCallbacks.maxLookahead")
      fits = value == "unlimited" || (!value.empty() && value.find_first_not_of("0123456789") == std::string::npos),
      lookahead = value == "unlimited" ? 4096 : std::strtoul(value.c_str(), nullptr, 10);
    else if (name == "streamCallbacks.multiThreadMode")
      threads = value, fits = value == "singleThread" || value == "collaborative" || value == "dedicated";
    if (!fits)
      throw poplar::invalid_option("Unrecognised engine option '" + name + "' = '" + value + "'");
  }
  ends.resize(program->streams.size());
  for (std::size_t i = 0; i < ends.size(); i++) {
    ends[i].tensor.resize(program->streams[i].bytes);
    if (threads == "dedicated")
      ends[i].thread.reset(new Thread);
  }
  if (threads == "collaborative")
    shared.reset(new Thread);
  for (const auto &b : program->remote)
    buffers[b.first].resize(b.second.bytes * b.second.repeats);
  if (program->computed) {
    char *why = nullptr;
    handle = registered()->open(program->bytes.data(), program->bytes.size(), &why);
    if (!handle)
      throw poplar::poplar_error(taken(why));
  }
}

EngineImpl::~EngineImpl() {
  if (handle)
    registered()->close(handle);
  const void *self = this;
  if (device)
    device->owner.compare_exchange_strong(self, nullptr);
}

void EngineImpl::load(const std::shared_ptr<DeviceImpl> &d) {
  halt = false;
  {
    std::lock_guard<std::mutex> l(d->mu);
    if (!d->attached)
      throw poplar::poplar_error("Device is not attached");
  }
  loaded = false;
  for (std::size_t i = 0; i < ends.size(); i++) {
    discard(i);
    std::fill(ends[i].tensor.begin(), ends[i].tensor.end(), 0);
    ends[i].late = 0;
    if (nasty.forget)
      ends[i].callback.reset(), ends[i].buffer = nullptr;
  }
  strike("load", "", &halt);
  if (halt)
    throw poplar::poplar_error("The engine was stopped while it was loaded");
  const auto &t = d->target;
  if (!program->arch.empty() && program->arch != "any" && program->arch != std::string(t.getTargetArchString()))
    throw poplar::poplar_error("The executable was compiled for " + program->arch + ", the device is " + std::string(t.getTargetArchString()));
  if (program->ipus && program->ipus != t.getNumIPUs())
    throw poplar::poplar_error("The executable was compiled for " + std::to_string(program->ipus) + " IPUs, the device has " + std::to_string(t.getNumIPUs()));
  if (handle)
    check(registered()->load(handle));
  for (auto &b : buffers)
    std::fill(b.second.begin(), b.second.end(), 0);
  device = d;
  d->owner = this;
  loaded = true, broken = false;
  if (!environment("FAKE_POPLAR_TRACE", "").empty())
    std::fputs("fake poplar: loaded\n", stderr);
}

void EngineImpl::run(unsigned index) {
  if (halt)
    throw poplar::poplar_error("The engine was stopped and must be loaded again");
  if (!loaded || broken)
    throw poplar::poplar_error(broken ? "A system error occurred: the engine must be loaded again" : "The engine is not loaded");
  if (device->owner != this)
    throw poplar::poplar_error("Another engine was loaded onto the device");
  auto s = std::find_if(program->programs.begin(), program->programs.end(), [&](const Sequence &p) { return p.index == index; });
  if (s == program->programs.end())
    throw poplar::index_error("There is no program " + std::to_string(index));
  for (std::size_t i = 0; i < ends.size(); i++)
    if (s->moves[i] && !ends[i].callback && !ends[i].buffer)
      throw poplar::stream_connection_error("Stream '" + program->streams[i].handle + "' is not connected");
  current = &*s;
  at = 0;
  try {
    strike("run", std::to_string(index), &halt);
    halted();
    for (auto &e : ends)
      e.refused = false;
    lookAhead();
    if (program->computed) {
      failure = nullptr;
      char *why = registered()->run(handle, index, this);
      if (failure) {
        std::free(why);
        std::rethrow_exception(failure);
      }
      check(why);
    } else
      steps(*s, s->steps);
    for (auto &e : ends)
      settle(e);
  } catch (const poplar::runtime_error &) {
    broken = true;
    current = nullptr;
    throw;
  } catch (...) {
    current = nullptr;
    throw;
  }
  current = nullptr;
}

void EngineImpl::halted() const {
  if (halt)
    throw poplar::poplar_error("The engine was stopped");
}

void EngineImpl::stop() {
  halt = true;
  if (handle)
    registered()->stop(handle);
  strike("stop", "");
}

void EngineImpl::steps(const Sequence &s, const std::vector<Step> &all) {
  for (const auto &step : all) {
    halted();
    switch (step.what) {
    case Do::Read:
    case Do::Write:
      move(step.stream);
      break;
    case Do::Call:
      compute(step);
      break;
    case Do::Recall:
      remote(step.function, step.count, ends[step.stream].tensor.data(), nullptr);
      break;
    case Do::Repeat:
      for (std::uint64_t i = 0; i < step.count; i++)
        steps(s, step.body);
      break;
    case Do::Hang:
      while (!halt)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      halted();
      break;
    case Do::Wait:
      std::this_thread::sleep_for(std::chrono::microseconds(step.count));
      break;
    }
  }
}

void EngineImpl::compute(const Step &s) {
  auto floats = [&](std::size_t i) { return reinterpret_cast<float *>(ends[i].tensor.data()); };
  if (s.out.size() != 1 || s.in.size() != (s.function == "copy" ? 1u : 2u))
    throw poplar::application_runtime_error("function '" + s.function + "' has operands that do not fit");
  auto &out = ends[s.out[0]].tensor;
  for (std::size_t i : s.in)
    if (ends[i].tensor.size() != out.size())
      throw poplar::application_runtime_error("function '" + s.function + "' has operands of different sizes");
  float *to = floats(s.out[0]), *a = floats(s.in[0]), *b = floats(s.in.back());
  for (std::size_t k = 0; k < out.size() / sizeof(float); k++)
    to[k] = s.function == "copy" ? a[k] : s.function == "add" ? a[k] + b[k] : a[k] * b[k];
}

int EngineImpl::transfer(std::size_t i, void *data, std::size_t bytes) {
  try {
    halted();
    if (i >= ends.size() || ends[i].tensor.size() != bytes)
      throw poplar::poplar_error("a transfer of a stream that does not fit");
    auto &tensor = ends[i].tensor;
    if (program->streams[i].output)
      std::memcpy(tensor.data(), data, bytes);
    move(i);
    if (!program->streams[i].output)
      std::memcpy(data, tensor.data(), bytes);
    return 0;
  } catch (...) {
    failure = std::current_exception();
    return 1;
  }
}

void EngineImpl::move(std::size_t i) {
  const auto &s = program->streams[i];
  End &e = ends[i];
  strike("fetch", s.handle, &halt);
  halted();
  if (nasty.latency)
    std::this_thread::sleep_for(std::chrono::microseconds(nasty.latency));
  if (at < current->transfers.size() && current->transfers[at] == i)
    at++;
  else
    at = current->transfers.size(); // not known what follows
  settle(e);
  if (nasty.discard && nasty.chance(4))
    discard(i);
  if (e.buffer) {
    if (s.output)
      std::memcpy(e.buffer, e.tensor.data(), s.bytes);
    else
      std::memcpy(e.tensor.data(), e.buffer, s.bytes);
  } else {
    if (!e.ahead.empty()) {
      e.tensor.swap(e.ahead.front());
      e.ahead.pop_front();
    } else
      fetch(e, s.output, e.tensor.data(), s.bytes);
    if (!s.output || !nasty.silent)
      e.late++;
    if (!nasty.delay)
      settle(e);
  }
  for (auto &other : ends)
    other.refused = false;
  lookAhead();
}

// fetch has a callback move a tensor.
void EngineImpl::fetch(End &e, bool output, char *tensor, std::size_t bytes) {
  e.lent.assign(bytes, static_cast<char>(0xDB));
  if (output)
    e.lent.assign(tensor, tensor + bytes);
  on(e, [&] { e.callback->fetch(e.lent.data()); });
  if (!output)
    std::copy(e.lent.begin(), e.lent.end(), tensor);
  e.lent.assign(bytes, static_cast<char>(0xDB));
  if (nasty.poison)
    std::vector<char>().swap(e.lent);
}

// prefetch asks a callback for a tensor, and reports whether there was one.
bool EngineImpl::prefetch(End &e, const std::string &handle, char *tensor, std::size_t bytes) {
  strike("prefetch", handle, &halt);
  e.lent.assign(bytes, static_cast<char>(0xDB));
  auto result = poplar::StreamCallback::Result::NotAvailable;
  on(e, [&] { result = e.callback->prefetch(e.lent.data()); });
  const bool there = result == poplar::StreamCallback::Result::Success;
  if (there)
    std::copy(e.lent.begin(), e.lent.end(), tensor);
  e.lent.assign(bytes, static_cast<char>(0xDB));
  return there;
}

int EngineImpl::call(std::size_t i, int what, void *data, std::size_t bytes) {
  try {
    if (i >= ends.size() || (data && ends[i].tensor.size() != bytes))
      throw poplar::poplar_error("a transfer of a stream that does not fit");
    const auto &s = program->streams[i];
    End &e = ends[i];
    auto *tensor = static_cast<char *>(data);
    switch (what) {
    case FAKE_FETCH:
      strike("fetch", s.handle, &halt);
      halted();
      if (nasty.latency)
        std::this_thread::sleep_for(std::chrono::microseconds(nasty.latency));
      if (!e.buffer)
        fetch(e, s.output, tensor, bytes);
      else if (s.output)
        std::memcpy(e.buffer, tensor, bytes);
      else
        std::memcpy(tensor, e.buffer, bytes);
      return 0;
    case FAKE_PREFETCH:
      halted();
      if (e.buffer)
        std::memcpy(tensor, e.buffer, bytes);
      return e.buffer || (e.callback && prefetch(e, s.handle, tensor, bytes));
    case FAKE_COMPLETE:
      if (e.callback && (!s.output || !nasty.silent))
        on(e, [&] { e.callback->complete(); });
      return 0;
    default:
      if (e.callback)
        on(e, [&] { e.callback->invalidatePrefetched(); });
      return 0;
    }
  } catch (...) {
    failure = std::current_exception();
    return -1;
  }
}

// settle makes the calls of complete that are due.
void EngineImpl::settle(End &e) {
  for (; e.late > 0; e.late--)
    if (e.callback) {
      strike("complete", program->streams[static_cast<std::size_t>(&e - ends.data())].handle, &halt);
      on(e, [&] { e.callback->complete(); });
    }
}

// lookAhead prefetches what the program will read next, as far as depth and options allow.
void EngineImpl::lookAhead() {
  if (!prefetching)
    return;
  const auto &order = current->transfers;
  std::vector<std::size_t> wanted(ends.size());
  for (std::size_t k = 0; k < lookahead && at + k < order.size(); k++) {
    std::size_t i = order[at + k];
    if (!program->streams[i].output && ++wanted[i] > ends[i].ahead.size() && !ask(i))
      continue;
  }
  if (lookahead == 0)
    return;
  for (std::size_t i = 0; i < ends.size(); i++)
    if (current->moves[i] && (program->streams[i].speculative || (nasty.extra && nasty.chance(3))))
      while (ask(i)) {
      }
}

// ask asks for a transfer ahead of time, and tells whether there was one.
bool EngineImpl::ask(std::size_t i) {
  const auto &s = program->streams[i];
  End &e = ends[i];
  if (s.output || !e.callback || e.refused || e.ahead.size() >= s.depth || (nasty.refuse && nasty.chance(2)))
    return false;
  settle(e);
  std::vector<char> next(s.bytes);
  e.refused = !prefetch(e, s.handle, next.data(), s.bytes);
  if (!e.refused)
    e.ahead.push_back(std::move(next));
  return !e.refused;
}

void EngineImpl::discard(std::size_t i) {
  End &e = ends[i];
  if (e.ahead.empty())
    return;
  e.ahead.clear();
  if (e.callback)
    on(e, [&] { e.callback->invalidatePrefetched(); });
}

void EngineImpl::on(End &e, const std::function<void()> &f) {
  if (e.thread)
    e.thread->call(f);
  else if (shared)
    shared->call(f);
  else
    f();
}

void EngineImpl::connect(const std::string &name, std::unique_ptr<poplar::StreamCallback> callback, void *buffer, void *end) {
  strike("connect", name);
  std::size_t i = program->find(name);
  if (i == std::string::npos)
    throw poplar::stream_connection_error("No stream '" + name + "' in the executable");
  End &e = ends[i];
  discard(i);
  if (end && static_cast<std::size_t>(static_cast<char *>(end) - static_cast<char *>(buffer)) != program->streams[i].bytes)
    throw poplar::stream_connection_error("Stream '" + name + "' does not fit the buffer");
  e.callback = std::move(callback);
  e.buffer = buffer;
  e.late = 0;
}

void EngineImpl::remote(const std::string &name, std::uint64_t repeat, void *to, const void *from) {
  strike("remote", name);
  auto b = program->remote.find(name);
  if (b == program->remote.end())
    throw poplar::stream_connection_error("No remote buffer '" + name + "' in the executable");
  if (!loaded)
    throw poplar::poplar_error("The engine is not loaded");
  if (repeat >= b->second.repeats)
    throw poplar::index_error("Remote buffer '" + name + "' has no repeat " + std::to_string(repeat));
  char *at = buffers[name].data() + repeat * b->second.bytes;
  if (from)
    std::memcpy(at, from, b->second.bytes);
  else
    std::memcpy(to, at, b->second.bytes);
}

std::vector<std::string> EngineImpl::streams() const {
  strike("streams", "");
  std::vector<std::string> all;
  for (const auto &s : program->streams)
    all.push_back(s.handle + (s.output ? "-" : "+"));
  return all;
}

Thread::~Thread() {
  {
    std::lock_guard<std::mutex> l(mu);
    quit = true;
  }
  wake.notify_all();
  if (thread.joinable())
    thread.join();
}

void Thread::call(const std::function<void()> &f) {
  std::unique_lock<std::mutex> l(mu);
  if (!thread.joinable())
    thread = std::thread([this] {
      std::unique_lock<std::mutex> l(mu);
      for (;;) {
        wake.wait(l, [&] { return work || quit; });
        if (quit)
          return;
        auto f = work;
        l.unlock();
        std::exception_ptr e;
        try {
          (*f)();
        } catch (...) {
          e = std::current_exception();
        }
        l.lock();
        failure = e;
        work = nullptr;
        wake.notify_all();
      }
    });
  work = &f;
  wake.notify_all();
  wake.wait(l, [&] { return !work; });
  if (failure)
    std::rethrow_exception(failure);
}

Nasty::Nasty() {
  std::string all = environment("FAKE_POPLAR_NASTY", "");
  auto has = [&](const char *word) { return ("," + all + ",").find(std::string(",") + word + ",") != std::string::npos; };
  auto value = [&](const char *word, unsigned otherwise) {
    auto i = all.find(std::string(word) + "=");
    return i == std::string::npos ? otherwise : static_cast<unsigned>(std::strtoul(all.c_str() + i + std::strlen(word) + 1, nullptr, 10));
  };
  poison = has("poison"), refuse = has("refuse"), extra = has("extra"), delay = has("delay"), discard = has("discard"), silent = has("silent"), forget = has("forget");
  latency = value("latency", 0);
  state = value("seed", 1) | 1;
}

bool Nasty::chance(unsigned oneIn) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % oneIn == 0;
}

} // namespace fake

extern "C" int fake_transfer(void *context, uint32_t stream, void *data, size_t size) {
  return static_cast<fake::EngineImpl *>(context)->transfer(stream, data, size);
}

extern "C" int fake_call(void *context, uint32_t stream, int what, void *data, size_t size) {
  return static_cast<fake::EngineImpl *>(context)->call(stream, what, data, size);
}

namespace poplar {

#if FAKE_POPLAR_API >= 303
Engine::Engine(const Executable &executable, const OptionFlags &options) : impl(new fake::EngineImpl(executable.fakeImpl(), options)) {}
#else
Engine::Engine(Executable &&executable, const OptionFlags &options) : impl(nullptr) {
  Executable own = std::move(executable);
  impl.reset(new fake::EngineImpl(own.fakeImpl(), options));
}
#endif
Engine::Engine(Engine &&) noexcept = default;
Engine &Engine::operator=(Engine &&) noexcept = default;
Engine::~Engine() = default;

void Engine::load(const Device &device) { impl->load(device.fakeImpl()); }
void Engine::prepare(const Device &device) { impl->load(device.fakeImpl()); }
void Engine::deploy() {}
void Engine::run(unsigned prog, const std::string &) { impl->run(prog); }
void Engine::run(unsigned prog, const std::string &, const RuntimeOptions &) { impl->run(prog); }
void Engine::loadAndRun(const Device &device, unsigned prog) {
  load(device);
  run(prog);
}
void Engine::stop() { impl->stop(); }
void Engine::connectStream(StringRef handle, void *begin) { impl->connect(handle, nullptr, begin, nullptr); }
void Engine::connectStream(StringRef handle, void *begin, void *end) { impl->connect(handle, nullptr, begin, end); }
void Engine::connectStreamToCallback(StringRef handle, StreamCallbackHandle f) { impl->connect(handle, f.fakeRelease(), nullptr, nullptr); }
void Engine::connectStreamToCallback(StringRef handle, unsigned replica, StreamCallbackHandle f) {
  if (replica != 0)
    throw stream_connection_error("Stream '" + handle.str() + "' has no replica " + std::to_string(replica));
  impl->connect(handle, f.fakeRelease(), nullptr, nullptr);
}
void Engine::copyToRemoteBuffer(void *src, StringRef handle, std::uint64_t repeatIndex, unsigned) { impl->remote(handle, repeatIndex, nullptr, src); }
void Engine::copyFromRemoteBuffer(StringRef handle, void *dst, std::uint64_t repeatIndex, unsigned) { impl->remote(handle, repeatIndex, dst, nullptr); }
std::vector<std::string> Engine::listStreams() const { return impl->streams(); }
OptionFlags Engine::getEngineOptions() const { return impl->options; }
void Engine::enableExecutionProfiling() {}
void Engine::disableExecutionProfiling() {}

} // namespace poplar
