// What Go calls of Poplar, and the memory that both sides share. No exception leaves these functions.
#ifndef POPEFGEN_POPLAR_SHIM_H
#define POPEFGEN_POPLAR_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Codes of plr_err. 0 is no error.
enum {
  PLR_OK = 0,
  PLR_STD = 1,        // std::exception, or something else that was thrown
  PLR_POPLAR = 2,     // poplar_error without a code of its own
  PLR_RUNTIME = 3,    // runtime_error
  PLR_APPLICATION = 4,
  PLR_RECOVERABLE = 5, // recovery says what helps
  PLR_UNRECOVERABLE = 6,
  PLR_UNKNOWN = 7,
  PLR_CONNECTION = 8,
  PLR_OPTION = 9,
  PLR_MEMORY = 10,
  PLR_HASH = 11,
  PLR_SYSTEM = 12,    // system_runtime_error
  PLR_BUSY = 20,
  PLR_SKIPPED = 21,   // the run was not begun: it was to end by then, or one before it has failed
  PLR_ARGUMENT = 22
};

// Recovery actions.
enum { PLR_NO_ACTION = 0, PLR_IPU_RESET = 1, PLR_LINK_RESET = 2, PLR_PARTITION_RESET = 3, PLR_FULL_RESET = 4 };

typedef struct plr_err {
  int32_t code, recovery;
  char type[64]; // of the exception
  char *msg;     // malloc'd, or NULL; plr_err_clear frees it
} plr_err;

// plr_options are n pairs of texts, one after the other, each ended by a NUL.
typedef struct plr_options {
  const char *pairs;
  size_t n;
} plr_options;

typedef struct plr_devinfo {
  uint32_t id, ipus, tiles;
  int32_t type; // as poplar::TargetType counts them: 0 IPU, 1 model, 2 CPU
  int32_t remote_buffers; // 1, 0, or -1 if that is not known: the device is not attached
  char arch[16], system[32];
} plr_devinfo;

// Bounds of what an engine has under way: one command that Go waits for, and runs that were begun ahead, each with a slot.
// The queue has room for all of them.
enum { PLR_SLOTS = 17, PLR_QUEUE = 32 };

enum { PLR_RUN = 1, PLR_LOAD = 2, PLR_QUIT = 3 };

// What a plr_run's go_waits says: nobody waits, somebody waits at this futex, or for its event counter.
enum { PLR_NOBODY = 0, PLR_AT_FUTEX = 1, PLR_AT_EVENT = 2 };

// plr_run is one command. Its slot is Go's until it is in the queue, and again once it has ended.
typedef struct plr_run {
  uint32_t command;  // Go
  uint32_t program;  // Go
  uint32_t epoch;    // Go: once a command has failed, runs of the same epoch are skipped
  int32_t event;     // Go: the event counter for go_waits
  uint32_t number;   // Go: another one for each run
  uint32_t failed;   // either: it has failed; inputs are zeros from now on, outputs are dropped
  uint32_t ended;    // C: 1 when it has
  int32_t result;    // C: its code, before ended
  uint32_t go_waits; // a futex: who sets it waits until somebody has cleared it
  uint8_t pad[28];
} plr_run;

// plr_mail is where Go and an engine's thread tell each other what is to be done.
typedef struct plr_mail {
  uint32_t asked; // Go: how many commands there were
  uint8_t pad0[60];
  uint32_t ended; // C: how many of them have ended
  uint32_t now;   // C: the slot of the run under way; PLR_SLOTS if there is none
  uint8_t pad1[56];
  uint32_t c_waits; // a futex
  uint8_t pad2[60];
  uint32_t queue[PLR_QUEUE]; // Go: command number k has slot queue[k % PLR_QUEUE]
  plr_run runs[PLR_SLOTS];
} plr_mail;

// plr_part is the memory of one run for the transfers of one stream. It is the caller's, one transfer after the other.
typedef struct plr_part {
  uintptr_t mem;  // Go: its address, 0 for an output that is dropped
  uint64_t n;     // Go: transfers
  uint64_t moved; // C: transfers of an input that are complete, of an output that have arrived
  uint32_t run;   // Go: the number of the run
  uint32_t over;  // C: 1 if the program moves more than there is
  uint8_t pad[32];
} plr_part;

// plr_ring is what the engine knows of a stream whose transfers it makes itself: where they lie in the runs that are
// under way.
typedef struct plr_ring {
  uint64_t bytes;  // of a transfer
  plr_mail *mail;
  uint64_t look;   // C: transfers of an input that were handed over and are not complete
  uint64_t fetched, prefetched, refused, starved; // C: how often
  uint8_t pad[8];
  plr_part parts[PLR_SLOTS];
} plr_ring;

// PLR_LAYOUT numbers describe the memory above as the C++ compiler lays it out.
enum { PLR_LAYOUT = 40 };
void plr_layout(size_t out[PLR_LAYOUT]);

typedef struct plr_device plr_device;
typedef struct plr_exe plr_exe;
typedef struct plr_engine plr_engine;

const char *plr_version(void);
const char *plr_package_hash(void);
void plr_err_clear(plr_err *err);
void plr_free(void *p);

// Functions that return int32_t return the code of *err, which is zeros or an earlier error before, and is freed then.

// plr_devices lists the devices, which are not attached. The caller frees *out by plr_free.
int32_t plr_devices(plr_options options, plr_devinfo **out, size_t *n, plr_err *err);
// plr_device_open returns the device of that id, plr_device_model a simulated one. The caller frees them.
int32_t plr_device_open(uint32_t id, plr_options options, plr_device **out, plr_err *err);
int32_t plr_device_model(uint32_t ipus, const char *version, uint32_t tiles, plr_options options, plr_device **out, plr_err *err);
int32_t plr_device_info(plr_device *dev, plr_devinfo *out, plr_err *err);
// plr_device_attach tries once; *ok is 0 if the device is attached elsewhere.
int32_t plr_device_attach(plr_device *dev, int32_t *ok, plr_err *err);
int32_t plr_device_detach(plr_device *dev, plr_err *err);
// plr_device_free detaches it if it is attached, and gives up the handle; an engine that is loaded on the device keeps what it needs.
void plr_device_free(plr_device *dev);

// The memory is read during the call alone. A file is read by pread, from offset on.
int32_t plr_exe_from_memory(const void *mem, size_t size, int32_t check_hash, plr_exe **out, plr_err *err);
int32_t plr_exe_from_file(int32_t fd, uint64_t offset, uint64_t size, int32_t check_hash, plr_exe **out, plr_err *err);
void plr_exe_free(plr_exe *exe);

// plr_engine_new makes an engine and its thread. It consumes exe, also when it fails.
int32_t plr_engine_new(plr_exe *exe, plr_options options, plr_engine **out, plr_err *err);
plr_mail *plr_engine_mail(plr_engine *eng);
// plr_engine_streams returns the names of all streams as Poplar has them, each ended by a NUL, for plr_free.
int32_t plr_engine_streams(plr_engine *eng, char **names, size_t *n, plr_err *err);
// plr_engine_device says what the next PLR_LOAD loads onto.
int32_t plr_engine_device(plr_engine *eng, plr_device *dev, plr_err *err);
// plr_engine_error moves the error of a slot's command, which has ended, to *err and returns its code.
int32_t plr_engine_error(plr_engine *eng, uint32_t slot, plr_err *err);
// plr_engine_stop calls Engine::stop, from any thread.
void plr_engine_stop(plr_engine *eng);
// plr_engine_free ends the thread and frees the engine. No command may be under way.
int32_t plr_engine_free(plr_engine *eng, plr_err *err);

// What a stream is connected to: memory that is read in place, a ring, a Go stream, zeros and nothing. No command may be
// under way.
int32_t plr_connect_memory(plr_engine *eng, const char *handle, void *mem, size_t size, plr_err *err);
int32_t plr_connect_ring(plr_engine *eng, const char *handle, int32_t output, plr_ring *ring, plr_err *err);
int32_t plr_connect_go(plr_engine *eng, const char *handle, int32_t output, uint64_t id, size_t bytes, plr_err *err);
int32_t plr_connect_null(plr_engine *eng, const char *handle, size_t bytes, plr_err *err);

int32_t plr_remote_write(plr_engine *eng, const char *handle, uint64_t repeat, const void *mem, plr_err *err);
int32_t plr_remote_read(plr_engine *eng, const char *handle, uint64_t repeat, void *mem, plr_err *err);

// plr_ring_new makes a ring without memory of any run; NULL if there is no memory for it.
plr_ring *plr_ring_new(uint64_t bytes, plr_mail *mail);
void plr_ring_free(plr_ring *ring);

// What Go offers to plr_connect_go. plrGoFetch returns 0, or something else if the run has failed; plrGoPrefetch returns
// 1 if it filled the memory, 0 if not and -1 if the run has failed.
int32_t plrGoFetch(uint64_t id, void *mem, uint64_t bytes);
int32_t plrGoPrefetch(uint64_t id, void *mem, uint64_t bytes);
int32_t plrGoComplete(uint64_t id);
int32_t plrGoInvalidate(uint64_t id);

#ifdef __cplusplus
}
#endif

#endif
