#ifndef FAKE_POPLAR_VERSION_HPP
#define FAKE_POPLAR_VERSION_HPP

// FAKE_POPLAR_API is the version of Poplar whose signatures the headers have,
// 302 or 303. No header of Poplar itself is called so.
#ifndef FAKE_POPLAR_API
#define FAKE_POPLAR_API 303
#endif

#if FAKE_POPLAR_API != 302 && FAKE_POPLAR_API != 303
#error "FAKE_POPLAR_API: want 302 or 303"
#endif

#endif
