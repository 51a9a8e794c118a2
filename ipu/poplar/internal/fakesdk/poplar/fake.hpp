// What the fake's own files share. No program includes it but them and tests.
#ifndef FAKE_POPLAR_FAKE_HPP
#define FAKE_POPLAR_FAKE_HPP

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <poplar/Engine.hpp>
#include <poplar/Target.hpp>
#include <poplar/fake.h>

namespace fake {

std::string environment(const char *name, const char *otherwise);

// strike throws, or blocks until halt is set, if the script of faults says so for this point:
// FAKE_POPLAR_FAULT="POINT[:ARGUMENT][@N|@*]=EFFECT[:ACTION];…". See fault.cpp.
void strike(const std::string &point, const std::string &argument, const std::atomic<bool> *halt = nullptr);

// raise throws the exception that an effect of the script of faults names.
[[noreturn]] void raise(const std::string &effect, const std::string &action, const std::string &message);

struct TargetImpl {
  poplar::TargetType type = poplar::TargetType::IPU;
  std::string arch = "ipu2", system = "fake";
  unsigned ipus = 1, tiles = 1472;
};

struct DeviceImpl {
  poplar::Target target;
  unsigned id = 0;
  std::vector<unsigned> chips; // that the device consists of
  std::mutex mu;
  bool attached = false;
  std::atomic<const void *> owner{nullptr}; // the engine that was loaded last
  std::vector<int> locks; // files by which other processes know
  void detach();
};

// Stream is one stream of an executable.
struct Stream {
  std::string handle;
  bool output = false;
  std::size_t bytes = 0;
  unsigned depth = 1;       // transfers that may be prefetched
  bool speculative = false; // prefetched past the end of a program too
};

enum class Do { Read, Write, Call, Recall, Repeat, Hang, Wait };

struct Step {
  Do what;
  std::size_t stream = 0;            // Read, Write, Recall
  std::string function;              // Call; of Recall the remote buffer
  std::vector<std::size_t> in, out;  // Call: tensors, which are called as streams are
  std::uint64_t count = 0;           // Repeat, Wait in µs, block of Recall
  std::vector<Step> body;            // Repeat
};

struct Sequence {
  unsigned index = 0;
  std::string name;
  std::vector<Step> steps;
  std::vector<std::size_t> transfers; // in order, as far as they are looked ahead
  std::vector<bool> moves;            // by stream
};

struct RemoteBuffer {
  std::size_t bytes = 0, repeats = 0;
};

// Program is what is inside an executable.
struct Program {
  std::string bytes, hash, arch; // arch may be empty: any
  unsigned ipus = 0;             // 0: any
  std::vector<Stream> streams;
  std::vector<Sequence> programs;
  std::map<std::string, RemoteBuffer> remote;
  bool computed = false; // by the registered functions
  std::size_t find(const std::string &handle) const; // npos if there is none
};

// parse reads the text of an executable, see executable.cpp.
std::shared_ptr<Program> parse(const std::string &text);

const fake_compute *registered();

// Thread runs functions one after the other.
class Thread {
public:
  ~Thread();
  void call(const std::function<void()> &f); // and waits for it

private:
  std::mutex mu;
  std::condition_variable wake;
  const std::function<void()> *work = nullptr;
  std::exception_ptr failure;
  bool quit = false;
  std::thread thread;
};

// Nasty is what the fake does beyond what programs ask for: FAKE_POPLAR_NASTY="poison,refuse,extra,delay,discard,silent,forget,latency=50,seed=1".
struct Nasty {
  bool poison = false;  // buffers are overwritten after every call
  bool refuse = false;  // prefetches are left out now and then
  bool extra = false;   // prefetches beyond what the program will read
  bool delay = false;   // complete is called before the next transfer, not at once
  bool discard = false; // what was prefetched is thrown away now and then
  bool silent = false;  // outputs get no complete
  bool forget = false;  // loading forgets what is connected
  unsigned latency = 0; // µs before each transfer
  std::uint64_t state = 1;
  Nasty();
  bool chance(unsigned oneIn);
};

class EngineImpl {
public:
  EngineImpl(std::shared_ptr<const Program> program, const poplar::OptionFlags &options);
  ~EngineImpl();
  void load(const std::shared_ptr<DeviceImpl> &device);
  void run(unsigned index);
  void stop();
  void connect(const std::string &handle, std::unique_ptr<poplar::StreamCallback> callback, void *buffer, void *end);
  void remote(const std::string &handle, std::uint64_t repeat, void *to, const void *from);
  std::vector<std::string> streams() const;
  int transfer(std::size_t stream, void *tensor, std::size_t bytes); // for the registered functions
  int call(std::size_t stream, int what, void *tensor, std::size_t bytes); // as well

  poplar::OptionFlags options;

private:
  struct End {
    std::unique_ptr<poplar::StreamCallback> callback;
    void *buffer = nullptr;
    std::vector<char> tensor, lent;
    std::deque<std::vector<char>> ahead; // prefetched and not consumed, oldest first
    bool refused = false;                // to prefetch, since the last transfer
    unsigned late = 0;                   // calls of complete that are still to be made
    std::unique_ptr<Thread> thread;
  };
  void steps(const Sequence &s, const std::vector<Step> &all);
  void compute(const Step &s);
  void move(std::size_t i);
  void fetch(End &e, bool output, char *tensor, std::size_t bytes);
  bool prefetch(End &e, const std::string &handle, char *tensor, std::size_t bytes);
  void lookAhead();
  bool ask(std::size_t i);
  void discard(std::size_t i);
  void settle(End &e);
  void on(End &e, const std::function<void()> &f);
  void halted() const;

  std::shared_ptr<const Program> program;
  std::vector<End> ends;
  std::map<std::string, std::vector<char>> buffers; // remote
  std::shared_ptr<DeviceImpl> device;
  bool loaded = false, broken = false;
  bool prefetching = true;
  std::size_t lookahead = 64;
  std::string threads = "singleThread";
  Nasty nasty;
  const Sequence *current = nullptr;
  std::size_t at = 0; // in current->transfers
  std::atomic<bool> halt{false};
  std::exception_ptr failure; // of a transfer inside of a registered function
  std::unique_ptr<Thread> shared;
  std::uint64_t handle = 0; // of the registered functions
};

} // namespace fake

#endif
