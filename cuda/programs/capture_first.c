/* The first memory that the program asks for is a node of a graph: the device is first seen while a stream is captured.
   With "launch" the graph is run once, after the capture has ended. */
#include "families_api.h"

int main(int argc, char **argv) {
    void *context, *stream;
    CUgraph graph;
    CUexec exec;
    CUdeviceptr p;
    reach_driver();
    MUST(cu(Init)(0));
    MUST(cu(PrimaryRetain)(&context, 0));
    MUST(cu(CtxSetCurrent)(context));
    MUST(cu(StreamCreate)(&stream, 0));
    MUST(cu(CaptureBegin)(stream, 2));
    MUST(cu(AllocAsync)(&p, 4096, stream));
    MUST(cu(CaptureEnd)(stream, &graph));
    if (argc > 1 && !strcmp(argv[1], "launch")) {
        MUST(cu(Instantiate)(&exec, graph, 0));
        MUST(cu(GraphLaunch)(exec, stream));
    }
    return 0;
}
