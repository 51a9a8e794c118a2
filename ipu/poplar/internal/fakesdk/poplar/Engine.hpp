#ifndef FAKE_POPLAR_ENGINE_HPP
#define FAKE_POPLAR_ENGINE_HPP

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <poplar/ArrayRef.hpp>
#include <poplar/Device.hpp>
#include <poplar/Executable.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/RuntimeOptions.hpp>
#include <poplar/StreamCallback.hpp>
#include <poplar/StringRef.hpp>

namespace fake {
class EngineImpl;
}

namespace poplar {

// Engine runs the programs of an executable on a device.
class Engine {
public:
#if FAKE_POPLAR_API >= 303
  explicit Engine(const Executable &executable, const OptionFlags &options = {});
#else
  explicit Engine(Executable &&executable, const OptionFlags &options = {});
#endif
  Engine(Engine &&) noexcept;
  Engine &operator=(Engine &&) noexcept;
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;
  ~Engine();

  void load(const Device &device);
  void prepare(const Device &device);
  void deploy();
  void run(unsigned prog = 0, const std::string &debugName = "");
  void run(unsigned prog, const std::string &debugName, const RuntimeOptions &options);
  void loadAndRun(const Device &device, unsigned prog = 0);
  void stop();

  void connectStream(StringRef handle, void *begin);
  void connectStream(StringRef handle, void *begin, void *end);
  template <class T> void connectStream(StringRef handle, const gccs::ArrayRef<T> &data) {
    connectStream(handle, const_cast<T *>(data.begin()), const_cast<T *>(data.end()));
  }
  void connectStreamToCallback(StringRef handle, StreamCallbackHandle f);
  void connectStreamToCallback(StringRef handle, unsigned replica, StreamCallbackHandle f);
  void copyToRemoteBuffer(void *src, StringRef handle, std::uint64_t repeatIndex, unsigned replicationIndex = 0);
  void copyFromRemoteBuffer(StringRef handle, void *dst, std::uint64_t repeatIndex, unsigned replicationIndex = 0);

  std::vector<std::string> listStreams() const;
  OptionFlags getEngineOptions() const;
  void enableExecutionProfiling();
  void disableExecutionProfiling();

private:
  std::unique_ptr<fake::EngineImpl> impl;
};

} // namespace poplar

#endif
