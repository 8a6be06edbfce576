/* What happened, as the simulation itself knows it: lines of JSON in the file that FAKE_METAL_TRUTH names, else nothing;
 * with FAKE_METAL_TRUTH_OF only those of one kind.
 *
 * command_buffer  number, object, queue, label, dispatches, copies, start_ns, end_ns, status, handlers (of its end)
 * dispatch        object (command buffer), name, form, grid, group
 * copy            object, bytes, source, destination
 * wait            what (completed, scheduled, room, event), object, start_ns, end_ns
 * alloc, free     object, bytes, mode
 * allocations     who, count: of a program that counts its calls of malloc */
#ifndef TRUTH_H
#define TRUTH_H

#include <stdint.h>

/* Whether anybody wants to know. */
int truth_is_wanted(void);
void truth(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Nanoseconds of the clock of all times here. */
uint64_t now_ns(void);

#endif
