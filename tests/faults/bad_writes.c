/* Calls that change something below one directory: counted, written down, and one of them goes wrong; see bad.c.
 *
 * `bad_watch` says what is to happen, for this process and those that it forks. Each such call gets a number, from 0
 * on. The first one of a wanted kind whose number is at least `at` is killed before or after it is done, stops its
 * process, fails, or takes only half of what is to be written; where the fault goes on, all later ones of a wanted
 * kind fail. What was done is written to a file that is open: a head, two paths, and the data of a write.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* In the order of CALLS in watch.py. */
enum { CREATE, REOPEN, WRITE, SET_SIZE, SYNC, SET_OWNER, SET_MODE, SET_MTIME, MAKE_DIRECTORY, LINK, RENAME, EXCHANGE,
       UNLINK, REMOVE_DIRECTORY, CLOSE, SYNC_ALL };
enum { NOTHING, KILL_BEFORE, KILL_AFTER, STOP, FAIL, SHORT };
enum { GO_ON, FAILS, HALF, DIES };
enum { NEW = 1, EMPTIED = 2 };
enum { LONGEST = 4096 };

static struct watched {
    int how, error, goes_on, log;
    long kinds, at, calls, hits;
    size_t length;
    char root[LONGEST];
} *watched;

__attribute__((constructor)) static void make(void) {
    watched = mmap(NULL, sizeof *watched, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void bad_watch(const char *root, int how, int error, int goes_on, long kinds, long at, int log) {
    memset(watched, 0, sizeof *watched);
    watched->how = how, watched->error = error, watched->goes_on = goes_on, watched->kinds = kinds, watched->at = at;
    watched->log = log, watched->length = strlen(root);
    strcpy(watched->root, root);
}

long bad_calls(void) { return watched->calls; }

long bad_hits(void) { return watched->hits; }

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
    real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* The path of a descriptor, and whether it is below the directory. */
static int of_descriptor(int number, char *path) {
    char link[64];
    *path = 0;
    if (!watched || !watched->length)
        return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", number);
    ssize_t length = readlink(link, path, LONGEST - 1);
    errno = before;
    path[length < 0 ? 0 : length] = 0;
    return strncmp(path, watched->root, watched->length) == 0;
}

/* The same of a name in a directory that is open, or of the working directory. */
static int of_name(int directory, const char *name, char *path) {
    *path = 0;
    if (!watched || !watched->length || !name)
        return 0;
    if (name[0] == '/')
        snprintf(path, LONGEST, "%s", name);
    else if (directory == AT_FDCWD)
        return 0;
    else {
        of_descriptor(directory, path);
        size_t length = strlen(path);
        snprintf(path + length, LONGEST - length, "/%s", name);
    }
    return strncmp(path, watched->root, watched->length) == 0;
}

static void die(void) { syscall(SYS_exit_group, 137); }

/* What becomes of a call of a kind. */
static int fate(int kind) {
    long number = __sync_fetch_and_add(&watched->calls, 1);
    if (!watched->how || number < watched->at || !(watched->kinds & 1L << kind))
        return GO_ON;
    long before = __sync_fetch_and_add(&watched->hits, 1);
    if (before && !watched->goes_on)
        return GO_ON;
    if (watched->how == KILL_BEFORE)
        die();
    if (watched->how == KILL_AFTER)
        return DIES;
    if (watched->how == STOP) {
        raise(SIGSTOP);
        return GO_ON;
    }
    if (watched->how == SHORT && !before && kind == WRITE)
        return HALF;
    errno = watched->error;
    return watched->error ? FAILS : GO_ON;
}

/* Write down what was done. */
static void note(int kind, const char *path, const char *other, int64_t number, const void *data, size_t size) {
    if (watched->log < 0)
        return;
    struct {
        int64_t number;
        uint32_t kind, path, other, size;
    } head = {number, kind, strlen(path), strlen(other), size};
    struct iovec parts[] = {
        {&head, sizeof head}, {(void *)path, head.path}, {(void *)other, head.other}, {(void *)data, size}};
    int before = errno;
    if (syscall(SYS_writev, watched->log, parts, 4) < 0)
        die();
    errno = before;
}

/* Ask what becomes of a call; do it; write it down if it was done. */
#define CHANGE(is_below, kind, call, path, other, number) \
    if (!(is_below)) \
        return call; \
    int what = fate(kind); \
    if (what == FAILS) \
        return -1; \
    __typeof__(call) done = call; \
    if (done >= 0) \
        note(kind, path, other, number, NULL, 0); \
    if (what == DIES) \
        die(); \
    return done

/* Files that are opened to write */

static int opened(int directory, const char *name, int flags, mode_t mode) {
    char path[LONGEST];
    int is_unnamed = (flags & O_TMPFILE) == O_TMPFILE;
    if (!(flags & (O_CREAT | O_WRONLY | O_RDWR)) || !of_name(directory, name, path))
        return syscall(SYS_openat, directory, name, flags, mode);
    int is_new = is_unnamed || (flags & O_CREAT && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0);
    int kind = is_new ? CREATE : REOPEN;
    CHANGE(!(flags & O_PATH), kind, (int)syscall(SYS_openat, directory, name, flags, mode), is_unnamed ? "" : path, "",
           is_new ? NEW : flags & O_TRUNC ? EMPTIED : 0);
}

#define OPEN(name, parameters, directory) \
    int name parameters { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, int); \
            va_end(rest); \
        } \
        return opened(directory, path, flags, mode); \
    }

#undef open
#undef open64
OPEN(open, (const char *path, int flags, ...), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD)
OPEN(openat, (int at, const char *path, int flags, ...), at)
OPEN(openat64, (int at, const char *path, int flags, ...), at)

int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }

int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }

int close(int number) {
    REAL(close);
    char path[LONGEST];
    if (!of_descriptor(number, path) || (fcntl(number, F_GETFL) & O_ACCMODE) == O_RDONLY)
        return real(number);
    int what = fate(CLOSE), error = errno, done = real(number);
    note(CLOSE, path, "", 0, NULL, 0);
    if (what == DIES)
        die();
    if (what != FAILS)
        return done;
    errno = error;
    return -1;
}

/* Bytes */

/* What is written where, of a number of bytes; -1 where it fails. The last argument does it. */
#define WRITTEN(number, size, at, data, call) \
    char path[LONGEST]; \
    size_t most = size; \
    if (!of_descriptor(number, path)) \
        return call; \
    int what = fate(WRITE); \
    if (what == FAILS) \
        return -1; \
    if (what == HALF && most > 1) \
        most /= 2; \
    off_t from = at; \
    ssize_t done = call; \
    if (done >= 0) \
        note(WRITE, path, "", from, data, done); \
    if (what == DIES) \
        die(); \
    return done

/* Where `write` writes: at the end of a file that is opened so. */
static off_t position_of(int number) {
    struct stat status;
    if (fcntl(number, F_GETFL) & O_APPEND)
        return fstat(number, &status) == 0 ? status.st_size : 0;
    return lseek(number, 0, SEEK_CUR);
}

ssize_t write(int number, const void *data, size_t size) {
    REAL(write);
    WRITTEN(number, size, position_of(number), data, real(number, data, most));
}

ssize_t pwrite(int number, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    WRITTEN(number, size, at, data, real(number, data, most, at));
}

ssize_t pwrite64(int number, const void *data, size_t size, off64_t at) { return pwrite(number, data, size, at); }

/* Several pieces: a write of the first that holds something, which is a short one. */
static const struct iovec *first_of(const struct iovec *parts, int count) {
    while (count > 1 && !parts->iov_len)
        parts++, count--;
    return parts;
}

ssize_t writev(int number, const struct iovec *parts, int count) {
    REAL(writev);
    char path[LONGEST];
    if (!of_descriptor(number, path))
        return real(number, parts, count);
    return write(number, first_of(parts, count)->iov_base, first_of(parts, count)->iov_len);
}

ssize_t pwritev(int number, const struct iovec *parts, int count, off_t at) {
    REAL(pwritev);
    char path[LONGEST];
    if (!of_descriptor(number, path))
        return real(number, parts, count, at);
    return pwrite(number, first_of(parts, count)->iov_base, first_of(parts, count)->iov_len, at);
}

ssize_t pwritev64(int number, const struct iovec *parts, int count, off64_t at) {
    return pwritev(number, parts, count, at);
}

/* A copy inside the system: as the write of what was there. */
ssize_t copy_file_range(int source, off64_t *from_at, int number, off64_t *at, size_t size, unsigned int flags) {
    REAL(copy_file_range);
    char path[LONGEST], *data = NULL;
    size_t most = size;
    if (!of_descriptor(number, path))
        return real(source, from_at, number, at, size, flags);
    int what = fate(WRITE);
    if (what == FAILS)
        return -1;
    if (what == HALF && most > 1)
        most /= 2;
    off_t to = at ? *at : position_of(number);
    ssize_t done = real(source, from_at, number, at, most, flags);
    if (done > 0 && watched->log >= 0) {
        data = mmap(NULL, done, PROT_READ, MAP_PRIVATE, number, to - to % 4096);
        note(WRITE, path, "", to, data == MAP_FAILED ? NULL : data + to % 4096, data == MAP_FAILED ? 0 : done);
    }
    if (what == DIES)
        die();
    return done;
}

ssize_t sendfile64(int number, int source, off64_t *at, size_t size) {
    REAL(sendfile64);
    char path[LONGEST];
    if (!of_descriptor(number, path))
        return real(number, source, at, size);
    errno = EINVAL; /* whoever asks writes then */
    return -1;
}

ssize_t sendfile(int number, int source, off_t *at, size_t size) { return sendfile64(number, source, at, size); }

int ftruncate(int number, off_t size) {
    REAL(ftruncate);
    char path[LONGEST];
    CHANGE(of_descriptor(number, path), SET_SIZE, real(number, size), path, "", size);
}

int ftruncate64(int number, off64_t size) { return ftruncate(number, size); }

int truncate(const char *name, off_t size) {
    REAL(truncate);
    char path[LONGEST];
    CHANGE(of_name(AT_FDCWD, name, path), SET_SIZE, real(name, size), path, "", size);
}

int truncate64(const char *name, off64_t size) { return truncate(name, size); }

int fsync(int number) {
    REAL(fsync);
    char path[LONGEST];
    CHANGE(of_descriptor(number, path), SYNC, real(number), path, "", 0);
}

int fdatasync(int number) {
    REAL(fdatasync);
    char path[LONGEST];
    CHANGE(of_descriptor(number, path), SYNC, real(number), path, "", 0);
}

int syncfs(int number) {
    REAL(syncfs);
    char path[LONGEST];
    CHANGE(of_descriptor(number, path), SYNC_ALL, real(number), path, "", 0);
}

/* Attributes */

int fchown(int number, uid_t user, gid_t group) {
    REAL(fchown);
    char path[LONGEST];
    CHANGE(of_descriptor(number, path), SET_OWNER, real(number, user, group), path, "", 0);
}

int chown(const char *name, uid_t user, gid_t group) {
    REAL(chown);
    char path[LONGEST];
    CHANGE(of_name(AT_FDCWD, name, path), SET_OWNER, real(name, user, group), path, "", 0);
}

int lchown(const char *name, uid_t user, gid_t group) {
    REAL(lchown);
    char path[LONGEST];
    CHANGE(of_name(AT_FDCWD, name, path), SET_OWNER, real(name, user, group), path, "", 0);
}

int fchownat(int at, const char *name, uid_t user, gid_t group, int flags) {
    REAL(fchownat);
    char path[LONGEST];
    CHANGE(of_name(at, name, path), SET_OWNER, real(at, name, user, group, flags), path, "", 0);
}

int fchmod(int number, mode_t mode) {
    REAL(fchmod);
    char path[LONGEST];
    CHANGE(of_descriptor(number, path), SET_MODE, real(number, mode), path, "", 0);
}

int chmod(const char *name, mode_t mode) {
    REAL(chmod);
    char path[LONGEST];
    CHANGE(of_name(AT_FDCWD, name, path), SET_MODE, real(name, mode), path, "", 0);
}

int fchmodat(int at, const char *name, mode_t mode, int flags) {
    REAL(fchmodat);
    char path[LONGEST];
    CHANGE(of_name(at, name, path), SET_MODE, real(at, name, mode, flags), path, "", 0);
}

static int64_t modified(const struct timespec times[2]) {
    struct timespec now;
    if (times && times[1].tv_nsec != UTIME_NOW)
        return times[1].tv_sec * 1000000000L + times[1].tv_nsec;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

int futimens(int number, const struct timespec times[2]) {
    REAL(futimens);
    char path[LONGEST];
    CHANGE(of_descriptor(number, path), SET_MTIME, real(number, times), path, "", modified(times));
}

int utimensat(int at, const char *name, const struct timespec times[2], int flags) {
    REAL(utimensat);
    char path[LONGEST];
    CHANGE(of_name(at, name, path), SET_MTIME, real(at, name, times, flags), path, "", modified(times));
}

/* Names */

int mkdir(const char *name, mode_t mode) {
    REAL(mkdir);
    char path[LONGEST];
    CHANGE(of_name(AT_FDCWD, name, path), MAKE_DIRECTORY, real(name, mode), path, "", 0);
}

int mkdirat(int at, const char *name, mode_t mode) {
    REAL(mkdirat);
    char path[LONGEST];
    CHANGE(of_name(at, name, path), MAKE_DIRECTORY, real(at, name, mode), path, "", 0);
}

int linkat(int from, const char *source, int at, const char *name, int flags) {
    REAL(linkat);
    char path[LONGEST], other[LONGEST];
    of_name(from, source, other);
    CHANGE(of_name(at, name, path), LINK, real(from, source, at, name, flags), other, path, 0);
}

int link(const char *source, const char *name) {
    REAL(link);
    char path[LONGEST], other[LONGEST];
    of_name(AT_FDCWD, source, other);
    CHANGE(of_name(AT_FDCWD, name, path), LINK, real(source, name), other, path, 0);
}

int rename(const char *source, const char *name) {
    REAL(rename);
    char path[LONGEST], other[LONGEST];
    of_name(AT_FDCWD, source, other);
    CHANGE(of_name(AT_FDCWD, name, path), RENAME, real(source, name), other, path, 0);
}

int renameat(int from, const char *source, int at, const char *name) {
    REAL(renameat);
    char path[LONGEST], other[LONGEST];
    of_name(from, source, other);
    CHANGE(of_name(at, name, path), RENAME, real(from, source, at, name), other, path, 0);
}

int renameat2(int from, const char *source, int at, const char *name, unsigned int flags) {
    REAL(renameat2);
    char path[LONGEST], other[LONGEST];
    int kind = flags & RENAME_EXCHANGE ? EXCHANGE : RENAME;
    of_name(from, source, other);
    CHANGE(of_name(at, name, path), kind, real(from, source, at, name, flags), other, path, 0);
}

int unlink(const char *name) {
    REAL(unlink);
    char path[LONGEST];
    CHANGE(of_name(AT_FDCWD, name, path), UNLINK, real(name), path, "", 0);
}

int unlinkat(int at, const char *name, int flags) {
    REAL(unlinkat);
    char path[LONGEST];
    int kind = flags & AT_REMOVEDIR ? REMOVE_DIRECTORY : UNLINK;
    CHANGE(of_name(at, name, path), kind, real(at, name, flags), path, "", 0);
}

int rmdir(const char *name) {
    REAL(rmdir);
    char path[LONGEST];
    CHANGE(of_name(AT_FDCWD, name, path), REMOVE_DIRECTORY, real(name), path, "", 0);
}
