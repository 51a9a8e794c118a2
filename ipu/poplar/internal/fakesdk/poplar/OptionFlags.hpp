#ifndef FAKE_POPLAR_OPTIONFLAGS_HPP
#define FAKE_POPLAR_OPTIONFLAGS_HPP

#include <initializer_list>
#include <map>
#include <string>
#include <utility>

#include <poplar/StringRef.hpp>
#include <poplar/Version.hpp>

namespace poplar {

// OptionFlags is a set of options, each a name with a value.
class OptionFlags {
public:
  using OptionFlag = std::pair<const std::string, std::string>;
  using initializer_list = std::initializer_list<OptionFlag>;
  using iterator = std::map<std::string, std::string>::const_iterator;

  OptionFlags() = default;
  OptionFlags(initializer_list all) {
    for (const auto &o : all)
      options[o.first] = o.second;
  }

  void set(initializer_list all) {
    for (const auto &o : all)
      options[o.first] = o.second;
  }
  void set(StringRef option, StringRef value);
  const std::string &at(StringRef option) const { return options.at(option.str()); }
  void clear() { options.clear(); }
  iterator begin() const { return options.begin(); }
  iterator end() const { return options.end(); }
#if FAKE_POPLAR_API >= 303
  iterator find(StringRef option) const { return options.find(option.str()); }
  std::size_t size() const { return options.size(); }
#endif

private:
  std::map<std::string, std::string> options;
};

} // namespace poplar

#endif
