/* Makes, updates, replays and ends graphs, and prints what it did: cuda_graphs SCENARIO [NUMBER]
 *
 * For each launch of an executable graph it prints `launch INSTANTIATION KERNELS`: the number of the instantiation in this
 * process and how many kernels the launch gives the device. For each instantiation it prints `graph NUMBER` and then, of
 * the nodes it made, `KIND=NODES` and `kernel:NAME=NODES`; nodes of bodies of conditional nodes have `body:` before.
 *
 * `strict` prints the results of everything, which must be the same whoever looks on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

typedef unsigned long long u64;
typedef struct {
    CUfunction function;
    unsigned grid[3], block[3], shared;
    void **params, **extra;
    CUkernel kernel;
    CUcontext context;
} KernelNode;
typedef struct {
    u64 flags;
    CUstream stream;
    CUgraphNode node;
    int result;
} InstantiateParams;
typedef struct {
    int kind, reserved[3];
    union {
        struct {
            u64 handle;
            int kind;
            unsigned count;
            CUgraph *bodies;
            CUcontext context;
        } conditional;
        long long words[29];
    };
    long long end;
} NodeParams;

CUresult cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode *, const void *, size_t, int);
CUresult cuGraphCreate(CUgraph *, unsigned);
CUresult cuGraphAddKernelNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const KernelNode *);
CUresult cuGraphAddChildGraphNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph);
CUresult cuGraphAddEmptyNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t);
CUresult cuGraphAddNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, NodeParams *);
CUresult cuGraphConditionalHandleCreate(u64 *, CUgraph, CUcontext, unsigned, unsigned);
CUresult cuGraphDestroyNode(CUgraphNode);
CUresult cuGraphInstantiate(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
CUresult cuGraphInstantiate_v2(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
CUresult cuGraphInstantiateWithParams(CUgraphExec *, CUgraph, InstantiateParams *);
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *, CUgraph, InstantiateParams *);
CUresult cuGraphLaunch_ptsz(CUgraphExec, CUstream);
CUresult cuGraphExecUpdate(CUgraphExec, CUgraph, CUgraphNode *, int *);
CUresult cuGraphExecUpdate_v2(CUgraphExec, CUgraph, int *);
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode, const KernelNode *);
CUresult cuThreadExchangeStreamCaptureMode(int *);
CUresult cuGraphNodeSetEnabled(CUgraphExec, CUgraphNode, unsigned);
CUresult cuModuleEnumerateFunctions(CUfunction *, unsigned, CUmodule);

#define EACH(DO)                                                                                                       \
    DO(cuInit) DO(cuDevicePrimaryCtxRetain) DO(cuCtxSetCurrent) DO(cuModuleLoadData) DO(cuModuleGetFunction)           \
    DO(cuLaunchKernel) DO(cuStreamCreate) DO(cuStreamSynchronize) DO(cuStreamQuery) DO(cuEventCreate)                  \
    DO(cuEventRecord) DO(cuEventQuery) DO(cuMemAlloc_v2) DO(cuMemsetD8Async) DO(cuMemcpyDtoHAsync_v2)                  \
    DO(cuMemAllocHost_v2) DO(cuStreamBeginCapture_v2) DO(cuStreamEndCapture) DO(cuStreamBeginCaptureToGraph)           \
    DO(cuGraphCreate) DO(cuGraphAddKernelNode_v2) DO(cuGraphAddChildGraphNode) DO(cuGraphAddEmptyNode)                 \
    DO(cuGraphAddNode_v2) DO(cuGraphConditionalHandleCreate) DO(cuGraphDestroyNode) DO(cuGraphDestroy)                 \
    DO(cuGraphInstantiate) DO(cuGraphInstantiate_v2) DO(cuGraphInstantiateWithFlags) DO(cuGraphInstantiateWithParams)  \
    DO(cuGraphInstantiateWithParams_ptsz) DO(cuGraphLaunch) DO(cuGraphLaunch_ptsz) DO(cuGraphExecDestroy)              \
    DO(cuGraphExecUpdate) DO(cuGraphExecUpdate_v2) DO(cuGraphExecKernelNodeSetParams_v2) DO(cuGraphNodeSetEnabled) \
    DO(cuThreadExchangeStreamCaptureMode) DO(cuModuleEnumerateFunctions)
#define DECLARE(name) static __typeof__(&name) p_##name;
EACH(DECLARE)

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        CUresult result = call;                                                                                        \
        if (result) {                                                                                                  \
            printf("%s: %d\n", #call, result);                                                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static CUcontext context;
static CUmodule module;
static CUstream stream;
static int instantiations;

static CUfunction find(const char *name) {
    CUfunction function;
    OK(p_cuModuleGetFunction(&function, module, name));
    return function;
}

static void launch_kernel(CUfunction function, CUstream on) {
    OK(p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, NULL, NULL));
}

static void start(void) {
    OK(p_cuInit(0));
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuModuleLoadData(&module, "image"));
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

/* A captured graph of so many kernels, of the names NAME_0, NAME_1 ... in turn. */
static CUgraph captured(const char *name, int kernels, int names) {
    CUgraph graph;
    OK(p_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < kernels; i++) {
        char full[64];
        snprintf(full, sizeof full, "%s_%d", name, i % names);
        launch_kernel(find(full), stream);
    }
    OK(p_cuStreamEndCapture(stream, &graph));
    return graph;
}

static CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec;
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
    instantiations++;
    return exec;
}

static void launch(CUgraphExec exec, int number, int kernels) {
    OK(p_cuGraphLaunch(exec, stream));
    printf("launch %d %d\n", number, kernels);
}

static CUgraphNode add_kernel(CUgraph graph, const char *name) {
    KernelNode node = {.function = find(name), .grid = {1, 1, 1}, .block = {1, 1, 1}};
    CUgraphNode added;
    OK(p_cuGraphAddKernelNode_v2(&added, graph, NULL, 0, &node));
    return added;
}

/* Every function that instantiates, and both that launch. */
static void variants(void) {
    CUdeviceptr memory;
    void *host;
    CUgraph graph;
    OK(p_cuMemAlloc_v2(&memory, 4096));
    OK(p_cuMemAllocHost_v2(&host, 4096));
    OK(p_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(p_cuMemsetD8Async(memory, 1, 4096, stream));
    const char *names[] = {"alpha", "_ZN5torch4betaIfEEvPT_i", "gamma"};
    for (int i = 0; i < 7; i++) launch_kernel(find(names[i % 3]), stream);
    OK(p_cuMemcpyDtoHAsync_v2(host, memory, 4096, stream));
    OK(p_cuStreamEndCapture(stream, &graph));
    for (int variant = 0; variant < 5; variant++) {
        CUgraphExec exec;
        InstantiateParams params = {0};
        switch (variant) {
        case 0: OK(p_cuGraphInstantiate(&exec, graph, NULL, NULL, 0)); break;
        case 1: OK(p_cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0)); break;
        case 2: OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0)); break;
        case 3: OK(p_cuGraphInstantiateWithParams(&exec, graph, &params)); break;
        case 4: OK(p_cuGraphInstantiateWithParams_ptsz(&exec, graph, &params)); break;
        }
        instantiations++;
        printf("graph %d kernels=7 memsets=1 memcpys=1 kernel:%s=3 kernel:%s=2 kernel:%s=2\n", instantiations, names[0],
               names[1], names[2]);
        for (int i = 0; i < 4; i++) {
            OK(i % 2 ? p_cuGraphLaunch_ptsz(exec, stream) : p_cuGraphLaunch(exec, stream));
            printf("launch %d 7\n", instantiations);
        }
    }
    /* Refused: no such executable graph. It gives the device nothing. */
    if (p_cuGraphLaunch((CUgraphExec)0x1230, stream) == 0) exit(1);
    puts("launch 0 0");
}

/* Graphs in graphs: added, and by a launch under capture. */
static void children(void) {
    CUgraph inner = captured("inner", 3, 2), middle = captured("middle", 2, 1), outer;
    CUgraphNode node;
    OK(p_cuGraphAddChildGraphNode(&node, middle, NULL, 0, inner));
    OK(p_cuGraphCreate(&outer, 0));
    for (int i = 0; i < 2; i++) OK(p_cuGraphAddChildGraphNode(&node, outer, NULL, 0, middle));
    OK(p_cuGraphAddEmptyNode(&node, outer, NULL, 0));
    add_kernel(outer, "inner_0");
    OK(p_cuGraphDestroy(inner)); /* the copies in the others live on */
    CUgraphExec exec = instantiate(outer);
    puts("graph 1 kernels=11 child_graphs=4 empties=1 kernel:inner_0=5 kernel:inner_1=2 kernel:middle_0=4");
    launch(exec, 1, 11);
    CUgraph again;
    OK(p_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_kernel(find("before"), stream);
    OK(p_cuGraphLaunch(exec, stream));
    puts("launch 1 0"); /* under capture */
    OK(p_cuStreamEndCapture(stream, &again));
    exec = instantiate(again);
    puts("graph 2 kernels=12 child_graphs=5 empties=1 kernel:inner_0=5 kernel:inner_1=2 kernel:middle_0=4 "
         "kernel:before=1");
    for (int i = 0; i < 3; i++) launch(exec, 2, 12);
}

static CUgraphNode conditional(CUgraph graph, int kind, unsigned value, unsigned count, CUgraph *bodies) {
    NodeParams params = {.kind = 13};
    CUgraphNode node;
    OK(p_cuGraphConditionalHandleCreate(&params.conditional.handle, graph, context, value, 1));
    params.conditional.kind = kind;
    params.conditional.count = count;
    OK(p_cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
    memcpy(bodies, params.conditional.bodies, count * sizeof *bodies);
    return node;
}

/* Bodies of conditional nodes, one in the other; a node and a graph that end before others take their handles. */
static void conditionals(void) {
    for (int round = 0; round < 3; round++) {
        CUgraph graph, loop, cases[2], inside;
        OK(p_cuGraphCreate(&graph, 0));
        CUgraphNode gone = conditional(graph, 0, 1, 1, &loop);
        add_kernel(loop, "never");
        OK(p_cuGraphDestroyNode(gone));
        add_kernel(graph, "first");
        conditional(graph, 1, 3, 1, &loop);
        OK(p_cuStreamBeginCaptureToGraph(stream, loop, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
        launch_kernel(find("in_loop"), stream);
        launch_kernel(find("in_loop"), stream);
        OK(p_cuStreamEndCapture(stream, &loop));
        conditional(loop, 0, 0, 1, &inside);
        add_kernel(inside, "deep");
        conditional(graph, 2, 1, 2, cases);
        add_kernel(cases[0], "first");
        add_kernel(cases[1], "in_case");
        CUgraphExec exec = instantiate(graph);
        printf("graph %d kernels=1 conditionals=2 conditional_nodes=6 conditional_kernels=5 kernel:first=1 "
               "body:first=1 body:in_loop=2 body:deep=1 body:in_case=1\n",
               instantiations);
        launch(exec, instantiations, 1);
        OK(p_cuGraphDestroy(graph));
    }
}

/* Identity is kept through updates, and what it holds follows. */
static void updates(void) {
    CUgraph first, second = captured("second", 2, 2), third;
    OK(p_cuGraphCreate(&first, 0));
    CUgraphNode nodes[2], added[2];
    for (int i = 0; i < 2; i++) nodes[i] = add_kernel(first, i ? "first_1" : "first_0");
    CUgraphExec exec = instantiate(first), other = instantiate(second);
    puts("graph 1 kernels=2 kernel:first_0=1 kernel:first_1=1");
    puts("graph 2 kernels=2 kernel:second_0=1 kernel:second_1=1");
    launch(exec, 1, 2);
    OK(p_cuGraphNodeSetEnabled(exec, nodes[0], 0));
    launch(exec, 1, 1);
    launch(other, 2, 2);
    OK(p_cuGraphNodeSetEnabled(exec, nodes[0], 0)); /* once more changes nothing */
    OK(p_cuGraphNodeSetEnabled(exec, nodes[1], 0));
    launch(exec, 1, 0);
    for (int i = 0; i < 2; i++) OK(p_cuGraphNodeSetEnabled(exec, nodes[i], 1));
    launch(exec, 1, 2);
    KernelNode node = {.function = find("third_0"), .grid = {1, 1, 1}, .block = {1, 1, 1}};
    for (int i = 0; i < 10; i++) OK(p_cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &node));
    launch(exec, 1, 2);
    OK(p_cuGraphCreate(&third, 0));
    for (int i = 0; i < 2; i++) added[i] = add_kernel(third, i ? "third_1" : "third_0");
    int how;
    OK(p_cuGraphExecUpdate_v2(exec, third, &how));
    OK(p_cuGraphExecUpdate(exec, third, added, &how));
    launch(exec, 1, 2);
    if (p_cuGraphExecUpdate_v2(exec, second, &how) == 0) exit(1); /* other edges: refused, and no update */
    puts("updates 1 17");
    puts("updated 1 kernel:third_0=1 kernel:third_1=1");
}

/* Handles come back: so many graphs, one after the other, each with a number of kernels of its own. */
static void reuse(int rounds) {
    CUgraph graphs[5];
    for (int i = 0; i < 5; i++) graphs[i] = captured("again", i + 1, 5);
    for (int i = 0; i < rounds; i++) {
        CUgraphExec exec = instantiate(graphs[i % 5]);
        launch(exec, i + 1, i % 5 + 1);
        if (i % 7 == 0) launch(exec, i + 1, i % 5 + 1);
        OK(p_cuGraphExecDestroy(exec));
    }
}

/* More nodes, and more kernels, than are looked at one by one elsewhere. */
static void large(int nodes) {
    CUgraph graph;
    OK(p_cuGraphCreate(&graph, 0));
    for (int i = 0; i < nodes; i++) {
        char name[32];
        snprintf(name, sizeof name, "many_%d", i % 600);
        add_kernel(graph, name);
    }
    CUgraphExec exec = instantiate(graph);
    launch(exec, 1, nodes);
}

static void forked(void) {
    pid_t child = fork();
    if (child == 0) {
        start();
        launch(instantiate(captured("child", 4, 2)), 1, 4);
        OK(p_cuStreamSynchronize(stream));
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    start();
    CUgraphExec exec = instantiate(captured("parent", 3, 1));
    for (int i = 0; i < 2; i++) launch(exec, 1, 3);
    fflush(stdout);
    /* One that inherits the driver's state and the executable graph, and goes on with it where the driver allows. */
    child = fork();
    if (child == 0) {
        p_cuGraphLaunch(exec, stream);
        _exit(0);
    }
    waitpid(child, &status, 0);
}

/* What happens while recording is paused is known when it goes on. */
static void paused(void) {
    void (*pause)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "gputrace_pause");
    void (*resume)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "gputrace_resume");
    CUgraph graph;
    CUgraphNode nodes[3];
    pause();
    OK(p_cuGraphCreate(&graph, 0));
    for (int i = 0; i < 3; i++) nodes[i] = add_kernel(graph, "made_in_a_pause");
    CUgraphExec exec = instantiate(graph);
    OK(p_cuGraphLaunch(exec, stream));
    resume();
    puts("graph 1 kernels=3 kernel:made_in_a_pause=3");
    launch(exec, 1, 3);
    pause();
    OK(p_cuGraphNodeSetEnabled(exec, nodes[1], 0));
    resume();
    launch(exec, 1, 2);
}

/* A kernel whose name no call has told yet, instantiated while a capture is open. */
static void unseen(void) {
    CUmodule own;
    CUgraph graph, other;
    CUgraphNode added;
    KernelNode node = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
    OK(p_cuModuleLoadData(&own, "fakecuda:never_asked_for"));
    OK(p_cuModuleEnumerateFunctions(&node.function, 1, own));
    OK(p_cuGraphCreate(&graph, 0));
    OK(p_cuGraphAddKernelNode_v2(&added, graph, NULL, 0, &node));
    OK(p_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUgraphExec exec = instantiate(graph);
    OK(p_cuStreamEndCapture(stream, &other));
    puts("graph 1 kernels=1 kernel:never_asked_for=1");
    launch(exec, 1, 1);
}

static CUgraph spare;

/* What another thread does while a capture is open: nothing that disturbs it. */
static void *beside(void *function) {
    CUstream own;
    CUgraphExec exec;
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 50; i++) {
        free(malloc(1000 + i));
        launch_kernel(function, own);
        OK(p_cuGraphInstantiateWithFlags(&exec, spare, 0));
        OK(p_cuGraphLaunch(exec, own));
        OK(p_cuGraphExecDestroy(exec));
    }
    return NULL;
}

static CUevent event;

/* A call that a capture in global mode forbids to every thread. */
static void *query(void *unused) {
    (void)unused;
    OK(p_cuCtxSetCurrent(context));
    printf("query from another thread: %d\n", p_cuEventQuery(event));
    return NULL;
}

/* Captures in every mode, beside which much happens, are valid; those that something illegal happens to are not. */
static void strict(void) {
    pthread_t thread;
    CUgraph graph;
    CUfunction function = find("beside");
    spare = captured("spare", 6, 3);
    OK(p_cuEventCreate(&event, 0));
    OK(p_cuEventRecord(event, stream));
    OK(p_cuStreamSynchronize(stream));
    int mine = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    OK(p_cuThreadExchangeStreamCaptureMode(&mine));
    instantiate(spare);
    mine = CU_STREAM_CAPTURE_MODE_GLOBAL;
    OK(p_cuThreadExchangeStreamCaptureMode(&mine));
    printf("the thread's own mode is %d\n", mine);
    for (int mode = 0; mode < 3; mode++) {
        for (int how = 0; how < 4; how++) {
            printf("mode %d how %d\n", mode, how);
            OK(p_cuStreamBeginCapture_v2(stream, mode));
            for (int i = 0; i < 3000; i++) launch_kernel(find(i % 2 ? "captured_a" : "captured_b"), stream);
            free(malloc(1 << 20));
            if (how == 1) pthread_create(&thread, NULL, beside, function);
            if (how == 2) pthread_create(&thread, NULL, query, NULL);
            if (how == 3) printf("query: %d\n", p_cuEventQuery(event));
            if (how == 1 || how == 2) pthread_join(thread, NULL);
            CUresult ended = p_cuStreamEndCapture(stream, &graph);
            printf("end %d\n", ended);
            if (ended) continue;
            CUgraphExec exec = instantiate(graph);
            OK(p_cuGraphLaunch(exec, stream));
            OK(p_cuStreamSynchronize(stream));
            OK(p_cuGraphExecDestroy(exec));
            OK(p_cuGraphDestroy(graph));
        }
    }
}

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts(dlerror()), 1;
#define FIND(name) p_##name = (__typeof__(p_##name))dlsym(driver, #name);
    EACH(FIND)
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    const char *scenario = argc > 1 ? argv[1] : "variants";
    int number = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(scenario, "forked")) return forked(), 0;
    start();
    if (!strcmp(scenario, "variants")) variants();
    if (!strcmp(scenario, "children")) children();
    if (!strcmp(scenario, "conditionals")) conditionals();
    if (!strcmp(scenario, "updates")) updates();
    if (!strcmp(scenario, "reuse")) reuse(number);
    if (!strcmp(scenario, "large")) large(number);
    if (!strcmp(scenario, "strict")) strict();
    if (!strcmp(scenario, "paused")) paused();
    if (!strcmp(scenario, "unseen")) unseen();
    OK(p_cuStreamSynchronize(stream));
    return 0;
}
