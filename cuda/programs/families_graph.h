/* Memory of graphs: made by nodes or by capture, alive from a launch to a free of any kind. */
#pragma once
#include "families.h"

static void graph_by_nodes(struct thread *t, struct graph *g) {
    CUnode last = NULL;
    MUST(cu(GraphCreate)(&g->graph, 0));
    for (int i = 0; i < g->count; i++) {
        CUallocnode wish = {.pool = {.type = 1, .place = {1, 0}}, .bytes = g->bytes[i]};
        MUST(cu(NodeAlloc)(&last, g->graph, &last, last != NULL, &wish));
        g->at[i] = wish.address;
        if (g->inside[i]) MUST(cu(NodeFree)(&last, g->graph, &last, 1, g->at[i]));
    }
    (void)t;
}

static void graph_by_capture(struct thread *t, struct graph *g) {
    /* relaxed: what other threads allocate meanwhile is their own affair */
    MUST(cu(CaptureBegin)(t->stream, 2));
    for (int i = 0; i < g->count; i++) {
        MUST(cu(AllocAsync)(&g->at[i], g->bytes[i], t->stream));
        if (g->inside[i]) MUST(cu(FreeAsync)(g->at[i], t->stream));
    }
    MUST(cu(CaptureEnd)(t->stream, &g->graph));
}

static int graph_begin(struct thread *t, struct living *l) {
    if (!has(NodeAlloc) || !has(Instantiate) || !has(CaptureBegin)) return 0;
    memset(&l->graph, 0, sizeof l->graph);
    struct graph *g = &l->graph;
    g->count = 1 + below(t, BLOCKS);
    for (int i = 0; i < g->count; i++) {
        g->bytes[i] = 1 + below(t, below(t, 4) ? 5000 : 3000000);
        g->inside[i] = below(t, 3) == 0;
    }
    g->free_on_launch = below(t, 2);
    if (below(t, 2)) graph_by_nodes(t, g);
    else graph_by_capture(t, g);
    MUST(cu(Instantiate)(&g->exec, g->graph, g->free_on_launch));
    return 1;
}

static void graph_launch(struct thread *t, struct graph *g) {
    for (int i = 0; i < g->count; i++)
        if (g->live[i] && !g->free_on_launch) return;
    if (below(t, 2)) MUST(cu(GraphLaunch)(g->exec, t->stream));
    else MUST(cu(GraphLaunchT)(g->exec, NULL));
    for (int i = 0; i < g->count; i++) {
        if (g->live[i]) book_reserved(t, -1, g->bytes[i]);
        g->live[i] = !g->inside[i];
        if (g->live[i]) book_reserved(t, 1, g->bytes[i]);
    }
}

static void graph_free(struct thread *t, struct graph *g, int i) {
    CUgraph other;
    CUexec exec;
    CUnode node;
    switch (below(t, 4)) {
    case 0: MUST(cu(MemFree)(g->at[i])); break;
    case 1: MUST(cu(FreeAsync)(g->at[i], t->stream)); break;
    case 2: MUST(cu(FreeAsyncT)(g->at[i], NULL)); break;
    default: /* by a node of another graph: only while its own can still be launched is it a graph's allocation */
        if (!g->graph && !g->exec) { MUST(cu(MemFree)(g->at[i])); break; }
        MUST(cu(GraphCreate)(&other, 0));
        MUST(cu(NodeFree)(&node, other, NULL, 0, g->at[i]));
        MUST(cu(Instantiate)(&exec, other, 0));
        MUST(cu(GraphLaunch)(exec, t->stream));
        MUST(cu(ExecDestroy)(exec));
        MUST(cu(GraphDestroy)(other));
    }
    g->live[i] = 0;
    book_reserved(t, -1, g->bytes[i]);
}

static void graph_act(struct thread *t, struct living *l) {
    struct graph *g = &l->graph;
    int i = below(t, g->count);
    switch (below(t, 8)) {
    case 0: /* the graph may go before its executable, and both before what they allocated */
        if (g->graph) { MUST(cu(GraphDestroy)(g->graph)); g->graph = NULL; }
        break;
    case 1:
        if (g->exec) { MUST(cu(ExecDestroy)(g->exec)); g->exec = NULL; }
        else if (g->graph) MUST(cu(Instantiate)(&g->exec, g->graph, g->free_on_launch));
        break;
    case 2: case 3: case 4:
        if (g->live[i]) graph_free(t, g, i);
        break;
    default:
        if (g->exec) graph_launch(t, g);
    }
}

static void graph_end(struct thread *t, struct living *l) {
    struct graph *g = &l->graph;
    int blocks_first = below(t, 2);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < g->count && round != blocks_first; i++)
            if (g->live[i]) graph_free(t, g, i);
        if (round == blocks_first) {
            if (g->exec) MUST(cu(ExecDestroy)(g->exec));
            if (g->graph) MUST(cu(GraphDestroy)(g->graph));
            g->exec = NULL;
            g->graph = NULL;
        }
    }
}
