/* Launches inside and outside of ranges of NVTX: captured steps | captured ranges
 *
 * steps    six turns of a range ProfilerStep#N, from 0, with a range `step` in it: 10 N launches, N from 1, and 3 behind it
 * ranges   ranges whose name begins with `valid`: pushed, numbered, and of a registered name in a domain; others beside and inside them
 *
 * All launches of a call of `launch` have its number of blocks. Prints `ok`. */
#include <stdio.h>
#include <string.h>

#include "cuda.h"
#include "nvtx.h"

static CUfunction function;
static CUstream stream;

static void ok(int code) {
    if (code) exit(3);
}

static void launch(int count) {
    for (int n = 0; n < count; n++) ok(cuLaunchKernel(function, count, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    ok(cuStreamSynchronize(stream));
}

static void steps(void) {
    for (int n = 1; n <= 6; n++) {
        char name[32];
        snprintf(name, sizeof name, "ProfilerStep#%d", n - 1);
        nvtx_push(name);
        nvtx_push("step");
        launch(10 * n);
        nvtx_pop();
        nvtx_mark("step");
        launch(10 * n);
        nvtx_pop();
        launch(3);
    }
}

static void ranges(void) {
    nvtx_domain domain = nvtx_create("a domain");
    struct nvtx_attributes registered = NVTX_ATTRIBUTES(.message_type = NVTX_REGISTERED);
    registered.message.registered = nvtx_register(domain, "validity");
    launch(1);
    nvtx_push("training");
    launch(2);
    nvtx_push("validation");
    launch(20);
    nvtx_push("inside");
    launch(21);
    nvtx_pop();
    launch(22);
    nvtx_pop();
    launch(3);
    nvtx_pop();
    uint64_t number = nvtx_start("valid");
    launch(23);
    nvtx_push("of the same thread"), nvtx_pop();
    launch(24);
    nvtx_end(number);
    launch(4);
    nvtx_push_in(domain, &registered);
    launch(25);
    nvtx_push("of another domain"), nvtx_pop();
    launch(26);
    nvtx_pop_in(domain);
    launch(5);
}

int main(int argc, char **argv) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    if (argc != 2) return 2;
    ok(cuInit(0));
    ok(cuDeviceGet(&device, 0));
    ok(cuDevicePrimaryCtxRetain(&context, device));
    ok(cuCtxSetCurrent(context));
    ok(cuModuleLoadData(&module, "fakecuda:spin_us_40"));
    ok(cuModuleGetFunction(&function, module, "spin_us_40"));
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    nvtx_initialise();
    if (!strcmp(argv[1], "steps")) steps();
    else ranges();
    puts("ok");
    return 0;
}
