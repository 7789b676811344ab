/* Records every effect that a process has on the files below one directory, so that the tree can be
 * rebuilt as a loss of power at any moment would have left it (tests/faults/powercut.py reads the trace).
 *
 * Preloaded (LD_PRELOAD). Environment:
 *   DRAGOMAN_TEST_POWERCUT_ROOT         the directory; exists and is empty when the first process starts
 *   DRAGOMAN_TEST_POWERCUT_TRACE        the trace file, appended to; "<trace>.control" holds lock and sequence,
 *                                  so several processes may write one trace
 *   DRAGOMAN_TEST_POWERCUT_IGNORE_SYNC  "1" (all), "files", "directories", or how a file's name ends
 *                                       (".wal"): such syncs are neither done nor counted: the negative
 *                                       proof that they are needed
 *   DRAGOMAN_TEST_POWERCUT_SYNC_DELAY_MS  syncs of a file take this much longer in a random half of all
 *                                       tenths of a second: whatever waits for the sync of one file but
 *                                       not of another is then seen to be too early
 *
 * One lock orders all effects, so the sequence in the trace is the order of the effects. It is not held
 * during a sync: a sync covers what was recorded before its SYNC_BEGIN, and counts from its SYNC_END.
 * What cannot be followed (shared writable mappings, stdio, symbolic links) is written down as such, and
 * the reader decides. System calls are made directly: the library may run before libc has settled.
 *
 * One event: struct event (64 bytes, native byte order), then len1 bytes (name or data), len2 bytes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind {
    START = 1, CREATE, WRITE, TRUNCATE, RENAME, LINK, UNLINK, MKDIR, SYNC_BEGIN, SYNC_END, MAPPED, UNSUPPORTED
};
enum { SYNC_IGNORED = 1, SYNC_FAILED = 2, SYNC_OF_WRITE = 4 };
enum { MAX_FDS = 65536, TRACE_FD_FROM = 700 };
#define MAGIC 0x54554350u /* "PCUT" */

struct event {
    uint32_t magic;
    uint16_t kind, flags;
    uint64_t seq, ns;
    uint64_t ino, dir, dir2;
    int64_t offset; /* of a write; the size of a truncate; of a SYNC_END the seq of its begin, or of its write */
    uint32_t len1, len2;
};

struct control {
    uint32_t ready;
    uint64_t seq;
    pthread_mutex_t lock;
};

struct tracked {
    uint64_t dev, ino; /* ino 0 = not below the root */
    int synchronous;   /* O_SYNC or O_DSYNC */
};

static char root[PATH_MAX];
static size_t root_len;
static int trace_fd = -1;
static int ignore_files, ignore_directories, sync_delay_ms;
static const char *ignore_ending = ""; /* "" = no file by its name */
static struct control *control;
static struct tracked fds[MAX_FDS];
static pid_t owner_pid;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- trace ---- */

static void die(const char *what) {
    dprintf(2, "powercut: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static void lock(void) {
    if (pthread_mutex_lock(&control->lock) == EOWNERDEAD) pthread_mutex_consistent(&control->lock);
}

static void unlock(void) { pthread_mutex_unlock(&control->lock); }

/* Called with the lock held. Returns the event's sequence number. */
static uint64_t emit(struct event event, const void *part1, size_t len1, const void *part2, size_t len2) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event.magic = MAGIC;
    event.seq = ++control->seq;
    event.ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    event.len1 = (uint32_t)len1;
    event.len2 = (uint32_t)len2;
    struct iovec parts[3] = {{&event, sizeof event}, {(void *)part1, len1}, {(void *)part2, len2}};
    if (syscall(SYS_writev, trace_fd, parts, 3) != (long)(sizeof event + len1 + len2)) die("trace");
    return event.seq;
}

static void emit_name(enum kind kind, uint64_t ino, uint64_t dir, const char *name) {
    emit((struct event){.kind = kind, .ino = ino, .dir = dir}, name, strlen(name), NULL, 0);
}

static void unsupported(const char *what, const char *path) {
    lock();
    emit((struct event){.kind = UNSUPPORTED}, what, strlen(what), path, strlen(path));
    unlock();
}

static void open_control(const char *trace) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.control", trace);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int first = fd >= 0;
    if (!first) fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 || (first && syscall(SYS_ftruncate, fd, sizeof(struct control)))) die(path);
    struct stat st = {0};
    while (syscall(SYS_fstat, fd, &st) == 0 && st.st_size < (off_t)sizeof(struct control)) usleep(1000);
    control = (void *)syscall(SYS_mmap, NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED) die("map control");
    syscall(SYS_close, fd);
    if (first) {
        pthread_mutexattr_t shared;
        pthread_mutexattr_init(&shared);
        pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&control->lock, &shared);
        __atomic_store_n(&control->ready, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&control->ready, __ATOMIC_ACQUIRE)) usleep(1000);
}

static void after_fork(void) { owner_pid = (pid_t)syscall(SYS_getpid); }

static void start(void) {
    const char *wanted = getenv("DRAGOMAN_TEST_POWERCUT_ROOT"), *trace = getenv("DRAGOMAN_TEST_POWERCUT_TRACE");
    const char *ignore = getenv("DRAGOMAN_TEST_POWERCUT_IGNORE_SYNC");
    if (!wanted || !trace || !*wanted || !*trace) return;
    if (!realpath(wanted, root)) die(wanted);
    ignore_files = ignore && (!strcmp(ignore, "1") || !strcmp(ignore, "files"));
    ignore_directories = ignore && (!strcmp(ignore, "1") || !strcmp(ignore, "directories"));
    const char *delay = getenv("DRAGOMAN_TEST_POWERCUT_SYNC_DELAY_MS");
    sync_delay_ms = delay ? atoi(delay) : 0;
    if (ignore && !ignore_files && !ignore_directories) ignore_ending = strdup(ignore);
    open_control(trace);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    trace_fd = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, TRACE_FD_FROM); /* out of the program's way */
    if (trace_fd < 0) die(trace);
    syscall(SYS_close, fd);
    after_fork();
    pthread_atfork(NULL, NULL, after_fork);
    struct stat st;
    if (syscall(SYS_newfstatat, AT_FDCWD, root, &st, 0)) die(root);
    root_len = strlen(root);
    lock();
    emit_name(START, st.st_ino, 0, root);
    unlock();
}

static int recording(void) {
    pthread_once(&once, start);
    return root_len > 0;
}

__attribute__((constructor)) static void at_load(void) { recording(); }

/* ---- what lies below the root ---- */

static int below_root(const char *path) {
    return !strncmp(path, root, root_len) && (path[root_len] == '/' || path[root_len] == 0);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* The directory that holds `path`, if it is the root or below it; *name points at the last part. */
static int parent_of(int at, const char *path, uint64_t *dir, char name[NAME_MAX + 1]) {
    char head[PATH_MAX], real[PATH_MAX];
    if (!path || strlen(path) >= PATH_MAX || !*path) return 0;
    strcpy(head, path);
    for (size_t n = strlen(head); n > 1 && head[n - 1] == '/'; n--) head[n - 1] = 0;
    char *slash = strrchr(head, '/');
    const char *last = slash ? slash + 1 : head;
    if (strlen(last) > NAME_MAX) return 0;
    strcpy(name, last);
    const char *parent = !slash ? "." : slash == head ? "/" : head;
    if (slash) *slash = 0;
    if (parent[0] == 0) parent = "/";
    int fd = (int)syscall(SYS_openat, at, parent, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    struct stat st;
    int ok = path_of(fd, real) && below_root(real) && syscall(SYS_fstat, fd, &st) == 0;
    syscall(SYS_close, fd);
    if (ok) *dir = st.st_ino;
    return ok;
}

static uint64_t ino_at(int at, const char *path) {
    struct stat st;
    return syscall(SYS_newfstatat, at, path, &st, AT_SYMLINK_NOFOLLOW) ? 0 : st.st_ino;
}

/* The inode behind a descriptor, 0 if it is not below the root. The table alone would not do:
 * descriptors are closed and reused behind our back (inside libc, say). */
static uint64_t ino_of(int fd) {
    if (!recording() || fd < 0 || fd >= MAX_FDS || !fds[fd].ino) return 0;
    struct stat st;
    if (syscall(SYS_fstat, fd, &st) || st.st_ino != fds[fd].ino || st.st_dev != fds[fd].dev) return 0;
    return st.st_ino;
}

static void remember(int fd, int flags) {
    char real[PATH_MAX];
    struct stat st;
    if (fd < 0 || fd >= MAX_FDS) return;
    int tracked = path_of(fd, real) && below_root(real) && syscall(SYS_fstat, fd, &st) == 0 &&
                  (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
    fds[fd] = tracked ? (struct tracked){st.st_dev, st.st_ino, (flags & (O_SYNC | O_DSYNC)) != 0}
                      : (struct tracked){0};
}

static int same(int from, int to) {
    if (recording() && to >= 0 && to < MAX_FDS && from >= 0 && from < MAX_FDS) fds[to] = fds[from];
    return to;
}

/* ---- opening and closing ---- */

static int open_at(int at, const char *path, int flags, mode_t mode) {
    if (!recording()) return (int)syscall(SYS_openat, at, path, flags, mode);
    uint64_t dir;
    char name[NAME_MAX + 1];
    if (!(flags & (O_CREAT | O_TRUNC)) || !parent_of(at, path, &dir, name)) {
        int fd = (int)syscall(SYS_openat, at, path, flags, mode), saved = errno;
        if (fd >= 0) remember(fd, flags);
        errno = saved;
        return fd;
    }
    if ((flags & O_TMPFILE) == O_TMPFILE) unsupported("O_TMPFILE", path);
    lock();
    uint64_t before = ino_at(at, path);
    int fd = (int)syscall(SYS_openat, at, path, flags, mode), saved = errno;
    if (fd >= 0) {
        remember(fd, flags);
        struct stat st;
        syscall(SYS_fstat, fd, &st);
        if (!before) emit_name(CREATE, st.st_ino, dir, name);
        else if ((flags & O_TRUNC) && S_ISREG(st.st_mode))
            emit((struct event){.kind = TRUNCATE, .ino = st.st_ino, .offset = 0}, NULL, 0, NULL, 0);
    }
    unlock();
    errno = saved;
    return fd;
}

#define MODE_OF(flags, last) \
    mode_t mode = 0; \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list args; \
        va_start(args, last); \
        mode = va_arg(args, mode_t); \
        va_end(args); \
    }

int open(const char *path, int flags, ...) { MODE_OF(flags, flags) return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags, flags) return open_at(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE_OF(flags, flags) return open_at(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE_OF(flags, flags) return open_at(at, path, flags, mode); }
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __openat_2(int at, const char *path, int flags) { return open_at(at, path, flags, 0); }
int __openat64_2(int at, const char *path, int flags) { return open_at(at, path, flags, 0); }
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

static FILE *stdio_open(const char *symbol, const char *path, const char *mode) {
    FILE *(*real)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, symbol);
    uint64_t dir;
    char name[NAME_MAX + 1];
    if (recording() && strpbrk(mode, "wa+") && parent_of(AT_FDCWD, path, &dir, name)) unsupported("fopen", path);
    return real(path, mode);
}
FILE *fopen(const char *path, const char *mode) { return stdio_open("fopen", path, mode); }
FILE *fopen64(const char *path, const char *mode) { return stdio_open("fopen64", path, mode); }

int close(int fd) {
    /* A vfork child shares our memory: what it closes before exec is not closed here. */
    if (root_len && fd >= 0 && fd < MAX_FDS && fds[fd].ino && syscall(SYS_getpid) == owner_pid)
        fds[fd] = (struct tracked){0};
    return (int)syscall(SYS_close, fd);
}

int dup(int fd) { return same(fd, (int)syscall(SYS_dup, fd)); }
int dup3(int from, int to, int flags) { return same(from, (int)syscall(SYS_dup3, from, to, flags)); }
int dup2(int from, int to) {
    if (from == to) return syscall(SYS_fcntl, from, F_GETFD) < 0 ? -1 : to;
    return dup3(from, to, 0);
}
static int control_fd(int fd, int command, void *argument) {
    int result = (int)syscall(SYS_fcntl, fd, command, argument);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) same(fd, result);
    return result;
}
#define POINTER_OF(last) \
    va_list args; \
    va_start(args, last); \
    void *argument = va_arg(args, void *); \
    va_end(args);
int fcntl(int fd, int command, ...) { POINTER_OF(command) return control_fd(fd, command, argument); }
int fcntl64(int fd, int command, ...) { POINTER_OF(command) return control_fd(fd, command, argument); }

/* ---- content ---- */

static int sync_fd(int fd, uint64_t ino, long call);
static void synced_write(int fd, uint64_t ino, uint64_t write);

static uint64_t wrote(int fd, uint64_t ino, int64_t offset, const struct iovec *parts, int count, size_t n) {
    char *data = malloc(n ? n : 1);
    size_t have = 0;
    if (!data) die("memory");
    for (int i = 0; i < count && have < n; i++) {
        size_t take = parts[i].iov_len < n - have ? parts[i].iov_len : n - have;
        memcpy(data + have, parts[i].iov_base, take);
        have += take;
    }
    struct stat st;
    if (syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND) /* Linux appends even what pwrite sends elsewhere */
        offset = syscall(SYS_fstat, fd, &st) ? 0 : st.st_size - (int64_t)n;
    else if (offset < 0) offset = syscall(SYS_lseek, fd, 0, SEEK_CUR) - (int64_t)n;
    uint64_t seq = emit((struct event){.kind = WRITE, .ino = ino, .offset = offset}, data, n, NULL, 0);
    free(data);
    return seq;
}

/* offset -1 = at the descriptor's own position. */
static ssize_t write_parts(int fd, const struct iovec *parts, int count, int64_t offset, int flags) {
    uint64_t ino = ino_of(fd);
    if (ino) lock();
    ssize_t n = offset < 0 && !flags ? syscall(SYS_writev, fd, parts, count)
                                     : syscall(SYS_pwritev2, fd, parts, count, offset, offset >> 32, flags);
    int saved = errno;
    if (ino) {
        uint64_t seq = n > 0 ? wrote(fd, ino, offset, parts, count, (size_t)n) : 0;
        unlock();
        if (n > 0 && fds[fd].synchronous) sync_fd(fd, ino, SYS_fdatasync);
        else if (n > 0 && (flags & (RWF_SYNC | RWF_DSYNC))) synced_write(fd, ino, seq);
    }
    errno = saved;
    return n;
}

ssize_t write(int fd, const void *data, size_t size) {
    if (!ino_of(fd)) return syscall(SYS_write, fd, data, size);
    return write_parts(fd, &(struct iovec){(void *)data, size}, 1, -1, 0);
}
ssize_t writev(int fd, const struct iovec *parts, int count) { return write_parts(fd, parts, count, -1, 0); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    if (!ino_of(fd)) return syscall(SYS_pwrite64, fd, data, size, offset);
    return write_parts(fd, &(struct iovec){(void *)data, size}, 1, offset, 0);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return pwrite(fd, data, size, offset); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return write_parts(fd, parts, count, offset, 0);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return write_parts(fd, parts, count, offset, 0);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return write_parts(fd, parts, count, offset, flags);
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    return write_parts(fd, parts, count, offset, flags);
}

/* Copies inside the kernel: what arrived is read back. */
static void copied(int fd, uint64_t ino, int64_t offset, ssize_t n) {
    char path[64], *data = malloc((size_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int back = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (!data || back < 0 || syscall(SYS_pread64, back, data, n, offset) != n) die("read back");
    syscall(SYS_close, back);
    emit((struct event){.kind = WRITE, .ino = ino, .offset = offset}, data, (size_t)n, NULL, 0);
    free(data);
}
ssize_t sendfile(int out, int in, off_t *offset, size_t count) {
    uint64_t ino = ino_of(out);
    if (!ino) return syscall(SYS_sendfile, out, in, offset, count);
    lock();
    ssize_t n = syscall(SYS_sendfile, out, in, offset, count);
    int saved = errno;
    if (n > 0) copied(out, ino, syscall(SYS_lseek, out, 0, SEEK_CUR) - n, n);
    unlock();
    errno = saved;
    return n;
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t count) { return sendfile(out, in, offset, count); }
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    uint64_t ino = ino_of(out);
    if (!ino) return syscall(SYS_copy_file_range, in, from, out, to, size, flags);
    lock();
    ssize_t n = syscall(SYS_copy_file_range, in, from, out, to, size, flags);
    int saved = errno;
    if (n > 0) copied(out, ino, (to ? *to : syscall(SYS_lseek, out, 0, SEEK_CUR)) - n, n);
    unlock();
    errno = saved;
    return n;
}

static int resize(int fd, uint64_t ino, int64_t size) {
    if (!ino) return (int)syscall(SYS_ftruncate, fd, size);
    lock();
    int result = (int)syscall(SYS_ftruncate, fd, size), saved = errno;
    if (!result) emit((struct event){.kind = TRUNCATE, .ino = ino, .offset = size}, NULL, 0, NULL, 0);
    unlock();
    errno = saved;
    return result;
}
int ftruncate(int fd, off_t size) { return resize(fd, ino_of(fd), size); }
int ftruncate64(int fd, off64_t size) { return resize(fd, ino_of(fd), size); }
int truncate(const char *path, off_t size) {
    int fd = open_at(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    int result = ftruncate(fd, size), saved = errno;
    close(fd);
    errno = saved;
    return result;
}
int truncate64(const char *path, off64_t size) { return truncate(path, size); }

int fallocate(int fd, int mode, off_t offset, off_t size) {
    uint64_t ino = ino_of(fd);
    if (!ino) return (int)syscall(SYS_fallocate, fd, mode, offset, size);
    if (mode & ~1 /* FALLOC_FL_KEEP_SIZE */) unsupported("fallocate mode", "");
    lock();
    struct stat st;
    int result = (int)syscall(SYS_fallocate, fd, mode, offset, size), saved = errno;
    if (!result && !mode && !syscall(SYS_fstat, fd, &st)) /* zeros up to the size it has now */
        emit((struct event){.kind = TRUNCATE, .ino = ino, .offset = st.st_size}, NULL, 0, NULL, 0);
    unlock();
    errno = saved;
    return result;
}
int fallocate64(int fd, int mode, off64_t offset, off64_t size) { return fallocate(fd, mode, offset, size); }
int posix_fallocate(int fd, off_t offset, off_t size) { return fallocate(fd, 0, offset, size) ? errno : 0; }
int posix_fallocate64(int fd, off64_t offset, off64_t size) { return posix_fallocate(fd, offset, size); }

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    uint64_t ino = (flags & MAP_SHARED) && (protection & PROT_WRITE) ? ino_of(fd) : 0;
    if (ino) {
        char path[PATH_MAX];
        lock();
        if (path_of(fd, path)) emit_name(MAPPED, ino, 0, path);
        unlock();
    }
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}
void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset) {
    return mmap(address, size, protection, flags, fd, offset);
}

/* ---- names ---- */

static int rename_at(int at1, const char *from, int at2, const char *to, unsigned flags) {
    uint64_t dir1, dir2;
    char name1[NAME_MAX + 1], name2[NAME_MAX + 1];
    int known1 = recording() && parent_of(at1, from, &dir1, name1);
    int known2 = recording() && parent_of(at2, to, &dir2, name2);
    if (known1 != known2) unsupported("rename across the root", from);
    if (known1 && (flags & ~1u /* RENAME_NOREPLACE */)) unsupported("renameat2 flags", from);
    if (!known1 || !known2) return (int)syscall(SYS_renameat2, at1, from, at2, to, flags);
    lock();
    uint64_t ino = ino_at(at1, from), old = ino_at(at2, to);
    int result = (int)syscall(SYS_renameat2, at1, from, at2, to, flags), saved = errno;
    if (!result && ino != old) /* two names of one file: the call does nothing */
        emit((struct event){.kind = RENAME, .ino = ino, .dir = dir1, .dir2 = dir2}, name1, strlen(name1), name2,
             strlen(name2));
    unlock();
    errno = saved;
    return result;
}
int rename(const char *from, const char *to) { return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int at1, const char *from, int at2, const char *to) { return rename_at(at1, from, at2, to, 0); }
int renameat2(int at1, const char *from, int at2, const char *to, unsigned flags) {
    return rename_at(at1, from, at2, to, flags);
}

int linkat(int at1, const char *from, int at2, const char *to, int flags) {
    uint64_t dir;
    char name[NAME_MAX + 1];
    if (!recording() || !parent_of(at2, to, &dir, name)) return (int)syscall(SYS_linkat, at1, from, at2, to, flags);
    lock();
    int result = (int)syscall(SYS_linkat, at1, from, at2, to, flags), saved = errno;
    if (!result) emit_name(LINK, ino_at(at2, to), dir, name);
    unlock();
    errno = saved;
    return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int symlinkat(const char *target, int at, const char *path) {
    uint64_t dir;
    char name[NAME_MAX + 1];
    if (recording() && parent_of(at, path, &dir, name)) unsupported("symlink", path);
    return (int)syscall(SYS_symlinkat, target, at, path);
}
int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

int unlinkat(int at, const char *path, int flags) {
    uint64_t dir;
    char name[NAME_MAX + 1];
    if (!recording() || !parent_of(at, path, &dir, name)) return (int)syscall(SYS_unlinkat, at, path, flags);
    lock();
    uint64_t ino = ino_at(at, path);
    int result = (int)syscall(SYS_unlinkat, at, path, flags), saved = errno;
    if (!result) emit_name(UNLINK, ino, dir, name);
    unlock();
    errno = saved;
    return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    int result = unlinkat(AT_FDCWD, path, 0);
    return result && errno == EISDIR ? rmdir(path) : result;
}

int mkdirat(int at, const char *path, mode_t mode) {
    uint64_t dir;
    char name[NAME_MAX + 1];
    if (!recording() || !parent_of(at, path, &dir, name)) return (int)syscall(SYS_mkdirat, at, path, mode);
    lock();
    int result = (int)syscall(SYS_mkdirat, at, path, mode), saved = errno;
    if (!result) emit_name(MKDIR, ino_at(at, path), dir, name);
    unlock();
    errno = saved;
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* ---- syncs ---- */

static int is_slow(uint64_t ino) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t tenth = (uint64_t)now.tv_sec * 10 + (uint64_t)now.tv_nsec / 100000000u;
    uint64_t mixed = ino * 0x9E3779B97F4A7C15u + tenth * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 31)) * 0x94D049BB133111EBu;
    return (int)(mixed >> 63);
}

static int has_ignored_ending(int fd) {
    char path[PATH_MAX];
    size_t ending = strlen(ignore_ending);
    if (!ending || !path_of(fd, path)) return 0;
    size_t length = strlen(path);
    return length >= ending && !strcmp(path + length - ending, ignore_ending);
}

/* ino 0 = everything (sync, syncfs). */
static int sync_fd(int fd, uint64_t ino, long call) {
    struct stat st;
    int directory = ino && !syscall(SYS_fstat, fd, &st) && S_ISDIR(st.st_mode);
    int ignored = directory ? ignore_directories : ignore_files || (ino && has_ignored_ending(fd));
    lock();
    uint64_t begin = emit((struct event){.kind = SYNC_BEGIN, .ino = ino}, NULL, 0, NULL, 0);
    unlock();
    if (sync_delay_ms > 0 && is_slow(ino)) usleep((useconds_t)sync_delay_ms * 1000);
    int result = ignored ? 0 : (int)syscall(call, fd), saved = errno;
    lock();
    emit((struct event){.kind = SYNC_END,
                        .flags = (uint16_t)((ignored ? SYNC_IGNORED : 0) | (result ? SYNC_FAILED : 0)),
                        .ino = ino,
                        .offset = (int64_t)begin},
         NULL, 0, NULL, 0);
    unlock();
    errno = saved;
    return result;
}
/* RWF_DSYNC: of the file nothing but these bytes is durable, and the size that it needs for them. */
static void synced_write(int fd, uint64_t ino, uint64_t write) {
    int ignored = ignore_files || has_ignored_ending(fd);
    if (sync_delay_ms > 0 && is_slow(ino)) usleep((useconds_t)sync_delay_ms * 1000);
    lock();
    emit((struct event){.kind = SYNC_END,
                        .flags = (uint16_t)((ignored ? SYNC_IGNORED : 0) | SYNC_OF_WRITE),
                        .ino = ino,
                        .offset = (int64_t)write},
         NULL, 0, NULL, 0);
    unlock();
}
int fsync(int fd) {
    uint64_t ino = ino_of(fd);
    return ino ? sync_fd(fd, ino, SYS_fsync) : (int)syscall(SYS_fsync, fd);
}
int fdatasync(int fd) {
    uint64_t ino = ino_of(fd);
    return ino ? sync_fd(fd, ino, SYS_fdatasync) : (int)syscall(SYS_fdatasync, fd);
}
int syncfs(int fd) { return recording() ? sync_fd(fd, 0, SYS_syncfs) : (int)syscall(SYS_syncfs, fd); }
void sync(void) {
    if (recording()) sync_fd(-1, 0, SYS_sync);
    else syscall(SYS_sync);
}
/* sync_file_range promises nothing after a loss of power: not even an event. */
