#ifndef FAKE_POPLAR_TARGET_HPP
#define FAKE_POPLAR_TARGET_HPP

#include <memory>

#include <poplar/OptionFlags.hpp>
#include <poplar/StringRef.hpp>
#include <poplar/TargetType.hpp>

namespace fake {
struct TargetImpl;
}

namespace poplar {

// Target is what a program is compiled for, or what a device is.
class Target {
public:
  Target();
  Target(const Target &);
  Target &operator=(const Target &);
  ~Target();

  TargetType getTargetType() const;
  StringRef getTargetArchString() const;
  StringRef getTargetSystemString() const;
  unsigned getNumIPUs() const;
  unsigned getTilesPerIPU() const;
  static Target createIPUTarget(unsigned numIPUs, StringRef system, const OptionFlags &options = {});

  explicit Target(std::unique_ptr<fake::TargetImpl> impl);

private:
  std::unique_ptr<fake::TargetImpl> impl;
};

} // namespace poplar

#endif
