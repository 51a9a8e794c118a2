#ifndef FAKE_POPLAR_STRINGREF_HPP
#define FAKE_POPLAR_STRINGREF_HPP

#include <cstddef>
#include <cstring>
#include <string>

namespace poplar {

// StringRef is a view of characters that somebody else owns.
class StringRef {
public:
  StringRef() = default;
  StringRef(const char *s) : at(s), n(s ? std::strlen(s) : 0) {}
  StringRef(const char *s, std::size_t n) : at(s), n(n) {}
  StringRef(const std::string &s) : at(s.data()), n(s.size()) {}

  const char *data() const { return at; }
  std::size_t size() const { return n; }
  bool empty() const { return n == 0; }
  std::string str() const { return std::string(at ? at : "", n); }
  operator std::string() const { return str(); }

private:
  const char *at = nullptr;
  std::size_t n = 0;
};

} // namespace poplar

#endif
