//go:build poplar && poplarfake && linux && cgo

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>

#include <poplar/Graph.hpp>
#include <poplar/exceptions.hpp>
#include <poplar/fake.hpp>

// An executable of the fake is a text:
//
//	GC_EXE_FAKE
//	hash HASH                                      package hash; left out: the running one's
//	target ARCH IPUS                               left out: any
//	stream HANDLE in|out BYTES [depth N] [speculative]
//	remote HANDLE BYTES REPEATS
//	program INDEX NAME
//	  read HANDLE | write HANDLE | call FUNCTION IN,… OUT,… | recall REMOTE BLOCK HANDLE | hang | wait MICROSECONDS
//	  repeat N … end
//	end
//	data                                           what follows is computed by the registered functions: a portable executable
//
// The tensors of its functions (copy, add, mul: of float32) are called as the streams are. What stands in names
// and is no letter is written as %XX. A portable executable may also stand alone.

namespace fake {

namespace {

const char magic[] = "GC_EXE_FAKE\n";
const char portable[] = "POPEFGEN";
const std::size_t most = 1 << 16; // transfers of a run that are looked ahead

const fake_compute *functions = nullptr;

std::string plain(const std::string &s) {
  std::string out;
  for (std::size_t i = 0; i < s.size(); i++)
    if (s[i] == '%' && i + 2 < s.size()) {
      out += static_cast<char>(std::strtoul(s.substr(i + 1, 2).c_str(), nullptr, 16));
      i += 2;
    } else
      out += s[i];
  return out;
}

[[noreturn]] void junk(const std::string &why) { throw poplar::poplar_error("Error reading executable - " + why); }

void flatten(const std::vector<Step> &steps, Sequence &s) {
  for (const auto &step : steps)
    switch (step.what) {
    case Do::Read:
    case Do::Write:
      s.moves[step.stream] = true;
      if (s.transfers.size() < most)
        s.transfers.push_back(step.stream);
      break;
    case Do::Repeat:
      for (std::uint64_t i = 0; i < step.count && (i == 0 || s.transfers.size() < most); i++)
        flatten(step.body, s);
      break;
    default:
      break;
    }
}

class Reader {
public:
  Reader(std::istream &in, Program &p) : in(in), p(p) {}

  void all() {
    while (next()) {
      if (word == "hash")
        line >> p.hash;
      else if (word == "target")
        line >> p.arch >> p.ipus;
      else if (word == "stream")
        stream();
      else if (word == "remote") {
        std::string handle;
        RemoteBuffer b;
        line >> handle >> b.bytes >> b.repeats;
        p.remote[plain(handle)] = b;
      } else if (word == "program") {
        Sequence s;
        line >> s.index >> s.name;
        s.name = plain(s.name);
        s.steps = steps(0);
        s.moves.resize(p.streams.size());
        flatten(s.steps, s);
        p.programs.push_back(std::move(s));
      } else if (word == "data") {
        p.computed = true;
        p.bytes.assign(std::istreambuf_iterator<char>(in), {});
        return;
      } else
        junk("unknown word '" + word + "'");
    }
  }

private:
  bool next() {
    std::string text;
    if (!std::getline(in, text))
      return false;
    line = std::istringstream(text);
    word.clear();
    line >> word;
    return !word.empty() || next();
  }

  void stream() {
    Stream s;
    std::string handle, way, more;
    line >> handle >> way >> s.bytes;
    if (!line || (way != "in" && way != "out"))
      junk("bad stream");
    while (line >> more)
      if (more == "depth")
        line >> s.depth;
      else if (more == "speculative")
        s.speculative = true;
    s.handle = plain(handle);
    s.output = way == "out";
    p.streams.push_back(s);
  }

  std::size_t known(const std::string &name) const {
    std::size_t i = p.find(plain(name));
    if (i == std::string::npos)
      junk("no stream '" + name + "'");
    return i;
  }

  std::vector<std::size_t> list(const std::string &names) const {
    std::vector<std::size_t> out;
    std::istringstream all(names);
    for (std::string n; std::getline(all, n, ',');)
      out.push_back(known(n));
    return out;
  }

  std::vector<Step> steps(int deep) {
    std::vector<Step> out;
    if (deep > 16)
      junk("too many repeats inside each other");
    while (next()) {
      Step s{};
      std::string a, b;
      if (word == "end")
        return out;
      if (word == "read" || word == "write") {
        line >> a;
        s.what = word == "read" ? Do::Read : Do::Write;
        s.stream = known(a);
      } else if (word == "call") {
        s.what = Do::Call;
        line >> s.function >> a >> b;
        s.in = list(a);
        s.out = list(b);
      } else if (word == "recall") {
        s.what = Do::Recall;
        line >> s.function >> s.count >> a;
        s.function = plain(s.function);
        s.stream = known(a);
      } else if (word == "repeat") {
        s.what = Do::Repeat;
        line >> s.count;
        s.body = steps(deep + 1);
      } else if (word == "hang")
        s.what = Do::Hang;
      else if (word == "wait") {
        s.what = Do::Wait;
        line >> s.count;
      } else
        junk("unknown step '" + word + "'");
      out.push_back(std::move(s));
    }
    junk("it ends early");
  }

  std::istream &in;
  Program &p;
  std::istringstream line;
  std::string word;
};

} // namespace

const fake_compute *registered() { return functions; }

std::size_t Program::find(const std::string &handle) const {
  for (std::size_t i = 0; i < streams.size(); i++)
    if (streams[i].handle == handle)
      return i;
  return std::string::npos;
}

std::shared_ptr<Program> parse(const std::string &bytes) {
  auto p = std::make_shared<Program>();
  p->hash = std::string(poplar::packageHash());
  std::string text = bytes;
  if (bytes.rfind(portable, 0) == 0) {
    if (!functions)
      junk("nothing runs portable executables here");
    char *why = nullptr;
    char *description = functions->describe(bytes.data(), bytes.size(), &why);
    if (!description) {
      std::string m = why ? why : "?";
      std::free(why);
      junk(m);
    }
    text = description;
    std::free(description);
    text += "data\n" + bytes;
  }
  if (text.rfind(magic, 0) != 0)
    junk("it is no executable");
  std::istringstream in(text.substr(sizeof magic - 1));
  Reader(in, *p).all();
  if (!p->computed)
    p->bytes = bytes;
  return p;
}

} // namespace fake

extern "C" void fake_register(const fake_compute *f) { fake::functions = f; }

namespace poplar {

Executable::Executable(std::shared_ptr<const fake::Program> i) : impl(std::move(i)) {}
Executable::Executable(Executable &&) noexcept = default;
Executable &Executable::operator=(Executable &&) noexcept = default;
#if FAKE_POPLAR_API >= 303
Executable::Executable(const Executable &) = default;
Executable &Executable::operator=(const Executable &) = default;
#endif
Executable::~Executable() = default;

Executable Executable::deserialize(std::istream &in, bool checkPackageHash) {
  fake::strike("deserialize", "");
  const auto begin = in.tellg();
  in.seekg(0, std::ios::end);
  const auto end = in.tellg();
  in.seekg(begin);
  if (!in || begin == std::istream::pos_type(-1) || end < begin)
    throw poplar_error("Error reading executable - the stream can't be sought in");
  std::string bytes(static_cast<std::size_t>(end - begin), 0);
  in.read(&bytes[0], static_cast<std::streamsize>(bytes.size()));
  if (in.gcount() != static_cast<std::streamsize>(bytes.size()))
    throw poplar_error("Error reading executable - it ends early");
  auto p = fake::parse(bytes);
  const std::string own = packageHash();
  if (checkPackageHash && p->hash != own)
    throw poplar_error("Error reading executable - package hash (" + p->hash + ") differs from poplar hash (" + own + ")");
  return Executable(p);
}

Executable Executable::deserialize(std::unique_ptr<std::istream> in, bool checkPackageHash) { return deserialize(*in, checkPackageHash); }

void Executable::serialize(std::ostream &out) const { out << impl->bytes; }

} // namespace poplar
