/* Works under a resource limit, and starts itself again under it so that the shim's start meets the limit too.
 *
 *   proc_rlimit as|fsize|nofile|memlock|nproc VALUE [mlockall]
 *
 * Prints `limited <what> <value>` twice: before and after the exec. A signal (SIGXFSZ, SIGSEGV) is a failure. */
#include "proc.h"
#include <sys/mman.h>
#include <sys/resource.h>

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int which;
    } known[] = {{"as", RLIMIT_AS},
                 {"fsize", RLIMIT_FSIZE},
                 {"memlock", RLIMIT_MEMLOCK},
                 {"nofile", RLIMIT_NOFILE},
                 {"nproc", RLIMIT_NPROC}};
    if (argc < 3) return 2;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(argv[1], known[i].name) != 0) continue;
        struct rlimit limit;
        limit.rlim_cur = limit.rlim_max = strtoull(argv[2], NULL, 0);
        if (setrlimit(known[i].which, &limit) != 0) fail("setrlimit");
    }
    if (argc > 3 && strcmp(argv[3], "mlockall") == 0 && mlockall(MCL_CURRENT | MCL_FUTURE) != 0) perror("mlockall");
    heap_pairs(1000, 1000);
    printf("limited %s %s\n", argv[1], argv[2]);
    fflush(stdout);
    if (!getenv("PROC_AGAIN")) {
        setenv("PROC_AGAIN", "1", 1);
        execv("/proc/self/exe", argv);
        fail("execv");
    }
    return 0;
}
