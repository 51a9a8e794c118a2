#ifndef FAKE_POPLAR_DEVICE_HPP
#define FAKE_POPLAR_DEVICE_HPP

#include <memory>
#include <vector>

#include <poplar/Target.hpp>

namespace fake {
struct DeviceImpl;
}

namespace poplar {

// Device is a device or a group of devices. It can be moved and not copied.
class Device {
public:
  Device();
  ~Device();
  Device(Device &&) noexcept;
  Device &operator=(Device &&) noexcept;
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  static Device createCPUDevice(unsigned numIPUs = 1);

  unsigned getId() const;
  const Target &getTarget() const;
  bool attach() const;
  void detach() const;
#if FAKE_POPLAR_API >= 303
  bool isAttached() const;
#endif
  void getDriverVersion(unsigned &major, unsigned &minor, unsigned &point) const;
  bool supportsRemoteBuffers() const;
  bool hasGateway() const;
  std::vector<unsigned> getDriverIDs() const;
  void reset() const;

  explicit Device(std::shared_ptr<fake::DeviceImpl> impl);
  const std::shared_ptr<fake::DeviceImpl> &fakeImpl() const { return impl; }

private:
  std::shared_ptr<fake::DeviceImpl> impl;
};

} // namespace poplar

#endif
