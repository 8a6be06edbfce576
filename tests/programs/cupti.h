/* The part of CUPTI's interface that the test programs use, declared here so that they compile without a CUDA toolkit. */
#ifndef GPUTRACE_TESTS_CUPTI_H
#define GPUTRACE_TESTS_CUPTI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUptiResult;
typedef void (*CuptiRequest)(uint8_t **buffer, size_t *bytes, size_t *records);
typedef void (*CuptiComplete)(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid);
/* Every record begins with its kind. */
typedef struct {
    uint32_t kind;
} CuptiRecord;

#define CUPTI_KIND_MEMCPY 1
#define CUPTI_KIND_MEMSET 2
#define CUPTI_KIND_CONCURRENT_KERNEL 10

CUptiResult cuptiGetVersion(uint32_t *version);
CUptiResult cuptiSubscribe(void **subscriber, void *callback, void *user);
CUptiResult cuptiUnsubscribe(void *subscriber);
CUptiResult cuptiActivityRegisterCallbacks(CuptiRequest request, CuptiComplete complete);
CUptiResult cuptiActivityEnable(uint32_t kind);
CUptiResult cuptiActivityDisable(uint32_t kind);
CUptiResult cuptiActivityFlushAll(uint32_t flag);
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CuptiRecord **record);
CUptiResult cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped);
CUptiResult cuptiFinalize(void);

#endif
