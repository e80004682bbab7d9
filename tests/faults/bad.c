/* Reads of one file that fail, end early, come in small pieces or give other bytes: loaded before the C library.
 *
 * What is to happen stands in a page that a process shares with those it forks: `bad_set` writes it, and `bad_count`
 * tells what was asked for since. The file is known by its inode, whatever name it was opened by.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING, FAIL, END, PIECES, CHANGE };
enum { READS, HITS, MAPS };

static struct bad {
    int mode;
    dev_t device;
    ino_t inode;
    off_t first, behind; /* these bytes of the file */
    long from;           /* from this read of the file on, counted from 0 */
    long counts[3];      /* reads of the file, of those the ones that were not as they should be, its mappings */
} *bad;

__attribute__((constructor)) static void make(void) {
    bad = mmap(NULL, sizeof *bad, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

int bad_set(int mode, const char *path, long first, long behind, long from) {
    struct stat status;
    memset(bad, 0, sizeof *bad);
    if (mode == NOTHING)
        return 0;
    if (stat(path, &status) != 0)
        return -1;
    bad->device = status.st_dev, bad->inode = status.st_ino;
    bad->first = first, bad->behind = behind, bad->from = from, bad->mode = mode;
    return 0;
}

long bad_count(int which) { return bad->counts[which]; }

static int is_wanted(int number) {
    struct stat status;
    return bad && bad->mode && fstat(number, &status) == 0 && status.st_ino == bad->inode &&
           status.st_dev == bad->device;
}

/* What a read that would give `got` bytes from `at` on gives: -1 where it fails. */
static ssize_t spoiled(ssize_t got, const struct iovec *parts, int count, off_t at) {
    long number = __sync_fetch_and_add(&bad->counts[READS], 1);
    off_t end = at + got;
    if (got <= 0 || number < bad->from)
        return got;
    if (bad->mode == PIECES) {
        if (got < 2)
            return got;
        __sync_fetch_and_add(&bad->counts[HITS], 1);
        return got / 2;
    }
    if (end <= bad->first || at >= bad->behind)
        return got;
    __sync_fetch_and_add(&bad->counts[HITS], 1);
    if (bad->mode == CHANGE) {
        off_t position = at;
        for (int part = 0; part < count && position < end; position += parts[part++].iov_len)
            for (size_t byte = 0; byte < parts[part].iov_len && position + (off_t)byte < end; byte++)
                if (position + (off_t)byte >= bad->first && position + (off_t)byte < bad->behind)
                    ((unsigned char *)parts[part].iov_base)[byte] ^= 0x81;
        return got;
    }
    if (at < bad->first)
        return bad->first - at;
    if (bad->mode == END)
        return 0;
    errno = EIO;
    return -1;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
    real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define ONE(buffer, size) &(struct iovec){buffer, size}, 1

ssize_t pread(int number, void *buffer, size_t size, off_t at) {
    REAL(pread);
    ssize_t got = real(number, buffer, size, at);
    return is_wanted(number) ? spoiled(got, ONE(buffer, size), at) : got;
}

ssize_t pread64(int number, void *buffer, size_t size, off64_t at) {
    REAL(pread64);
    ssize_t got = real(number, buffer, size, at);
    return is_wanted(number) ? spoiled(got, ONE(buffer, size), at) : got;
}

ssize_t preadv(int number, const struct iovec *parts, int count, off_t at) {
    REAL(preadv);
    ssize_t got = real(number, parts, count, at);
    return is_wanted(number) ? spoiled(got, parts, count, at) : got;
}

ssize_t preadv64(int number, const struct iovec *parts, int count, off64_t at) {
    REAL(preadv64);
    ssize_t got = real(number, parts, count, at);
    return is_wanted(number) ? spoiled(got, parts, count, at) : got;
}

ssize_t preadv2(int number, const struct iovec *parts, int count, off_t at, int flags) {
    REAL(preadv2);
    ssize_t got = real(number, parts, count, at, flags);
    return is_wanted(number) ? spoiled(got, parts, count, at) : got;
}

ssize_t preadv64v2(int number, const struct iovec *parts, int count, off64_t at, int flags) {
    REAL(preadv64v2);
    ssize_t got = real(number, parts, count, at, flags);
    return is_wanted(number) ? spoiled(got, parts, count, at) : got;
}

ssize_t read(int number, void *buffer, size_t size) {
    REAL(read);
    off_t at = bad && bad->mode ? lseek(number, 0, SEEK_CUR) : 0;
    ssize_t got = real(number, buffer, size);
    if (!is_wanted(number))
        return got;
    ssize_t given = spoiled(got, ONE(buffer, size), at);
    if (given >= 0 && given < got)
        lseek(number, at + given, SEEK_SET); /* the next read goes on after what was given */
    return given;
}

void *mmap(void *address, size_t size, int protection, int flags, int number, off_t at) {
    REAL(mmap);
    if (number >= 0 && is_wanted(number)) {
        __sync_fetch_and_add(&bad->counts[MAPS], 1);
        errno = EIO;
        return MAP_FAILED;
    }
    return real(address, size, protection, flags, number, at);
}

void *mmap64(void *address, size_t size, int protection, int flags, int number, off64_t at) {
    return mmap(address, size, protection, flags, number, at);
}
