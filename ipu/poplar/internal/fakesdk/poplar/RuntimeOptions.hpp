#ifndef FAKE_POPLAR_RUNTIMEOPTIONS_HPP
#define FAKE_POPLAR_RUNTIMEOPTIONS_HPP

namespace poplar {

// RuntimeOptions are options of one run.
struct RuntimeOptions {};

} // namespace poplar

#endif
