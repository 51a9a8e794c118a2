//go:build poplar && poplarfake && linux && cgo

#include <cstdlib>
#include <new>
#include <sstream>

#include <poplar/exceptions.hpp>
#include <poplar/fake.hpp>

namespace fake {

std::string environment(const char *name, const char *otherwise) {
  const char *v = std::getenv(name);
  return v && *v ? v : otherwise;
}

namespace {

// Fault is one entry of the script. Points are list, open, describe, attach, detach, deserialize, option, engine, streams,
// load, connect, run, fetch, prefetch, complete, remote and stop; the argument of run is the
// program's number, that of fetch, prefetch, complete, connect and remote the handle, that of attach, open and describe the
// id, that of option the name.
struct Fault {
  std::string point, argument, effect, action;
  unsigned nth = 1; // 0: every time
  unsigned seen = 0;
};

std::mutex mu;
std::string script;
std::vector<Fault> faults;

void read(const std::string &text) {
  faults.clear();
  std::istringstream all(text);
  for (std::string entry; std::getline(all, entry, ';');) {
    Fault f;
    auto is = entry.find('=');
    if (is == std::string::npos)
      continue;
    std::string point = entry.substr(0, is), effect = entry.substr(is + 1);
    auto n = point.rfind('@');
    if (n != std::string::npos) {
      std::string nth = point.substr(n + 1);
      f.nth = nth == "*" ? 0 : static_cast<unsigned>(std::strtoul(nth.c_str(), nullptr, 10));
      point.resize(n);
    }
    auto a = point.find(':');
    f.point = point.substr(0, a);
    if (a != std::string::npos)
      f.argument = point.substr(a + 1);
    auto e = effect.find(':');
    f.effect = effect.substr(0, e);
    if (e != std::string::npos)
      f.action = effect.substr(e + 1);
    faults.push_back(f);
  }
}

} // namespace

void raise(const std::string &e, const std::string &a, const std::string &m) {
  using namespace poplar;
  if (e == "runtime")
    throw runtime_error(m);
  if (e == "application")
    throw application_runtime_error(m);
  if (e == "system")
    throw system_runtime_error(m);
  if (e == "recoverable") {
    RecoveryAction action = RecoveryAction::IPU_RESET;
#if FAKE_POPLAR_API >= 303
    if (a == "LINK_RESET")
      action = RecoveryAction::LINK_RESET;
#endif
    if (a == "PARTITION_RESET")
      action = RecoveryAction::PARTITION_RESET;
    if (a == "FULL_RESET")
      action = RecoveryAction::FULL_RESET;
    if (a == "ODD")
      action = static_cast<RecoveryAction>(99);
    throw recoverable_runtime_error(action, m);
  }
  if (e == "unrecoverable")
    throw unrecoverable_runtime_error(m);
  if (e == "unknown")
    throw unknown_runtime_error(m);
  if (e == "stream_connection")
    throw stream_connection_error(m);
  if (e == "stream_memory")
    throw stream_memory_allocation_error(m);
  if (e == "graph_memory")
    throw graph_memory_allocation_error(m);
  if (e == "invalid_option")
    throw invalid_option(m);
  if (e == "link")
    throw link_error(m, "ld: no");
  if (e == "file_load")
    throw file_load_error(m);
  if (e == "parse")
    throw parse_error(m);
  if (e == "control_program")
    throw control_program_error(m);
  if (e == "hash")
    throw poplar_error("Error reading executable - package hash (0123) differs from poplar hash (4567)");
  if (e == "std")
    throw std::logic_error(m);
  if (e == "bad_alloc")
    throw std::bad_alloc();
  if (e == "int")
    throw 42;
  throw poplar_error(m);
}

void strike(const std::string &point, const std::string &argument, const std::atomic<bool> *halt) {
  Fault hit;
  {
    std::lock_guard<std::mutex> l(mu);
    std::string now = environment("FAKE_POPLAR_FAULT", "");
    if (now != script) {
      script = now;
      read(now);
    }
    for (auto &f : faults) {
      if (f.point != point || (!f.argument.empty() && f.argument != argument))
        continue;
      f.seen++;
      if (hit.effect.empty() && (f.nth == 0 || f.seen == f.nth))
        hit = f;
    }
  }
  if (hit.effect.empty())
    return;
  if (hit.effect != "hang")
    raise(hit.effect, hit.action, "injected at " + hit.point + (hit.argument.empty() ? "" : " " + hit.argument));
  while (halt && !halt->load())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

} // namespace fake

static std::atomic<uint32_t> pauses{0};

extern "C" void fake_pauses(uint32_t microseconds) { pauses = microseconds; }

extern "C" void fake_pause(void) {
  if (uint32_t us = pauses)
    std::this_thread::sleep_for(std::chrono::microseconds(us));
}

namespace poplar {

std::string toString(const RecoveryAction &action) {
  switch (action) {
  case RecoveryAction::IPU_RESET:
    return "IPU_RESET";
#if FAKE_POPLAR_API >= 303
  case RecoveryAction::LINK_RESET:
    return "LINK_RESET";
#endif
  case RecoveryAction::PARTITION_RESET:
    return "PARTITION_RESET";
  case RecoveryAction::FULL_RESET:
    return "FULL_RESET";
  }
  return "UNKNOWN";
}

} // namespace poplar
