// How engines of Go compute for the fake.
#ifndef FAKE_POPLAR_FAKE_H
#define FAKE_POPLAR_FAKE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// fake_compute are functions that run portable executables, and those that Go's side knows (Compute). Texts that they
// return are malloc'd; an error has an effect of the script of faults (fault.cpp) in its first line, and a message.
typedef struct fake_compute {
  // describe returns the executable as text (executable.cpp), or NULL and why not.
  char *(*describe)(const void *exe, size_t size, char **error);
  // open makes an engine and returns its handle, or 0 and why not.
  uint64_t (*open)(const void *exe, size_t size, char **error);
  // load loads it; it returns an error or NULL.
  char *(*load)(uint64_t engine);
  // run runs a program, and calls fake_transfer with context for each transfer; it returns an error or NULL.
  char *(*run)(uint64_t engine, unsigned program, void *context);
  // stop makes what is under way end, from another thread.
  void (*stop)(uint64_t engine);
  void (*close)(uint64_t engine);
} fake_compute;

// fake_register makes the fake run portable executables.
void fake_register(const fake_compute *functions);

// fake_transfer moves one transfer of the stream with that number: into data for an input, out of it for an output.
// What it returns is not 0 if the program has to end.
int fake_transfer(void *context, uint32_t stream, void *data, size_t size);

// fake_pause waits for as long as fake_pauses has said: tests of the back end have its thread be slow there.
void fake_pause(void);
void fake_pauses(uint32_t microseconds);

enum { FAKE_FETCH, FAKE_PREFETCH, FAKE_COMPLETE, FAKE_INVALIDATE };

// fake_call makes one call of a stream's callback, for what decides itself when a device makes which; the streams have
// a depth of 0 then. It returns 1 if a prefetch had data, and -1 if the program has to end.
int fake_call(void *context, uint32_t stream, int what, void *data, size_t size);

// fake_blocks returns how many blocks of memory this process has allocated and not freed, -1 if that is not counted.
int64_t fake_blocks(void);

#ifdef __cplusplus
}
#endif

#endif
