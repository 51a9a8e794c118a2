// Every call of Poplar as the shim and others are known to make it, and what the fake assumes of its types. It is compiled and
// never run: make poplar compiles it against the fake, make poplar-check against the SDK. Each block has a macro, by which the
// report tries it alone when the whole does not compile.

#include <istream>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <poplar/DeviceManager.hpp>
#include <poplar/Engine.hpp>
#include <poplar/Executable.hpp>
#include <poplar/Graph.hpp>
#include <poplar/IPUModel.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/StreamCallback.hpp>
#include <poplar/exceptions.hpp>

#if !defined(ONLY) || ONLY == 1 // errors
static_assert(std::is_base_of<std::runtime_error, poplar::poplar_error>::value, "poplar_error");
static_assert(std::is_base_of<poplar::poplar_error, poplar::runtime_error>::value, "runtime_error");
static_assert(std::is_base_of<poplar::runtime_error, poplar::application_runtime_error>::value, "application_runtime_error");
static_assert(std::is_base_of<poplar::runtime_error, poplar::system_runtime_error>::value, "system_runtime_error");
static_assert(std::is_base_of<poplar::system_runtime_error, poplar::recoverable_runtime_error>::value, "recoverable_runtime_error");
static_assert(std::is_base_of<poplar::system_runtime_error, poplar::unrecoverable_runtime_error>::value, "unrecoverable_runtime_error");
static_assert(std::is_base_of<poplar::system_runtime_error, poplar::unknown_runtime_error>::value, "unknown_runtime_error");
static_assert(std::is_base_of<poplar::poplar_error, poplar::stream_connection_error>::value, "stream_connection_error");
static_assert(std::is_base_of<poplar::poplar_error, poplar::stream_memory_allocation_error>::value, "stream_memory_allocation_error");
static_assert(std::is_base_of<poplar::poplar_error, poplar::graph_memory_allocation_error>::value, "graph_memory_allocation_error");
static_assert(std::is_base_of<poplar::poplar_error, poplar::invalid_option>::value, "invalid_option");
static_assert(std::is_base_of<poplar::poplar_error, poplar::link_error>::value, "link_error");
std::string errors(const poplar::recoverable_runtime_error &e) { return e.type + poplar::toString(e.getRecoveryAction()) + e.what(); }
#endif

#if !defined(ONLY) || ONLY == 2 // ownership
static_assert(!std::is_copy_constructible<poplar::Device>::value && std::is_move_constructible<poplar::Device>::value, "Device");
static_assert(!std::is_copy_constructible<poplar::Engine>::value && std::is_move_constructible<poplar::Engine>::value, "Engine");
static_assert(std::is_move_constructible<poplar::Executable>::value, "Executable");
static_assert(std::is_constructible<poplar::Engine, poplar::Executable &&, const poplar::OptionFlags &>::value, "Engine(Executable, OptionFlags)");
#endif

#if !defined(ONLY) || ONLY == 3 // devices
unsigned devices(const poplar::OptionFlags &options) {
  auto m = poplar::DeviceManager::createDeviceManager();
  std::vector<poplar::Device> all = m.getDevices(options);
  std::vector<poplar::Device> fit = m.getDevices(poplar::TargetType::IPU, 2, options);
  poplar::Device d = m.getDevice(0, options);
  auto shared = std::make_shared<poplar::Device>(std::move(d));
  const poplar::Device &c = *shared;
  const poplar::Target &t = c.getTarget();
  std::string arch = t.getTargetArchString(), system = t.getTargetSystemString();
  bool ok = c.attach() && c.supportsRemoteBuffers() && t.getTargetType() == poplar::TargetType::IPU;
  c.detach();
  poplar::IPUModel model("ipu2");
  model.numIPUs = 1;
  model.tilesPerIPU = 4;
  poplar::Device simulated = model.createDevice(options);
  return c.getId() + t.getNumIPUs() + t.getTilesPerIPU() + static_cast<unsigned>(all.size() + fit.size() + arch.size() + system.size()) + ok + simulated.getId();
}
#endif

#if !defined(ONLY) || ONLY == 4 // executables and engines
void engines(std::istream &in, const poplar::Device &d, const poplar::OptionFlags &options) {
  poplar::Executable exe = poplar::Executable::deserialize(in, true);
  poplar::Engine e(std::move(exe), options);
  e.load(d);
  e.run(1);
  e.stop();
  for (const std::string &s : e.listStreams())
    (void)s;
  e.disableExecutionProfiling();
  e.enableExecutionProfiling();
}
static_assert(std::is_same<decltype(&poplar::Engine::stop), void (poplar::Engine::*)()>::value, "Engine::stop");
#endif

#if !defined(ONLY) || ONLY == 5 // streams
class Callback : public poplar::StreamCallback {
public:
  Result prefetch(void *) noexcept override { return Result::NotAvailable; }
  void fetch(void *) noexcept override {}
  void complete() noexcept override {}
  void invalidatePrefetched() noexcept override {}
};
void streams(poplar::Engine &e, char *mem) {
  e.connectStream(std::string("a"), mem, mem + 4);
  e.connectStream(std::string("a"), mem);
  e.connectStreamToCallback(std::string("a"), std::make_unique<Callback>());
  e.connectStreamToCallback(std::string("a"), 0, std::make_unique<Callback>());
  e.connectStreamToCallback(std::string("a"), [](void *) {});
  e.copyToRemoteBuffer(mem, std::string("r"), 0);
  e.copyFromRemoteBuffer(std::string("r"), mem, 0);
}
#endif

#if !defined(ONLY) || ONLY == 6 // options and versions
std::string options() {
  poplar::OptionFlags o{{"a", "b"}};
  o.set("c", "d");
  o.set(std::string("c"), std::string("d"));
  std::string all;
  for (const auto &p : o)
    all += p.first + p.second;
  const std::string version = poplar::versionString(), hash = poplar::packageHash();
  return all + version + hash + o.at("a");
}
#endif
