/* Makes each sync of a file 2 ms slower, as on a disk that is not this quick. For LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#define SLOWED(name)                                        \
    int name(int fd) {                                      \
        int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, #name); \
        usleep(2000);                                       \
        return real(fd);                                    \
    }

SLOWED(fsync)
SLOWED(fdatasync)
