#ifndef FAKE_POPLAR_TARGETTYPE_HPP
#define FAKE_POPLAR_TARGETTYPE_HPP

#include <string>

namespace poplar {

enum class TargetType { IPU, IPU_MODEL, CPU };

std::string toString(TargetType t);

} // namespace poplar

#endif
