/* Stands before the system's library (LD_PRELOAD): forcing a file takes so many milliseconds longer
   as the file CHAOS_FORCE_MS says, and if any, adds a byte to CHAOS_FORCE_LOG. A force that waits sees
   a shorter time at once, so that a disk that hangs can answer again. */
#define _GNU_SOURCE
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

static long since_ms(struct timespec start) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
}

static void wait_as_a_slow_disk(void) {
  struct timespec start;
  clock_gettime(CLOCK_MONOTONIC, &start);
  if (delay_ms() > 0) {
    for (long left; (left = delay_ms() - since_ms(start)) > 0;) {
      long pause = left < 20 ? left : 20;
      struct timespec rest = {0, pause * 1000000};
      nanosleep(&rest, NULL);
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
