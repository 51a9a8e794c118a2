#ifndef FAKE_POPLAR_EXECUTABLE_HPP
#define FAKE_POPLAR_EXECUTABLE_HPP

#include <istream>
#include <memory>
#include <ostream>

#include <poplar/Version.hpp>

namespace fake {
struct Program;
}

namespace poplar {

// Executable is a compiled program. It can be moved; it can be copied, which
// shares it, from 3.3 on.
class Executable {
public:
  Executable(Executable &&) noexcept;
  Executable &operator=(Executable &&) noexcept;
#if FAKE_POPLAR_API >= 303
  Executable(const Executable &);
  Executable &operator=(const Executable &);
#else
  Executable(const Executable &) = delete;
  Executable &operator=(const Executable &) = delete;
#endif
  ~Executable();

  static Executable deserialize(std::istream &in, bool checkPackageHash = true);
  static Executable deserialize(std::unique_ptr<std::istream> in, bool checkPackageHash = true);
  void serialize(std::ostream &out) const;

  const std::shared_ptr<const fake::Program> &fakeImpl() const { return impl; }

private:
  explicit Executable(std::shared_ptr<const fake::Program> impl);
  std::shared_ptr<const fake::Program> impl;
};

} // namespace poplar

#endif
