/* Events between queues and the host. */
#ifndef EVENTS_H
#define EVENTS_H

#include "metal.h"

void event_set(id event, uint64_t value);
/* Whether the value came before so many milliseconds had passed. */
int event_await(id event, uint64_t value, uint64_t milliseconds);
id event_new(const char *class_name, id device);

#endif
