/* The GPU's clock: this system's, unless FAKE_METAL_GPU_CLOCK says otherwise, as OFFSET_NS,DRIFT_PPM,WHOSE: off by so much as it is
 * read first, and from then on faster by so many millionths. With `times` those of command buffers are in it too; with
 * `stamps` they are the host's, as Apple documents them, and only the GPU's timestamps are in it; with `none` the device answers
 * with zeros. */
#ifndef GPU_CLOCK_H
#define GPU_CLOCK_H

#include <stdint.h>

/* A moment of this system's clock as a timestamp of the GPU's. */
uint64_t gpu_stamp(uint64_t ns);
/* The same as a time of a command buffer, in seconds. */
double gpu_seconds(uint64_t ns);

#endif
