/* A disk that takes longer to flush: SLOW_FLUSH_US microseconds more for each fsync and fdatasync of a program.
 *
 *     cc -shared -fPIC -o /tmp/slow_flush.so bench/slow_flush.c -ldl
 *     LD_PRELOAD=/tmp/slow_flush.so SLOW_FLUSH_US=1000 make bench ARGS='--store sqlite --only tasks'
 *
 * What group commit is worth depends on it. Runs like these belong in no table: `git checkout bench/results` after them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int slowly(const char *name, int file)
{
    int (*flush)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    const char *given = getenv("SLOW_FLUSH_US");
    int result = flush(file);
    if (given)
        usleep((useconds_t)atol(given));
    return result;
}

int fsync(int file) { return slowly("fsync", file); }

int fdatasync(int file) { return slowly("fdatasync", file); }
