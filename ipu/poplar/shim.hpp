// What the shim's own files share.
#ifndef POPEFGEN_POPLAR_SHIM_HPP
#define POPEFGEN_POPLAR_SHIM_HPP

#include "shim.h"

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#if !__has_include(<poplar/Device.hpp>)
#error "there is no poplar/Device.hpp: set CGO_CXXFLAGS and CGO_LDFLAGS for Poplar's SDK as docs/poplar.md says, or build for the fake with -tags poplar,poplarfake"
#endif
#include <poplar/Device.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/exceptions.hpp>

// fill makes an error, and returns its code.
int32_t fill(plr_err *err, int32_t code, const std::string &type, const char *msg, int32_t recovery = PLR_NO_ACTION) noexcept;
// fill_poplar is fill with the type that the exception names, or that it was caught as.
int32_t fill_poplar(plr_err *err, int32_t code, const poplar::poplar_error &e, const char *caught, int32_t recovery = PLR_NO_ACTION) noexcept;
// recovery_action returns the number of the action with that name.
int32_t recovery_action(const std::string &name) noexcept;
poplar::OptionFlags flags(plr_options o);

// guard calls f and makes an error of what it throws, the most derived classes first.
template <class F> int32_t guard(plr_err *err, F f) noexcept {
  try {
    f();
    return PLR_OK;
  } catch (const poplar::recoverable_runtime_error &e) {
    int32_t a = PLR_NO_ACTION;
    try {
      a = recovery_action(poplar::toString(e.getRecoveryAction())); // its names differ between versions: LINK_RESET is new in 3.3
    } catch (...) {
    }
    return fill_poplar(err, PLR_RECOVERABLE, e, "recoverable_runtime_error", a);
  } catch (const poplar::unrecoverable_runtime_error &e) {
    return fill_poplar(err, PLR_UNRECOVERABLE, e, "unrecoverable_runtime_error");
  } catch (const poplar::unknown_runtime_error &e) {
    return fill_poplar(err, PLR_UNKNOWN, e, "unknown_runtime_error");
  } catch (const poplar::system_runtime_error &e) {
    return fill_poplar(err, PLR_SYSTEM, e, "system_runtime_error");
  } catch (const poplar::application_runtime_error &e) {
    return fill_poplar(err, PLR_APPLICATION, e, "application_runtime_error");
  } catch (const poplar::runtime_error &e) {
    return fill_poplar(err, PLR_RUNTIME, e, "runtime_error");
  } catch (const poplar::stream_connection_error &e) {
    return fill_poplar(err, PLR_CONNECTION, e, "stream_connection_error");
  } catch (const poplar::invalid_option &e) {
    return fill_poplar(err, PLR_OPTION, e, "invalid_option");
  } catch (const poplar::stream_memory_allocation_error &e) {
    return fill_poplar(err, PLR_MEMORY, e, "stream_memory_allocation_error");
  } catch (const poplar::graph_memory_allocation_error &e) {
    return fill_poplar(err, PLR_MEMORY, e, "graph_memory_allocation_error");
  } catch (const poplar::link_error &e) {
    return fill_poplar(err, PLR_POPLAR, e, "link_error");
  } catch (const poplar::poplar_error &e) {
    return fill_poplar(err, std::strstr(e.what(), "package hash") ? PLR_HASH : PLR_POPLAR, e, "poplar_error");
  } catch (const std::bad_alloc &e) {
    return fill(err, PLR_MEMORY, "std::bad_alloc", e.what());
  } catch (const std::exception &e) {
    return fill(err, PLR_STD, "std::exception", e.what());
  } catch (...) {
    return fill(err, PLR_STD, "", "something that is no std::exception was thrown");
  }
}

struct plr_device {
  std::shared_ptr<poplar::Device> device;
  bool attached = false;
};

#endif
