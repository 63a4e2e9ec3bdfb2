/* Preloaded into a process: notes what it does to the files of one folder, so that a test can tell what a power cut leaves of them.

   DISK_FOLDER is the folder, DISK_JOURNAL the file of the notes. A note is a `struct note`, the file's path, and the bytes that were
   written. Shared memory (`-shm`) is left out: no power cut leaves any of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITTEN, TRUNCATED, SYNCED, GONE };

struct note {
    double at;         /* seconds of CLOCK_MONOTONIC */
    uint32_t kind;
    uint32_t path;     /* bytes of the path */
    int64_t offset;    /* of a write; the new size; or how many notes there were when a sync began */
    int64_t length;    /* bytes that were written */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t notes;
static int journal = -1;

static int is_ours(const char *path) {
    const char *folder = getenv("DISK_FOLDER");
    size_t length = strlen(path);
    return folder && strncmp(path, folder, strlen(folder)) == 0 && !(length > 4 && strcmp(path + length - 4, "-shm") == 0);
}

static int path_of(int file, char path[4096]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, 4095);
    path[length < 0 ? 0 : length] = 0;
    return is_ours(path);
}

static void note(uint32_t kind, const char *path, int64_t offset, const void *bytes, int64_t length) {
    struct timespec now;
    pthread_mutex_lock(&lock);
    if (journal < 0)
        journal = syscall(SYS_openat, AT_FDCWD, getenv("DISK_JOURNAL"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct note head = {now.tv_sec + now.tv_nsec / 1e9, kind, strlen(path), offset, length};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)path, head.path}, {(void *)bytes, length}};
    if (syscall(SYS_writev, journal, parts, 3) != (ssize_t)(sizeof head + head.path + length))
        abort();
    notes++;
    pthread_mutex_unlock(&lock);
}

static int64_t noted(void) {
    pthread_mutex_lock(&lock);
    int64_t count = notes;
    pthread_mutex_unlock(&lock);
    return count;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static ssize_t after_write(int file, const void *bytes, ssize_t length, int64_t offset) {
    char path[4096];
    if (length > 0 && path_of(file, path))
        note(WRITTEN, path, offset, bytes, length);
    return length;
}

static int after_truncation(int file, int result, int64_t size) {
    char path[4096];
    if (result == 0 && path_of(file, path))
        note(TRUNCATED, path, size, "", 0);
    return result;
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
    return after_write(file, bytes, REAL(pwrite)(file, bytes, count, offset), offset);
}
ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) {
    return after_write(file, bytes, REAL(pwrite64)(file, bytes, count, offset), offset);
}
ssize_t write(int file, const void *bytes, size_t count) {
    ssize_t length = REAL(write)(file, bytes, count);
    return after_write(file, bytes, length, length > 0 ? lseek(file, 0, SEEK_CUR) - length : 0);
}
int ftruncate(int file, off_t size) { return after_truncation(file, REAL(ftruncate)(file, size), size); }
int ftruncate64(int file, off64_t size) { return after_truncation(file, REAL(ftruncate64)(file, size), size); }

static int synced(int file, int (*real)(int)) {
    char path[4096];
    int64_t before = noted();
    int result = real(file);
    if (result == 0 && path_of(file, path))
        note(SYNCED, path, before, "", 0);
    return result;
}
int fsync(int file) { return synced(file, REAL(fsync)); }
int fdatasync(int file) { return synced(file, REAL(fdatasync)); }

int unlink(const char *path) {
    int result = REAL(unlink)(path);
    if (result == 0 && is_ours(path))
        note(GONE, path, 0, "", 0);
    return result;
}
