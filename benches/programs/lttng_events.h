#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "lttng_events.h"
#if !defined(LTTNG_EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_EVENTS_H
#include <lttng/tracepoint.h>
LTTNG_UST_TRACEPOINT_EVENT(bench, launch,
    LTTNG_UST_TP_ARGS(unsigned long, function, unsigned long, stream, unsigned long, grid, unsigned long, block),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(unsigned long, function, function)
        lttng_ust_field_integer_hex(unsigned long, stream, stream)
        lttng_ust_field_integer(unsigned long, grid, grid)
        lttng_ust_field_integer(unsigned long, block, block)))
#endif
#include <lttng/tracepoint-event.h>
