/* Fails some calls of open and read with an error of choice, for chosen paths.
 *
 * LD_PRELOAD loads it. Nothing fails while FAULT_PATH is not set. Otherwise:
 *
 *   FAULT_PATH    a part of the paths whose calls fail
 *   FAULT_CALL    open or read (of any kind)
 *   FAULT_ERRNO   the number of the error
 *   FAULT_FIRST   the number of the first call that fails, from 0
 *   FAULT_TIMES   how many calls fail from then on; -1: all of them
 *   FAULT_COUNT   a file of 8 bytes, in which all processes count the calls together
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long number_of(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static long count_call(const char *file) {
    int descriptor = syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    long *count = mmap(0, 8, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    syscall(SYS_close, descriptor);
    if (count == MAP_FAILED)
        return -1;
    long before = __atomic_fetch_add(count, 1, __ATOMIC_SEQ_CST);
    munmap(count, 8);
    return before;
}

/* Whether this call must fail; it is counted, and errno is set. */
static int fails(const char *call, const char *path) {
    const char *part = getenv("FAULT_PATH"), *which = getenv("FAULT_CALL");
    if (!part || !which || strcmp(which, call) || !strstr(path, part))
        return 0;
    const char *file = getenv("FAULT_COUNT");
    long number = file ? count_call(file) : -1;
    long after = number - number_of("FAULT_FIRST"), times = number_of("FAULT_TIMES");
    if (number < 0 || after < 0 || (times >= 0 && after >= times))
        return 0;
    errno = (int)number_of("FAULT_ERRNO");
    return 1;
}

static int read_fails(int descriptor) {
    if (!getenv("FAULT_PATH"))
        return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails("read", path);
}

#define OPEN(name)                                                                     \
    int name(const char *path, int flags, ...) {                                       \
        static int (*real)(const char *, int, ...);                                    \
        if (!real)                                                                     \
            real = dlsym(RTLD_NEXT, #name);                                            \
        va_list more;                                                                  \
        va_start(more, flags);                                                         \
        int mode = va_arg(more, int);                                                  \
        va_end(more);                                                                  \
        return fails("open", path) ? -1 : real(path, flags, mode);                     \
    }
OPEN(open)
OPEN(open64)

#define READ(name, offset_type)                                                        \
    ssize_t name(int descriptor, void *buffer, size_t count, offset_type offset) {     \
        static ssize_t (*real)(int, void *, size_t, offset_type);                      \
        if (!real)                                                                     \
            real = dlsym(RTLD_NEXT, #name);                                            \
        return read_fails(descriptor) ? -1 : real(descriptor, buffer, count, offset);  \
    }
READ(pread, off_t)
READ(pread64, off64_t)

ssize_t read(int descriptor, void *buffer, size_t count) {
    return read_fails(descriptor) ? -1 : syscall(SYS_read, descriptor, buffer, count);
}
