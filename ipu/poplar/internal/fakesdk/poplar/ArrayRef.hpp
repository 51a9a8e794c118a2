#ifndef FAKE_POPLAR_ARRAYREF_HPP
#define FAKE_POPLAR_ARRAYREF_HPP

#include <cstddef>
#include <vector>

namespace gccs {

// ArrayRef is a view of elements that somebody else owns.
template <class T> class ArrayRef {
public:
  ArrayRef() = default;
  ArrayRef(const T *data, std::size_t n) : at(data), n(n) {}
  ArrayRef(const std::vector<T> &v) : at(v.data()), n(v.size()) {}

  const T *data() const { return at; }
  std::size_t size() const { return n; }
  const T &operator[](std::size_t i) const { return at[i]; }
  const T *begin() const { return at; }
  const T *end() const { return at + n; }

private:
  const T *at = nullptr;
  std::size_t n = 0;
};

} // namespace gccs

namespace poplar {
using gccs::ArrayRef;
}

#endif
