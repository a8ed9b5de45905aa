/* Stands before the system's library (LD_PRELOAD): forcing a file takes so many milliseconds longer
   as the file CHAOS_FORCE_MS says at that moment, and if any, adds a byte to CHAOS_FORCE_LOG. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long delay_ms(void) {
  char text[16] = {0};
  const char *path = getenv("CHAOS_FORCE_MS");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0 || read(file, text, sizeof text - 1) < 0) {
    abort(); /* A trial whose disk is not slow is worse than none. */
  }
  close(file);
  return atol(text);
}

static void note(void) {
  const char *path = getenv("CHAOS_FORCE_LOG");
  int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  if (file < 0 || write(file, "\n", 1) != 1) {
    abort();
  }
  close(file);
}

static void wait_as_a_slow_disk(void) {
  long ms = delay_ms();
  struct timespec left = {ms / 1000, ms % 1000 * 1000000};
  if (ms > 0) {
    while (nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
    note();
  }
}

int fsync(int file) {
  wait_as_a_slow_disk();
  return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file) {
  wait_as_a_slow_disk();
  return (int)syscall(SYS_fdatasync, file);
}
