/* Nearly fills a shared memory folder, as a DataLoader with many workers does, and works in it.
 *
 *   proc_shm mount MIB    a tmpfs of that size over /dev/shm in a mount namespace of its own (needs the right to)
 *   proc_shm FILE MIB     a file of that size less 1 MiB, mapped and touched
 *
 * Every page is touched through the mapping: a process that took the space in between makes that a SIGBUS (135). The
 * program starts itself again inside, so that a traced process starts while the folder is nearly full. */
#include "proc.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>

static void fill(const char *path, size_t bytes) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) fail(path);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) fail("mmap");
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
    heap_pairs(1000, 1000);
    if (!getenv("PROC_AGAIN")) {
        pid_t child = fork();
        int status = 0;
        if (child == 0) {
            setenv("PROC_AGAIN", "1", 1);
            execl("/proc/self/exe", "proc_shm", "nothing", "0", NULL);
            _exit(98);
        }
        waitpid(child, &status, 0);
        if (status != 0) exit(97);
    }
    for (size_t at = 0; at < bytes; at += 4096) memory[at]++;
    munmap(memory, bytes);
    close(fd);
    unlink(path);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t bytes = (size_t)atol(argv[2]) << 20;
    if (getenv("PROC_AGAIN")) {
        heap_pairs(1000, 1000);
        return 0;
    }
    if (strcmp(argv[1], "mount") == 0) {
        char options[32];
        snprintf(options, sizeof options, "size=%zu", bytes);
        if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) fail("unshare");
        if (mount("gputrace-test", "/dev/shm", "tmpfs", 0, options) != 0) fail("mount");
        fill("/dev/shm/proc_shm", bytes - (1 << 20));
    } else {
        fill(argv[1], bytes - (1 << 20));
    }
    say("filled\n");
    return 0;
}
