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

// plr_mail is where Go and an engine's thread tell each other what is to be done. Each line is written by one side, but
// for the flags of who waits: who sets one waits until the other has cleared it.
typedef struct plr_mail {
  uint32_t asked;   // Go: how many commands there were
  uint32_t command; // Go: the last; PLR_RUN or PLR_LOAD
  uint32_t program; // Go
  uint32_t failed;  // either: the run has failed; inputs are zeros from now on, outputs are dropped
  uint8_t pad0[48];
  uint32_t ended;   // C: how many of them have ended
  int32_t result;   // C: the code of the last that ended
  int32_t eventfd;  // what C writes to for a Go that waits
  uint8_t pad1[52];
  uint32_t go_waits;
  uint8_t pad2[60];
  uint32_t c_waits; // a futex
  uint8_t pad3[60];
} plr_mail;

enum { PLR_RUN = 1, PLR_LOAD = 2, PLR_QUIT = 3 };

// plr_ring is a ring of transfers of one stream. Transfer k lies in slot k & mask, of stride bytes each.
typedef struct plr_ring {
  uint64_t head; // the consumer: transfers that it is done with
  uint8_t pad0[56];
  uint64_t tail; // the producer: transfers that are there
  uint8_t pad1[56];
  uint32_t c_waits;    // a futex: the engine waits for a transfer, or for room
  uint32_t go_waits;   // Go wants to be told of room
  uint64_t look;       // C: transfers of an input that were handed over and are not complete
  uint8_t pad2[48];
  uint64_t mask, bytes, stride;
  uint8_t *slots;
  plr_mail *mail;
  uint8_t pad3[24];
  uint64_t fetched, prefetched, refused, starved; // C: how often
  uint8_t pad4[32];
} plr_ring;

// PLR_LAYOUT numbers describe the memory above as the C++ compiler lays it out.
enum { PLR_LAYOUT = 29 };
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
// plr_device_free gives up the handle; an engine that is loaded on the device keeps what it needs.
void plr_device_free(plr_device *dev);

// The memory is read during the call alone. A file is read by pread, from offset on.
int32_t plr_exe_from_memory(const void *mem, size_t size, int32_t check_hash, plr_exe **out, plr_err *err);
int32_t plr_exe_from_file(int32_t fd, uint64_t offset, uint64_t size, int32_t check_hash, plr_exe **out, plr_err *err);
void plr_exe_free(plr_exe *exe);

// plr_engine_new makes an engine and its thread. It consumes exe, also when it fails.
int32_t plr_engine_new(plr_exe *exe, plr_options options, int32_t eventfd, plr_engine **out, plr_err *err);
plr_mail *plr_engine_mail(plr_engine *eng);
// plr_engine_streams returns the names of all streams as Poplar has them, each ended by a NUL, for plr_free.
int32_t plr_engine_streams(plr_engine *eng, char **names, size_t *n, plr_err *err);
// plr_engine_device says what the next PLR_LOAD loads onto.
int32_t plr_engine_device(plr_engine *eng, plr_device *dev, plr_err *err);
// plr_engine_error moves the error of the last command to *err and returns its code.
int32_t plr_engine_error(plr_engine *eng, plr_err *err);
// plr_engine_stop calls Engine::stop, from any thread.
void plr_engine_stop(plr_engine *eng);
// plr_engine_free ends the thread and frees the engine. No command may be under way.
int32_t plr_engine_free(plr_engine *eng, plr_err *err);

// What a stream is connected to: memory that is read in place, a ring, a Go stream, zeros and nothing.
int32_t plr_connect_memory(plr_engine *eng, const char *handle, void *mem, size_t size, plr_err *err);
int32_t plr_connect_ring(plr_engine *eng, const char *handle, int32_t output, plr_ring *ring, plr_err *err);
int32_t plr_connect_go(plr_engine *eng, const char *handle, int32_t output, uint64_t id, size_t bytes, plr_err *err);
int32_t plr_connect_null(plr_engine *eng, const char *handle, size_t bytes, plr_err *err);

int32_t plr_remote_write(plr_engine *eng, const char *handle, uint64_t repeat, const void *mem, plr_err *err);
int32_t plr_remote_read(plr_engine *eng, const char *handle, uint64_t repeat, void *mem, plr_err *err);

// plr_ring_new makes a ring of a power of two of slots; NULL if there is no memory.
plr_ring *plr_ring_new(uint64_t slots, uint64_t bytes, plr_mail *mail);
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
