#ifndef FAKE_POPLAR_GRAPH_HPP
#define FAKE_POPLAR_GRAPH_HPP

#include <poplar/StringRef.hpp>

namespace poplar {

StringRef versionString();
StringRef packageHash();

} // namespace poplar

#endif
