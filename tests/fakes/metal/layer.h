/* The layer that FAKE_METAL_LAYER puts between a program and its device. */
#ifndef LAYER_H
#define LAYER_H

#include "metal.h"

/* A device that stands for another one. */
id layer_device(id base);

#endif
