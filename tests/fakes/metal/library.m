/* Libraries, functions and pipelines. A function's name says how long a dispatch of it takes: `gemm_500us`. */
#include <stdlib.h>
#include <string.h>

#include "classes.h"
#include "truth.h"

@interface _MTLSimFunction : NSObject {
  @public
    NSString *name;
}
@end

@implementation _MTLSimFunction
- (NSString *)name {
    return name;
}
- (void)dealloc {
    [name release];
    [super dealloc];
}
@end

@interface _MTLSimLibrary : NSObject
@end

@implementation _MTLSimLibrary
- (id)newFunctionWithName:(NSString *)name {
    _MTLSimFunction *made = [_MTLSimFunction new];
    made->name = [name retain];
    return made;
}
@end

id library_new(void) {
    return [_MTLSimLibrary new];
}

@interface AGXSimComputePipeline : NSObject {
  @public
    _MTLSimFunction *function;
    NSString *label;
    uint64_t ns;
}
@end

@implementation AGXSimComputePipeline
- (NSString *)label {
    return label;
}
- (NSUInteger)threadExecutionWidth {
    return 32;
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
    return 1024;
}
- (void)dealloc {
    [function release];
    [label release];
    [super dealloc];
}
@end

@implementation MTLComputePipelineDescriptor
- (NSString *)label {
    return label;
}
- (void)setLabel:(NSString *)text {
    [text retain];
    [label release];
    label = text;
}
- (id)computeFunction {
    return function;
}
- (void)setComputeFunction:(id)given {
    [given retain];
    [function release];
    function = given;
}
- (void)dealloc {
    [label release];
    [function release];
    [super dealloc];
}
@end

static uint64_t ns_of(const char *name) {
    const char *last = strrchr(name, '_');
    char *end;
    uint64_t us = last ? strtoul(last + 1, &end, 10) : 0;
    return last && end != last + 1 && !strcmp(end, "us") ? 1000 * us : 0;
}

id pipeline_new(id function, NSString *label) {
    AGXSimComputePipeline *made = [AGXSimComputePipeline new];
    made->function = [function retain];
    made->label = [label retain];
    made->ns = ns_of(pipeline_name(made));
    truth("{\"kind\":\"pipeline\",\"object\":%lu,\"name\":\"%s\"}", (unsigned long)made, pipeline_name(made));
    return made;
}

const char *pipeline_name(id pipeline) {
    return pipeline ? text_of(((AGXSimComputePipeline *)pipeline)->function->name) : "";
}

uint64_t pipeline_ns(id pipeline) {
    return pipeline ? ((AGXSimComputePipeline *)pipeline)->ns : 0;
}
