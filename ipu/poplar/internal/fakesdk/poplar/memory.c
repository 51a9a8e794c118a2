//go:build poplar && poplarfake && linux && cgo

// Counts the blocks that C and C++ have allocated, in the whole process: what glibc's malloc and its kin are called
// through is here.

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include <poplar/fake.h>

#if defined(__GLIBC__)

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static int64_t blocks;

static void *more(void *p) {
  if (p)
    __atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
  return p;
}

static void fewer(void *p) {
  if (p)
    __atomic_sub_fetch(&blocks, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t n) { return more(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) { return more(__libc_calloc(n, size)); }
void *memalign(size_t alignment, size_t n) { return more(__libc_memalign(alignment, n)); }
void *aligned_alloc(size_t alignment, size_t n) { return more(__libc_memalign(alignment, n)); }

int posix_memalign(void **out, size_t alignment, size_t n) {
  void *p = more(__libc_memalign(alignment, n));
  if (!p)
    return ENOMEM;
  *out = p;
  return 0;
}

void *realloc(void *p, size_t n) {
  void *q = __libc_realloc(p, n);
  if (!p)
    more(q);
  else if (n == 0 && !q)
    fewer(p);
  return q;
}

void free(void *p) {
  fewer(p);
  __libc_free(p);
}

int64_t fake_blocks(void) { return __atomic_load_n(&blocks, __ATOMIC_RELAXED); }

#else

int64_t fake_blocks(void) { return -1; }

#endif
