#ifndef FAKE_POPLAR_EXCEPTIONS_HPP
#define FAKE_POPLAR_EXCEPTIONS_HPP

#include <stdexcept>
#include <string>

#include <poplar/Version.hpp>

namespace poplar {

struct poplar_error : std::runtime_error {
  std::string type;
  explicit poplar_error(const std::string &s) : std::runtime_error(s), type("poplar_error") {}
  explicit poplar_error(const char *s) : std::runtime_error(s), type("poplar_error") {}
};

// FAKE_POPLAR_ERROR declares an exception with a message, whose type is its name.
#define FAKE_POPLAR_ERROR(name, base)                                                                                  \
  struct name : base {                                                                                                 \
    explicit name(const std::string &s) : base(s) { type = #name; }                                                    \
  }

FAKE_POPLAR_ERROR(runtime_error, poplar_error);
FAKE_POPLAR_ERROR(application_runtime_error, runtime_error);
FAKE_POPLAR_ERROR(system_runtime_error, runtime_error);
FAKE_POPLAR_ERROR(unrecoverable_runtime_error, system_runtime_error);
FAKE_POPLAR_ERROR(unknown_runtime_error, system_runtime_error);
FAKE_POPLAR_ERROR(stream_connection_error, poplar_error);
FAKE_POPLAR_ERROR(stream_memory_allocation_error, poplar_error);
FAKE_POPLAR_ERROR(graph_memory_allocation_error, poplar_error);
FAKE_POPLAR_ERROR(invalid_option, poplar_error);
FAKE_POPLAR_ERROR(file_load_error, poplar_error);
FAKE_POPLAR_ERROR(parse_error, poplar_error);
FAKE_POPLAR_ERROR(control_program_error, poplar_error);
FAKE_POPLAR_ERROR(type_error, poplar_error);
FAKE_POPLAR_ERROR(index_error, poplar_error);
FAKE_POPLAR_ERROR(overflow_error, poplar_error);
#undef FAKE_POPLAR_ERROR

enum class RecoveryAction {
  IPU_RESET,
#if FAKE_POPLAR_API >= 303
  LINK_RESET,
#endif
  PARTITION_RESET,
  FULL_RESET
};

std::string toString(const RecoveryAction &action);

struct recoverable_runtime_error : system_runtime_error {
  recoverable_runtime_error(RecoveryAction action, const std::string &s) : system_runtime_error(s), action(action) {
    type = "recoverable_runtime_error";
  }
  RecoveryAction getRecoveryAction() const { return action; }

private:
  RecoveryAction action;
};

// link_error leaves its type unset, as Poplar's does.
struct link_error : poplar_error {
  std::string output;
  link_error(const std::string &s, const std::string &output) : poplar_error(s), output(output) { type.clear(); }
};

} // namespace poplar

#endif
