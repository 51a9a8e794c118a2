//go:build poplar && linux && cgo

#include "shim.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include <poplar/DeviceManager.hpp>
#include <poplar/Graph.hpp>
#include <poplar/IPUModel.hpp>

int32_t fill(plr_err *err, int32_t code, const std::string &type, const char *msg, int32_t recovery) noexcept {
  if (!err)
    return code;
  plr_err_clear(err);
  err->code = code;
  err->recovery = recovery;
  std::strncpy(err->type, type.c_str(), sizeof err->type - 1);
  err->msg = strdup(msg ? msg : "");
  return code;
}

int32_t recovery_action(const std::string &name) noexcept {
  return name == "IPU_RESET" ? PLR_IPU_RESET : name == "LINK_RESET" ? PLR_LINK_RESET : name == "PARTITION_RESET" ? PLR_PARTITION_RESET : name == "FULL_RESET" ? PLR_FULL_RESET : PLR_NO_ACTION;
}

int32_t fill_poplar(plr_err *err, int32_t code, const poplar::poplar_error &e, const char *caught, int32_t recovery) noexcept {
  try {
    return fill(err, code, e.type.empty() ? std::string(caught) : e.type, e.what(), recovery);
  } catch (...) {
    return fill(err, code, "", e.what(), recovery);
  }
}

poplar::OptionFlags flags(plr_options o) {
  poplar::OptionFlags out;
  const char *at = o.pairs;
  for (size_t i = 0; i < o.n; i++) {
    std::string name = at;
    at += name.size() + 1;
    std::string value = at;
    at += value.size() + 1;
    out.set(name, value);
  }
  return out;
}

extern "C" const char *plr_version(void) {
  static const std::string v = poplar::versionString();
  return v.c_str();
}

extern "C" const char *plr_package_hash(void) {
  static const std::string h = poplar::packageHash();
  return h.c_str();
}

extern "C" void plr_err_clear(plr_err *err) {
  std::free(err->msg);
  *err = plr_err{};
}

extern "C" void plr_free(void *p) { std::free(p); }

extern "C" void plr_layout(size_t out[PLR_LAYOUT]) {
  const size_t all[PLR_LAYOUT] = {
      sizeof(plr_err), offsetof(plr_err, recovery), offsetof(plr_err, type), offsetof(plr_err, msg),
      sizeof(plr_devinfo), offsetof(plr_devinfo, type), offsetof(plr_devinfo, remote_buffers), offsetof(plr_devinfo, arch), offsetof(plr_devinfo, system),
      sizeof(plr_run), offsetof(plr_run, command), offsetof(plr_run, program), offsetof(plr_run, epoch), offsetof(plr_run, event), offsetof(plr_run, number),
      offsetof(plr_run, failed), offsetof(plr_run, ended), offsetof(plr_run, result), offsetof(plr_run, go_waits),
      sizeof(plr_mail), offsetof(plr_mail, ended), offsetof(plr_mail, now), offsetof(plr_mail, c_waits), offsetof(plr_mail, queue), offsetof(plr_mail, runs),
      sizeof(plr_part), offsetof(plr_part, n), offsetof(plr_part, moved), offsetof(plr_part, run), offsetof(plr_part, over),
      sizeof(plr_ring), offsetof(plr_ring, mail), offsetof(plr_ring, look), offsetof(plr_ring, fetched), offsetof(plr_ring, prefetched), offsetof(plr_ring, refused),
      offsetof(plr_ring, starved), offsetof(plr_ring, parts), PLR_SLOTS, PLR_QUEUE};
  std::copy(all, all + PLR_LAYOUT, out);
}

static void describe(const poplar::Device &d, plr_devinfo *out) {
  *out = plr_devinfo{};
  const poplar::Target &t = d.getTarget();
  out->id = d.getId();
  out->ipus = t.getNumIPUs();
  out->tiles = t.getTilesPerIPU();
  out->type = static_cast<int32_t>(t.getTargetType());
  out->remote_buffers = -1;
  if (t.getTargetType() == poplar::TargetType::IPU) {
    try {
      out->remote_buffers = d.supportsRemoteBuffers();
    } catch (const poplar::poplar_error &) { // it is not attached
    }
  }
  const std::string arch = t.getTargetArchString(), system = t.getTargetSystemString();
  std::strncpy(out->arch, arch.c_str(), sizeof out->arch - 1);
  std::strncpy(out->system, system.c_str(), sizeof out->system - 1);
}

extern "C" int32_t plr_devices(plr_options options, plr_devinfo **out, size_t *n, plr_err *err) {
  return guard(err, [&] {
    auto all = poplar::DeviceManager::createDeviceManager().getDevices(flags(options));
    auto infos = static_cast<plr_devinfo *>(std::calloc(all.size() + 1, sizeof(plr_devinfo)));
    if (!infos)
      throw std::bad_alloc();
    std::unique_ptr<plr_devinfo, void (*)(void *)> hold(infos, std::free);
    for (size_t i = 0; i < all.size(); i++)
      describe(all[i], &infos[i]);
    *n = all.size();
    *out = hold.release();
  });
}

extern "C" int32_t plr_device_open(uint32_t id, plr_options options, plr_device **out, plr_err *err) {
  return guard(err, [&] {
    auto d = std::make_shared<poplar::Device>(poplar::DeviceManager::createDeviceManager().getDevice(id, flags(options)));
    *out = new plr_device{std::move(d), false};
  });
}

extern "C" int32_t plr_device_model(uint32_t ipus, const char *version, uint32_t tiles, plr_options options, plr_device **out, plr_err *err) {
  return guard(err, [&] {
    poplar::IPUModel m(version);
    m.numIPUs = ipus;
    if (tiles)
      m.tilesPerIPU = tiles;
    auto d = std::make_shared<poplar::Device>(m.createDevice(flags(options)));
    *out = new plr_device{std::move(d), false};
  });
}

extern "C" int32_t plr_device_info(plr_device *dev, plr_devinfo *out, plr_err *err) {
  return guard(err, [&] { describe(*dev->device, out); });
}

extern "C" int32_t plr_device_attach(plr_device *dev, int32_t *ok, plr_err *err) {
  return guard(err, [&] { *ok = dev->attached = dev->device->attach(); });
}

extern "C" int32_t plr_device_detach(plr_device *dev, plr_err *err) {
  return guard(err, [&] {
    dev->device->detach();
    dev->attached = false;
  });
}

extern "C" void plr_device_free(plr_device *dev) {
  if (dev->attached)
    guard(nullptr, [&] { dev->device->detach(); });
  guard(nullptr, [&] { delete dev; });
}
