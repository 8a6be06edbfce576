/* MPSCommandBuffer: stands for one command buffer after the other, and is itself none of the device's. */
#include "metal.h"

@implementation MPSCommandBuffer
+ (MPSCommandBuffer *)commandBufferFromCommandQueue:(id)queue {
    MPSCommandBuffer *made = [self new];
    made->root = [[queue commandBuffer] retain];
    return [made autorelease];
}
- (id)rootCommandBuffer {
    return root;
}
- (void)commitAndContinue {
    id queue = [root commandQueue];
    [root commit];
    [root release];
    root = [[queue commandBuffer] retain];
}
- (void)commit {
    [root commit];
}
- (void)waitUntilCompleted {
    [root waitUntilCompleted];
}
- (id)computeCommandEncoder {
    return [root computeCommandEncoder];
}
- (void)dealloc {
    [root release];
    [super dealloc];
}
@end
