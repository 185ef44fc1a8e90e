/* The emulator does not have the call by which leaktrace reads memory that may not be there. Preloaded for the tests of
   what is found that way. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

static ssize_t copy(const int *ends, char *into, size_t room, const struct iovec *from, unsigned long count) {
    size_t done = 0;
    for (unsigned long i = 0; i < count; i++) {
        char *at = from[i].iov_base;
        size_t left = from[i].iov_len;
        while (left && room > done) {
            /* What is written from memory that is not there is refused. */
            size_t piece = 4096 - ((size_t)at & 4095);
            if (piece > left) piece = left;
            if (piece > room - done) piece = room - done;
            ssize_t written = write(ends[1], at, piece);
            if (written > 0) read(ends[0], into + done, written);
            if (written != (ssize_t)piece) {
                if (done) return done;
                errno = EFAULT;
                return -1;
            }
            at += piece, left -= piece, done += piece;
        }
    }
    return done;
}

ssize_t process_vm_readv(pid_t process, const struct iovec *to, unsigned long one, const struct iovec *from,
                         unsigned long count, unsigned long flags) {
    (void)process, (void)one, (void)flags;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return -1;
    ssize_t copied = copy(ends, to->iov_base, to->iov_len, from, count);
    int error = errno;
    close(ends[0]), close(ends[1]);
    errno = error;
    return copied;
}
