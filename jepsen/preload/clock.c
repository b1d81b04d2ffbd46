/* Gives one process clocks of its own: MONOTONIC and BOOTTIME run at another rate, REALTIME jumps.
 * Loaded with LD_PRELOAD; RATCHET_JEPSEN_CLOCK names a file that holds a struct clock, which the
 * harness rewrites while the process runs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct clock {
  _Atomic uint64_t version;  /* odd while it is being written */
  int64_t rate_millionths;   /* 1000000: as fast as the real clock */
  int64_t base_real[2];      /* MONOTONIC, BOOTTIME in ns when the rate was set */
  int64_t base_shown[2];     /* what the process was shown at that moment */
  int64_t wall_offset;       /* added to REALTIME, ns */
  _Atomic uint64_t readings; /* how often it was asked: shows that the preload is in place */
};

static struct clock *_Atomic shared;

__attribute__((constructor)) static void start(void) {
  const char *path = getenv("RATCHET_JEPSEN_CLOCK");
  if (!path) return;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *at = mmap(0, sizeof(struct clock), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at != MAP_FAILED) shared = at;
}

int clock_gettime(clockid_t id, struct timespec *shown) {
  int failed = (int)syscall(SYS_clock_gettime, id, shown);
  struct clock *clock = shared;
  if (failed || !clock) return failed;
  int which = id == CLOCK_MONOTONIC ? 0 : id == CLOCK_BOOTTIME ? 1 : id == CLOCK_REALTIME ? 2 : -1;
  if (which < 0) return 0;
  clock->readings++;
  int64_t real = shown->tv_sec * 1000000000LL + shown->tv_nsec, ns;
  uint64_t version;
  do {
    version = clock->version;
    if (which == 2) {
      ns = real + clock->wall_offset;
    } else {
      __int128 since = real - clock->base_real[which];
      ns = clock->base_shown[which] + (int64_t)(since * clock->rate_millionths / 1000000);
    }
  } while (version & 1 || version != clock->version);
  shown->tv_sec = ns / 1000000000LL;
  shown->tv_nsec = ns % 1000000000LL;
  return 0;
}
