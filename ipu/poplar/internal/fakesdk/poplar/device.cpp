//go:build poplar && poplarfake && linux && cgo

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <set>
#include <sys/file.h>
#include <unistd.h>

#include <poplar/DeviceManager.hpp>
#include <poplar/Graph.hpp>
#include <poplar/IPUModel.hpp>
#include <poplar/exceptions.hpp>
#include <poplar/fake.hpp>

namespace {

// The chips that are attached in this process.
std::mutex mu;
std::set<unsigned> taken;

unsigned number(const char *name, const char *otherwise) {
  return static_cast<unsigned>(std::strtoul(fake::environment(name, otherwise).c_str(), nullptr, 10));
}

// busy reports whether FAKE_POPLAR_BUSY="1,3" names a chip, as if another process had it.
bool busy(unsigned chip) { return ("," + fake::environment("FAKE_POPLAR_BUSY", "") + ",").find("," + std::to_string(chip) + ",") != std::string::npos; }

void check(const poplar::OptionFlags &options) {
  for (const auto &o : options)
    if (o.first.rfind("target.", 0) != 0 && o.first != "ipuLinkDomainSize" && o.first != "ipuLinkTopology" &&
        o.first != "syncConfiguration" && o.first != "gatewayMode" && o.first != "deviceAcquisition")
      throw poplar::invalid_option("Unrecognised device option '" + o.first + "'");
}

// groups lists the chips of every device: FAKE_POPLAR_IPUS single ones, then groups of 2, 4, … that lie side by side.
std::vector<std::vector<unsigned>> groups() {
  std::vector<std::vector<unsigned>> all;
  const unsigned n = number("FAKE_POPLAR_IPUS", "4");
  for (unsigned size = 1; size <= n; size *= 2)
    for (unsigned first = 0; first + size <= n; first += size) {
      all.emplace_back();
      for (unsigned c = first; c < first + size; c++)
        all.back().push_back(c);
    }
  return all;
}

std::shared_ptr<fake::DeviceImpl> make(unsigned id, const std::vector<unsigned> &chips) {
  auto t = std::make_unique<fake::TargetImpl>();
  t->arch = fake::environment("FAKE_POPLAR_ARCH", "ipu2");
  t->ipus = static_cast<unsigned>(chips.size());
  auto d = std::make_shared<fake::DeviceImpl>();
  d->target = poplar::Target(std::move(t));
  d->id = id;
  d->chips = chips;
  return d;
}

} // namespace

namespace fake {

void DeviceImpl::detach() {
  std::lock_guard<std::mutex> own(mu);
  if (!attached)
    return;
  attached = false;
  std::lock_guard<std::mutex> l(::mu);
  for (unsigned c : chips)
    taken.erase(c);
  for (int fd : locks)
    close(fd);
  locks.clear();
}

} // namespace fake

namespace poplar {

std::string toString(TargetType t) { return t == TargetType::IPU ? "IPU" : t == TargetType::CPU ? "CPU" : "IPU_MODEL"; }
StringRef versionString() { return FAKE_POPLAR_API >= 303 ? "3.3.0 (fake)" : "3.2.0 (fake)"; }
StringRef packageHash() {
  static const std::string hash = fake::environment("FAKE_POPLAR_HASH", "fa4e0000");
  return hash;
}

Target::Target() : impl(new fake::TargetImpl) {}
Target::Target(std::unique_ptr<fake::TargetImpl> i) : impl(std::move(i)) {}
Target::Target(const Target &o) : impl(new fake::TargetImpl(*o.impl)) {}
Target &Target::operator=(const Target &o) {
  *impl = *o.impl;
  return *this;
}
Target::~Target() = default;
TargetType Target::getTargetType() const { return impl->type; }
StringRef Target::getTargetArchString() const { return impl->arch; }
StringRef Target::getTargetSystemString() const { return impl->system; }
unsigned Target::getNumIPUs() const { return impl->ipus; }
unsigned Target::getTilesPerIPU() const { return impl->tiles; }
Target Target::createIPUTarget(unsigned numIPUs, StringRef system, const OptionFlags &) {
  auto t = std::make_unique<fake::TargetImpl>();
  t->ipus = numIPUs;
  t->system = system.str();
  return Target(std::move(t));
}

Device::Device() : impl(std::make_shared<fake::DeviceImpl>()) {}
Device::Device(std::shared_ptr<fake::DeviceImpl> i) : impl(std::move(i)) {}
Device::~Device() = default;
Device::Device(Device &&) noexcept = default;
Device &Device::operator=(Device &&) noexcept = default;

Device Device::createCPUDevice(unsigned numIPUs) {
  auto t = std::make_unique<fake::TargetImpl>();
  t->type = TargetType::CPU;
  t->ipus = numIPUs;
  auto d = std::make_shared<fake::DeviceImpl>();
  d->target = Target(std::move(t));
  return Device(d);
}

unsigned Device::getId() const { return impl->id; }
const Target &Device::getTarget() const {
  fake::strike("describe", std::to_string(impl->id));
  return impl->target;
}

bool Device::attach() const {
  fake::strike("attach", std::to_string(impl->id));
  std::lock_guard<std::mutex> own(impl->mu);
  if (impl->attached)
    return true;
  std::lock_guard<std::mutex> l(mu);
  for (unsigned c : impl->chips)
    if (taken.count(c) || busy(c))
      return false;
  const std::string dir = fake::environment("FAKE_POPLAR_LOCKS", "");
  for (unsigned c : impl->chips) {
    if (dir.empty())
      break;
    int fd = open((dir + "/ipu" + std::to_string(c)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (fd >= 0)
        close(fd);
      for (int other : impl->locks)
        close(other);
      impl->locks.clear();
      return false;
    }
    impl->locks.push_back(fd);
  }
  taken.insert(impl->chips.begin(), impl->chips.end());
  impl->attached = true;
  return true;
}

void Device::detach() const {
  fake::strike("detach", std::to_string(impl->id));
  impl->detach();
}

#if FAKE_POPLAR_API >= 303
bool Device::isAttached() const {
  std::lock_guard<std::mutex> own(impl->mu);
  return impl->attached;
}
#endif

static void needAttached(const std::shared_ptr<fake::DeviceImpl> &d) {
  std::lock_guard<std::mutex> own(d->mu);
  if (!d->attached)
    throw poplar_error("the device is not attached");
}

void Device::getDriverVersion(unsigned &major, unsigned &minor, unsigned &point) const {
  needAttached(impl);
  major = 1, minor = 0, point = 55;
}
bool Device::supportsRemoteBuffers() const {
  needAttached(impl);
  return fake::environment("FAKE_POPLAR_REMOTE_BUFFERS", "true") == "true";
}
bool Device::hasGateway() const { return supportsRemoteBuffers(); }
std::vector<unsigned> Device::getDriverIDs() const { return impl->chips; }
void Device::reset() const { needAttached(impl); }

void OptionFlags::set(StringRef option, StringRef value) {
  fake::strike("option", option.str());
  options[option.str()] = value.str();
}

DeviceManager DeviceManager::createDeviceManager() {
  fake::strike("list", "");
  return DeviceManager();
}

std::size_t DeviceManager::getNumDevices() const { return groups().size(); }

std::vector<Device> DeviceManager::getDevices(const OptionFlags &options) const {
  check(options);
  std::vector<Device> all;
  unsigned id = 0;
  for (const auto &chips : groups())
    all.emplace_back(make(id++, chips));
  return all;
}

std::vector<Device> DeviceManager::getDevices(TargetType type, unsigned requiredNumIPUs, const OptionFlags &options) const {
  std::vector<Device> all;
  for (auto &d : getDevices(options))
    if (d.getTarget().getTargetType() == type && d.getTarget().getNumIPUs() == requiredNumIPUs)
      all.push_back(std::move(d));
  return all;
}

Device DeviceManager::getDevice(unsigned id, const OptionFlags &options) const {
  fake::strike("open", std::to_string(id));
  auto all = getDevices(options);
  if (id >= all.size())
    throw poplar_error("no device exists with ID " + std::to_string(id));
  return std::move(all[id]);
}

std::vector<unsigned> DeviceManager::getChildDeviceIds(unsigned parentId, unsigned numChildDeviceIpus) const {
  auto all = groups();
  std::vector<unsigned> ids;
  if (parentId >= all.size())
    throw poplar_error("no device exists with ID " + std::to_string(parentId));
  for (unsigned id = 0; id < all.size(); id++)
    if (all[id].size() == numChildDeviceIpus && std::includes(all[parentId].begin(), all[parentId].end(), all[id].begin(), all[id].end()))
      ids.push_back(id);
  return ids;
}

IPUModel::IPUModel() : IPUModel("ipu2") {}
IPUModel::IPUModel(const char *version) : IPUVersion(version), tilesPerIPU(1472) {
  if (IPUVersion != "ipu2" && IPUVersion != "ipu21")
    throw poplar_error("Unknown IPU version '" + IPUVersion + "'");
}

Device IPUModel::createDevice(OptionFlags options, bool, unsigned) const {
  check(options);
  static std::atomic<unsigned> next{1000};
  auto t = std::make_unique<fake::TargetImpl>();
  t->type = TargetType::IPU_MODEL;
  t->arch = IPUVersion;
  t->ipus = numIPUs;
  t->tiles = tilesPerIPU;
  auto d = std::make_shared<fake::DeviceImpl>();
  d->target = Target(std::move(t));
  d->id = next++;
  return Device(d);
}

} // namespace poplar
