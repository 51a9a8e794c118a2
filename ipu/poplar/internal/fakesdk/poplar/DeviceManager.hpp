#ifndef FAKE_POPLAR_DEVICEMANAGER_HPP
#define FAKE_POPLAR_DEVICEMANAGER_HPP

#include <cstddef>
#include <vector>

#include <poplar/Device.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/TargetType.hpp>

namespace poplar {

// DeviceManager finds devices.
class DeviceManager {
public:
  static DeviceManager createDeviceManager();
  DeviceManager(DeviceManager &&) noexcept = default;
  DeviceManager(const DeviceManager &) = delete;
  DeviceManager &operator=(const DeviceManager &) = delete;

  std::size_t getNumDevices() const;
  std::vector<Device> getDevices(const OptionFlags &options = {}) const;
  std::vector<Device> getDevices(TargetType type, unsigned requiredNumIPUs, const OptionFlags &options = {}) const;
  Device getDevice(unsigned id, const OptionFlags &options = {}) const;
  std::vector<unsigned> getChildDeviceIds(unsigned parentId, unsigned numChildDeviceIpus = 1) const;

private:
  DeviceManager() = default;
};

} // namespace poplar

#endif
