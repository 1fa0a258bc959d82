/* Loaded before the C library, it makes files whose path holds $SLOW_FILES as slow as those of a far disk.
 *
 * Opening one takes $SLOW_MS. So does reading what was not read before; what was announced (posix_fadvise) arrives that
 * long after the announcement, whatever else is on its way. With $SLOW_DEAF announcements are not heard. At the end
 * $SLOW_REPORT is written: how many requests there were, and how many were on their way at once at most. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOST 65536
#define CACHESTAT 451

struct request {
    ino_t inode;
    long long begin, end;
    double arrives;
};

static struct request requests[MOST];
static int count, most_in_flight;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static const char *marker(void) {
    const char *name = getenv("SLOW_FILES");
    return name ? name : "\001";
}

static double latency(void) { return atof(getenv("SLOW_MS")) / 1000; }

static int is_slow(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return strstr(path, marker()) != NULL;
}

/* When a stretch is there; it is asked for unless it was before. */
static double ask(ino_t inode, long long begin, long long end) {
    double begun = now(), arrives = -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && inode; i++)
        if (requests[i].inode == inode && requests[i].begin <= begin && end <= requests[i].end)
            arrives = requests[i].arrives;
    if (arrives < 0 && count < MOST) {
        arrives = begun + latency();
        requests[count++] = (struct request){inode, begin, end, arrives};
        int flying = 0;
        for (int i = 0; i < count; i++) flying += requests[i].arrives > begun;
        if (flying > most_in_flight) most_in_flight = flying;
    }
    pthread_mutex_unlock(&lock);
    return arrives;
}

static void await(double when) {
    double left;
    while ((left = when - now()) > 0) {
        struct timespec t = {(time_t)left, (long)((left - (time_t)left) * 1e9)};
        nanosleep(&t, NULL);
    }
}

static void arrive(int fd, long long offset, long long nbytes) {
    struct stat status;
    if (nbytes > 0 && is_slow(fd) && fstat(fd, &status) == 0 && offset < status.st_size)
        await(ask(status.st_ino, offset, offset + nbytes < status.st_size ? offset + nbytes : status.st_size));
}

static long long total(const struct iovec *parts, int n) {
    long long sum = 0;
    for (int i = 0; i < n; i++) sum += parts[i].iov_len;
    return sum;
}

#define OPEN(NAME)                                                             \
    int NAME(const char *path, int flags, ...) {                               \
        static int (*real)(const char *, int, ...);                            \
        if (!real) real = dlsym(RTLD_NEXT, #NAME);                             \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        int mode = va_arg(rest, int);                                          \
        va_end(rest);                                                          \
        if (strstr(path, marker())) await(ask(0, 0, 0));                       \
        return real(path, flags, mode);                                        \
    }
OPEN(open)
OPEN(open64)

#define PREADV(NAME)                                                           \
    ssize_t NAME(int fd, const struct iovec *parts, int n, off_t offset) {     \
        static ssize_t (*real)(int, const struct iovec *, int, off_t);         \
        if (!real) real = dlsym(RTLD_NEXT, #NAME);                             \
        arrive(fd, offset, total(parts, n));                                   \
        return real(fd, parts, n, offset);                                     \
    }
PREADV(preadv)
PREADV(preadv64)

#define PREADV2(NAME)                                                          \
    ssize_t NAME(int fd, const struct iovec *parts, int n, off_t offset, int flags) { \
        static ssize_t (*real)(int, const struct iovec *, int, off_t, int);    \
        if (!real) real = dlsym(RTLD_NEXT, #NAME);                             \
        arrive(fd, offset, total(parts, n));                                   \
        return real(fd, parts, n, offset, flags);                              \
    }
PREADV2(preadv2)
PREADV2(preadv64v2)

static int advise(int fd, off_t offset, off_t nbytes) {
    struct stat status;
    if (!getenv("SLOW_DEAF") && is_slow(fd) && fstat(fd, &status) == 0)
        ask(status.st_ino, offset, offset + nbytes < status.st_size ? offset + nbytes : status.st_size);
    return 0;
}

int posix_fadvise(int fd, off_t offset, off_t nbytes, int advice) { return advise(fd, offset, nbytes); }
int posix_fadvise64(int fd, off_t offset, off_t nbytes, int advice) { return advise(fd, offset, nbytes); }

long syscall(long number, ...) {
    static long (*real)(long, ...);
    if (!real) real = dlsym(RTLD_NEXT, "syscall");
    long args[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) args[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_io_submit) {
        struct iocb **reads = (struct iocb **)args[2];
        for (long i = 0; i < args[1]; i++)
            if ((reads[i]->aio_rw_flags & RWF_NOWAIT) && is_slow(reads[i]->aio_fildes)) {
                errno = EOPNOTSUPP; /* as on file systems that cannot read without waiting */
                return -1;
            }
        for (long i = 0; i < args[1]; i++)
            arrive(reads[i]->aio_fildes, reads[i]->aio_offset, reads[i]->aio_nbytes);
    }
    if (number == CACHESTAT && is_slow((int)args[0])) {
        memset((void *)args[2], 0, 5 * sizeof(long long)); /* nothing is in memory */
        return 0;
    }
    return real(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("SLOW_REPORT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%d %d\n", count, most_in_flight);
    fclose(file);
}
