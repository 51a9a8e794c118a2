#ifndef FAKE_POPLAR_IPUMODEL_HPP
#define FAKE_POPLAR_IPUMODEL_HPP

#include <string>

#include <poplar/Device.hpp>
#include <poplar/OptionFlags.hpp>

namespace poplar {

// IPUModel describes simulated IPUs.
struct IPUModel {
  std::string IPUVersion;
  unsigned numIPUs = 1;
  unsigned tilesPerIPU;
  bool compileIPUCode = false;

  IPUModel();
  explicit IPUModel(const char *IPUVersion);
  Device createDevice(OptionFlags options = {}, bool accurateHalf = false, unsigned deviceManagerId = ~0u) const;
};

} // namespace poplar

#endif
