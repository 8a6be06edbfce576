/* The functions of Apple's Objective-C runtime that GCC's has otherwise. */
#include <objc/runtime.h>

#include "thunks.h"

/* What global blocks begin with. */
void *_NSConcreteGlobalBlock[32];

/* GCC's has it as an inline function. */
Class mac_object_getClass(id object) {
    return object_getClass(object);
}

/* GCC's ends the process where there is no such class and a program has asked for that. */
Class mac_objc_getClass(const char *name) {
    return objc_lookUpClass(name);
}
