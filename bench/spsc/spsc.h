// Round trips between two threads through two queues of one producer and one
// consumer each, neither of whom ever sleeps.

#ifndef SPSC_H
#define SPSC_H

#include <stdint.h>

// spsc_round_trips sends so many values to a thread that sends them back
// through queues of that capacity. It returns an errno if there is no thread,
// and EIO if a value came back changed.
int spsc_round_trips(int64_t trips, uint32_t capacity);

#endif
